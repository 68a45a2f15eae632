"""Texts end to end on the command line: a CSV, frozen encoders, fine-tuning, the paper's splits."""

from __future__ import annotations

import csv
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml

from csst.cli import main
from csst.data.text.texts import Texts
from csst.data.text.views import TextViews
from csst.fitting.fitted_model import FittedModel
from csst.recipes import recipe
from csst.recipes.text import dbpedia14_lt
from csst.runs.begin import assemble
from csst.runs.execute import execute
from csst.runs.folder import Run
from csst.training.schedules import learning_rate, warmup_factor
from tests.helpers.short_runs import SHORT_RUN
from tests.helpers.tiny_models import BAD, GOOD, PLAIN, reviews, save_image_model, save_text_model

pytestmark = SHORT_RUN

KNOWN = (*GOOD, *BAD, *PLAIN)
SMALL = ["--training.labeled_batch", "8", "--training.unlabeled_batch", "16", "--dual.steps_per_update", "5"]
SMALL += ["--learner", "network"]
TUNED = [*SMALL, "--training.optimizer", "adamw", "--training.lr", "1e-2", "--training.warmup", "3"]
TUNED += ["--training.schedule", "linear", "--model.max_length", "16", "--no_frozen", "--training.ema", "0.9"]
TUNED += ["--selftraining.unlabeled_weight", "0.1"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CSST_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    return save_text_model(tmp_path_factory.mktemp("network"), "distilbert")


def write(path, texts, labels=None) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerows([["text", "label"], *zip(texts, labels, strict=True)] if labels else [["text"], *zip(texts)])
    return str(path)


@pytest.fixture
def data(tmp_path):
    """60 good and 20 bad reviews, every second without a label; a test file of as many again."""
    texts, labels = reviews(60, 20)
    some = [label if at % 2 else "" for at, label in enumerate(labels)]
    held = reviews(20, 20, seed=1)
    return ["--data.path", write(tmp_path / "mine.csv", texts, some), "--data.test_path", write("held.csv", *held)]


def metrics(folder: str) -> dict:
    return Run.open(folder).metrics()


def predictions(name: str) -> list[dict[str, str]]:
    with open(name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# ── Your own texts ──


def test_a_csv_with_the_built_in_words(data, capsys, tmp_path):
    assert main(["train", "text", *data, *SMALL, "--training.steps", "30", "--out", "run"]) == 0
    shown = capsys.readouterr()
    assert "csst-uda" in shown.out
    found = metrics("run")
    assert (found["method"], found["kind"], found["input_shape"]) == ("csst-uda", "text", [2048])
    assert found["class_names"] == ["bad", "good"]
    assert found["unlabeled_count"] == 40
    assert found["labeled_counts"] == [8, 24]
    assert found["facts"] == {
        "held_out_texts_also_in_training": found["facts"]["held_out_texts_also_in_training"],
        "encoder": "words-2048-1",
        "embedding_width": 2048,
    }
    assert found["test"]["min_recall"] > 0.8
    assert main(["evaluate", "run"]) == 0
    assert "equal to metrics.json" in capsys.readouterr().out
    assert main(["train", "--config", "run/recipe.yaml", "--out", "again"]) == 0  # with its nested views
    assert {**metrics("again"), "seconds": 0} == {**found, "seconds": 0}


def test_predicting_needs_the_run_only(data, tmp_path, capsys):
    assert main(["train", "text", *data, *SMALL, "--training.steps", "30", "--out", "run"]) == 0
    for name in ("mine.csv", "held.csv"):
        (tmp_path / name).unlink()
    shutil.rmtree(tmp_path / "cache")
    texts = ["a lovely warm film", "a dull boring story", "", "🙂 東京", "=SUM(A1)", "lovely " * 3000]
    write("new.csv", texts)
    assert main(["predict", "run", "new.csv", "-o", "out.csv", "--probabilities", "--keep", "text"]) == 0
    assert "6 predictions in out.csv" in capsys.readouterr().out
    rows = predictions("out.csv")
    assert [row["text"] for row in rows] == texts
    assert list(rows[0]) == ["text", "prediction", "probability", "p(bad)", "p(good)"]
    assert [row["prediction"] for row in rows[:2]] == ["good", "bad"]
    for row in rows:
        assert float(row["p(bad)"]) + float(row["p(good)"]) == pytest.approx(1, abs=1e-5)
    # the same from JSON lines, in another column and another order
    with open("new.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"review": text}) + "\n" for text in texts[::-1])
    assert main(["predict", "run", "new.jsonl", "-o", "other.csv", "--column", "review", "--probabilities"]) == 0
    assert [row["p(bad)"] for row in predictions("other.csv")] == [row["p(bad)"] for row in rows][::-1]
    assert main(["predict", "run", "new.jsonl", "-o", "other.csv"]) == 2
    assert "no column 'text'" in capsys.readouterr().err
    assert main(["predict", "run", "new.csv", "-o", "nowhere/out.csv"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_without_unlabeled_texts(tmp_path, capsys):
    path = write("mine.csv", *reviews(20, 20))
    words = ["train", "text", "--data.path", path, *SMALL, "--training.steps", "20"]
    assert main([*words, "--method", "csl", "--out", "csl"]) == 0
    assert metrics("csl")["unlabeled_count"] == 0
    assert main([*words, "--out", "csst"]) == 2
    assert "needs unlabeled examples; there are none: use csl, la or erm" in capsys.readouterr().err


def test_an_encoder_of_ones_own(data, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    code = "WORDS = ('lovely', 'great', 'warm', 'funny')\n"
    code += "def mine(texts):\n    return [[sum(t.count(w) for w in WORDS), len(t)] for t in texts]\n"
    (tmp_path / "my_text_encoder_for_csst.py").write_text(code)
    words = ["--encoder", "my_text_encoder_for_csst:mine", "--training.steps", "60", "--embedding.noise", "0.1"]
    assert main(["train", "text", *data, *SMALL, *words, "--out", "run"]) == 0
    assert metrics("run")["input_shape"] == [2]
    assert metrics("run")["test"]["min_recall"] > 0.9


# ── Hugging Face encoders ──


def test_a_frozen_network(data, network, tmp_path, monkeypatch, capsys):
    words = [
        "train",
        "text",
        *data,
        *SMALL,
        "--training.steps",
        "10",
        "--encoder",
        network,
        "--embedding.max_length",
        "16",
    ]
    assert main([*words, "--out", "run"]) == 0
    found = metrics("run")
    assert found["input_shape"] == [16]
    assert found["facts"]["encoder"].startswith("text-")
    files = sorted(path.name for path in (tmp_path / "cache" / "embeddings").iterdir())
    assert files == [f"{found['facts']['encoder']}.sqlite"]
    weights = FittedModel.load("run").model.state_dict()
    assert sum(w.numel() for w in weights.values()) < 200  # a head alone

    def never(self, texts):
        if texts != ["a text", ""]:  # the trial when it is loaded
            raise AssertionError("embedded again")
        return torch.zeros(2, 16)

    with monkeypatch.context() as patch:
        patch.setattr("csst.models.encoders.TextEncoder.__call__", never)
        assert main([*words, "--method", "uda", "--out", "other"]) == 0
        assert main(["evaluate", "run"]) == 0
    write("new.csv", ["a lovely film", ""])
    assert main(["predict", "run", "new.csv", "-o", "out.csv"]) == 0
    assert len(predictions("out.csv")) == 2


def test_fine_tuning_a_network(data, network, tmp_path, capsys):
    words = ["train", "text", *data, *TUNED, "--encoder", network, "--training.steps", "60"]
    assert main([*words, "--out", "run"]) == 0
    found = metrics("run")
    assert (found["kind"], found["input_shape"], found["method"]) == ("text", [], "csst-uda")
    assert found["test"]["min_recall"] > 0.7
    weights = FittedModel.load("run").model.state_dict()
    assert "network.distilbert.embeddings.word_embeddings.weight" in weights
    assert not (tmp_path / "cache").exists()  # nothing is embedded
    assert main(["evaluate", "run"]) == 0
    assert "equal to metrics.json" in capsys.readouterr().out
    held = reviews(20, 20, seed=1)
    for name in ("mine.csv", "held.csv"):
        (tmp_path / name).unlink()
    write("new.csv", [*held[0], "", "the dog " * 1000])
    assert main(["predict", "run", "new.csv", "-o", "out.csv"]) == 0
    labels = [row["prediction"] for row in predictions("out.csv")][:40]
    right = {name: [a == b for a, b in zip(labels, held[1], strict=True) if b == name] for name in ("bad", "good")}
    assert [sum(right[name]) / 20 for name in ("bad", "good")] == pytest.approx(found["test"]["recall"])


def test_a_network_that_changed_after_training_is_refused(data, tmp_path, capsys):
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    write("new.csv", ["a lovely film"])
    for words, settings, says in (
        (["--embedding.max_length", "16"], {"seed": 2}, "differs from the one used in training: restore that one"),
        (TUNED, {"dim": 8, "hidden_dim": 16}, "no longer fit its network"),
    ):
        network = save_text_model(tmp_path / "net", "distilbert")
        run = f"run{len(words)}"
        words = ["train", "text", *data, *SMALL, *words, "--training.steps", "2", "--encoder", network]
        assert main([*words, "--out", run]) == 0
        shutil.rmtree(tmp_path / "net")
        assert main(["predict", run, "new.csv", "-o", "out.csv"]) == 2
        assert "there is no such folder" in capsys.readouterr().err
        save_text_model(tmp_path / "net", "distilbert", **settings)
        capsys.readouterr()
        assert main(["predict", run, "new.csv", "-o", "out.csv"]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


def tuned(data, network, **training):
    made = recipe("text")
    settings = {"steps": 9, "labeled_batch": 4, "unlabeled_batch": 8, "optimizer": "adamw", "lr": 1e-3, "ema": 0.9}
    return replace(
        made,
        data=replace(made.data, path=data[1], test_path=data[3]),
        encoder=network,
        frozen=False,
        model=replace(made.model, max_length=16),
        training=replace(made.training, **{**settings, **training}),
        dual=replace(made.dual, steps_per_update=3),
    )


def test_fine_tuning_with_dropout_resumes_to_the_bit(data, network, tmp_path):
    class Stop(Exception):
        pass

    def stop(trainer, record):
        if record.step == 6:
            raise Stop

    made = tuned(data, network)
    model = assemble(made).model
    assert any(module.p > 0 for module in model.modules() if isinstance(module, torch.nn.Dropout))
    execute(made, "whole")
    with pytest.raises(Stop):
        execute(made, "cut", on_record=stop, checkpoint_seconds=0)
    execute(made, "cut", resume=True)
    one, two = (torch.load(f"{d}/checkpoint.pt", weights_only=True)["trainer"] for d in ("whole", "cut"))
    for part in ("model", "ema"):
        assert all(torch.equal(one[part][k], two[part][k]) for k in one[part])
    assert Run("whole").journal()[-1]["labeled_loss"] == Run("cut").journal()[-1]["labeled_loss"]


def test_the_averaged_network_keeps_its_whole_numbers(data, network):
    """Positions of tokens are a buffer of integers, which no average may round down."""
    trainer = assemble(tuned(data, network, steps=9))
    for _ in trainer.run():
        pass
    kept = dict(trainer.ema.module.named_buffers())
    whole = {name: buffer for name, buffer in trainer.model.named_buffers() if not buffer.is_floating_point()}
    assert whole
    for name, buffer in whole.items():
        assert torch.equal(kept[name], buffer), name


def test_batches_of_texts_and_of_their_vectors(data, network):
    """Weak views are the texts themselves; strong views are new at every step, or drawn from those embedded before."""
    trainer, device = assemble(tuned(data, network)), torch.device("cpu")
    task, encode = trainer.task, trainer.model.encode
    one, two = trainer.batches.draw(0, device), trainer.batches.draw(1, device)
    for batch in (one, two):
        assert batch.x.shape[1] == batch.weak.shape[1] == batch.strong.shape[1]  # padded together
        for ids, text in zip(batch.weak, task.unlabeled[batch.index], strict=True):
            assert torch.equal(ids[ids >= 0], encode([text])[0])
        assert not torch.equal(batch.weak, batch.strong)
    index = one.index
    views = [task.strong(task.unlabeled[index], trainer.batches.randomness(step, 3)) for step in (0, 1)]
    assert views[0] != views[1]
    assert torch.equal(one.strong[one.strong >= 0], torch.cat([encode([text])[0] for text in views[0]]))
    made = recipe("text")
    made = replace(made, data=replace(made.data, path=data[1]), training=replace(made.training, unlabeled_batch=8))
    trainer = assemble(made)
    seen = set()
    for step in range(20):
        batch = trainer.batches.draw(step, device)
        assert torch.equal(batch.weak, trainer.task.unlabeled[batch.index])
        for at, row in zip(batch.index.tolist(), batch.strong, strict=True):
            draws = [d for d, vectors in enumerate(trainer.task.strong.vectors) if torch.equal(vectors[at], row)]
            assert draws
            seen |= set(draws)
    assert seen == {0, 1}


@pytest.mark.parametrize("method", ["erm", "uda", "csst-no-kl"])
def test_methods_accumulation_and_joint_batches(data, network, method):
    made = tuned(data, network, steps=2, batchnorm="joint")
    made = replace(made, method=method, hardware=replace(made.hardware, accumulate=2, clip=1.0))
    assert execute(made, "run")["steps"] == 2


def test_a_frozen_image_network(tmp_path, capsys):
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    rng, parts = np.random.default_rng(0), {}
    for name, each in (("train", 40), ("test", 16)):
        y = np.repeat([0, 1], each)
        parts |= {
            f"x_{name}": (rng.random((2 * each, 12, 12, 3)) * (100 + 155 * y[:, None, None, None])),
            f"y_{name}": y,
        }
    np.savez("photos.npz", **{k: v.astype(np.uint8 if k[0] == "x" else np.int64) for k, v in parts.items()})
    words = ["--data.path", "photos.npz", "--data.classes", "2", "--data.labeled", "10", "--data.unlabeled", "20"]
    words += ["--data.imbalance", "2", "--model.name", "linear", "--training.steps", "30", "--data.validation", "8"]
    words += ["--encoder", save_image_model(tmp_path / "resnet", "resnet"), "--frozen", *SMALL]
    assert main(["train", "fashion-lt-small", *words, "--out", "run"]) == 0
    found = metrics("run")
    assert (found["kind"], found["input_shape"]) == ("image", [16])
    assert found["test"]["min_recall"] > 0.8
    (tmp_path / "photos.npz").unlink()
    np.savez("new.npz", x=parts["x_test"].astype(np.uint8).transpose(0, 3, 1, 2))
    assert main(["predict", "run", "new.npz", "-o", "out.csv"]) == 0
    labels = [row["prediction"] for row in predictions("out.csv")]
    assert np.mean(np.array(labels) == np.repeat(["0", "1"], 16)) > 0.8
    np.savez("flat.npz", x=np.zeros((3, 16)))
    assert main(["predict", "run", "flat.npz", "-o", "out.csv"]) == 2
    assert "takes inputs of shape (channels, height, width)" in capsys.readouterr().err
    (tmp_path / "folder").mkdir()
    from PIL import Image

    for at, image in enumerate(parts["x_test"].astype(np.uint8)[[0, -1]]):
        Image.fromarray(image).save(tmp_path / "folder" / f"{at}.png")
    assert main(["predict", "run", "folder", "-o", "out.csv"]) == 2
    assert "pass the images as an .npz file" in capsys.readouterr().err


# ── The paper's recipes ──


def test_the_papers_table_is_in_the_recipes():
    """Paper, tab:hyperparams: tau, weight, batches, lr, dual step, steps per update, confidence, weight decay, rho."""
    table = {
        "imdb-lt-10": (0.1, 0.1, 32, 128, 1e-5, 0.5, 50, 0.9, 1e-2, 10),
        "imdb-lt-100": (0.1, 0.1, 32, 128, 1e-5, 0.5, 50, 0.9, 1e-2, 100),
        "dbpedia14-lt": (0.1, 0.1, 32, 128, 1e-5, 0.5, 100, 0.9, 1e-2, 100),
    }
    for name, expected in table.items():
        r = recipe(name)
        s, t, d = r.selftraining, r.training, r.dual
        found = (s.tau, s.unlabeled_weight, t.labeled_batch, t.unlabeled_batch, t.lr, d.step_size, d.steps_per_update)
        assert (*found, s.confidence, t.weight_decay, r.data.imbalance) == expected
        assert (t.optimizer, r.encoder, r.frozen) == ("adamw", "hf:distilbert-base-uncased", False)
        assert (d.schedule, d.initial, s.annealing) == ("constant", "uniform", "off")
        assert (r.method, r.objective, r.data.views.strong) == ("csst", "min-recall", "backtranslation")
    assert (recipe("dbpedia14-lt").data.text, recipe("dbpedia14-lt").data.classes) == ("content", 14)


@pytest.mark.parametrize(
    ("name", "labeled", "unlabeled", "ratio"),
    [
        ("imdb-lt-10", [910, 91], [11590, 1159], 13.8),
        ("imdb-lt-100", [991, 9], [11509, 115], 12.6),
        ("imdb-lt-10-small", [910, 91], [11590, 1159], 13.8),
        ("imdb-lt-100-small", [991, 9], [11509, 115], 12.6),
    ],
)
def test_the_split_of_imdb(tmp_path, name, labeled, unlabeled, ratio):
    """On a pool of IMDb's size and shape: all texts of the head class are used, a thousand of them with labels."""
    arrow = pytest.importorskip("pyarrow", reason="the extra hf is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    for part in ("train", "test"):
        rows = {
            "text": [f"{part} review {at}" for at in range(25_000)],
            "label": [at // 12_500 for at in range(25_000)],
        }
        parquet.write_table(arrow.table(rows), f"{part}.parquet")
    data = replace(recipe(name).data, path="train.parquet", test_path="test.parquet", views=TextViews("none"))
    task = data.load(0)
    assert task.class_names == ("0", "1")
    assert task.train_counts.tolist() == labeled
    assert abs(sum(labeled) - 1000) <= 1
    assert torch.bincount(task.unlabeled_truth).tolist() == unlabeled
    assert round((sum(labeled) + sum(unlabeled)) / 1000, 1) == pytest.approx(ratio, abs=0.051)  # the paper's mu
    held = [500, 1000] if name.endswith("small") else [6250, 6250]
    assert torch.bincount(task.validation.labels).tolist() == [held[0]] * 2
    assert torch.bincount(task.test.labels).tolist() == [held[1]] * 2
    assert len({*task.labeled.inputs.texts, *task.unlabeled.texts}) == sum(labeled) + sum(unlabeled)


def test_the_counts_of_dbpedia():
    data = dbpedia14_lt().data
    labeled, unlabeled = (
        sum(max(1, math.floor(head * 100 ** (-at / 13) + 1e-9)) for at in range(14))
        for head in (data.labeled, data.unlabeled)
    )
    assert abs(labeled - 1000) <= 5
    assert data.labeled + data.unlabeled == 40_000  # all of a class's training texts
    assert round((labeled + unlabeled) / 1000) == 133  # the paper's mu


def test_the_14_classes_of_dbpedia_to_the_end(network, tmp_path):
    """The recipe's own path on generated texts: long tail, TF-IDF views, fine-tuning, rule, prediction."""
    rng = np.random.default_rng(0)
    for part, each in (("train", 30), ("test", 6)):
        rows = ["content,label"]
        for kind in range(14):
            texts = [[KNOWN[kind]] * 4 + rng.choice(KNOWN, 4).tolist() for _ in range(each)]
            rows += [f"{' '.join(rng.permutation(text).tolist())},{kind:02d}" for text in texts]
        (tmp_path / f"{part}.csv").write_text("\n".join(rows) + "\n")
    base = recipe("dbpedia14-lt")
    sizes = {"labeled": 12, "unlabeled": 18, "imbalance": 3, "views": TextViews("tfidf")}
    made = replace(
        base,
        data=replace(base.data, path="train.csv", test_path="test.csv", **sizes),
        encoder=network,
        model=replace(base.model, max_length=16),
        training=replace(base.training, steps=60, labeled_batch=16, unlabeled_batch=16, lr=2e-2, warmup=5, ema=0.9),
        dual=replace(base.dual, steps_per_update=20),
        rule="fit",
    )
    found = execute(made, "run")
    assert (found["method"], len(found["class_names"]), found["steps"]) == ("csst-uda", 14, 60)
    assert found["labeled_counts"][0] == 12
    assert found["labeled_counts"][-1] == 4
    assert found["adjusted"]["test"]["mean_recall"] > 0.2  # chance is 0.07
    texts = Texts([" ".join([KNOWN[kind]] * 8) for kind in range(14)])
    assert (FittedModel.load("run").predict(texts) == torch.arange(14)).sum() >= 3


def test_warm_up_and_decay(data, network):
    for step, factor in ((0, 0.25), (1, 0.5), (2, 0.75), (3, 1.0), (4, 1.0), (100, 1.0)):
        assert warmup_factor(step, 4) == factor
    assert warmup_factor(0, 0) == warmup_factor(0, 1) == 1.0
    assert [learning_rate("linear", 2.0, p) for p in (0.0, 0.25, 1.0)] == [2.0, 1.5, 0.0]
    trainer = assemble(tuned(data, network, steps=8, lr=0.8, schedule="linear", warmup=4))
    found = []
    for step in range(8):
        trainer.step = step
        found.append(trainer.lr)
    assert found == pytest.approx([0.8 * (1 - s / 8) * min(1, (s + 1) / 4) for s in range(8)])
    trainer.step = 1
    trainer.train_step()
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(found[1])


# ── Mistakes ──


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["text"], "csst train text --data.path FILE.csv"),
        (["text", "--data.path", "nowhere.csv"], "nowhere.csv'"),
        (["text", "--data.path", "mine.csv", "--data.text", "txt"], "did you mean 'text'?"),
        (["text", "--data.path", "mine.csv", "--encoder", ""], "--frozen needs an encoder"),
        (["text", "--data.path", "mine.csv", "--no_frozen"], "words cannot be fine-tuned: add --frozen"),
        (
            ["text", "--data.path", "mine.csv", "--encoder", "", "--no_frozen"],
            "learner auto takes numbers, and these inputs are texts",
        ),
        (
            ["text", "--data.path", "mine.csv", "--encoder", "", "--no_frozen", "--learner", "network"],
            "linear takes numbers, and this task's",
        ),
        (["text", "--data.path", "mine.csv", "--encoder", "wordz"], "unknown encoder 'wordz'"),
        (["text", "--data.path", "mine.csv", "--model.name", "wrn-28-2", "--learner", "network"], "takes images"),
        (["text", "--data.path", "mine.csv", "--model.name", "wrn-28-2"], "learner auto trains no network"),
        (["text", "--data.path", "mine.csv", "--training.steps", "3"], "→ 3): add --learner network"),
        (["folder", "--data.path", ".", "--learner", "auto", "--data.held_out", "0.3"], "→ 0.3): add --learner"),
        (["text", "--data.path", "mine.csv", "--data.views.strong", "loud"], "loud"),
        (
            ["text", "--data.path", "mine.csv", "--data.views.strong", "backtranslation", "--learner", "network"],
            "csst augment",
        ),
        (["text", "--data.path", "mine.csv", "--embedding.draws", "-1"], "must not be negative"),
        (["text", "--data.path", "mine.csv", "--encoder", "hf:./nowhere"], "there is no such folder"),
        (["toy", "--frozen"], "--frozen needs an encoder"),
        (["toy", "--encoder", "words", "--frozen"], "feature vectors already"),
        (["toy", "--encoder", "words"], "words cannot be fine-tuned"),
        (["imdb-lt-10"], "--data.path TRAIN.parquet"),
        (["imdb-lt-10", "--data.path", "mine.csv"], "--data.test_path FILE is needed too"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_2(data, words, says, tmp_path, capsys):
    assert main(["train", *words, "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("csst: ")
    assert says in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_data_that_changed_cannot_be_resumed(data, tmp_path, capsys):
    words = ["train", "text", *data, *SMALL, "--training.steps", "10", "--out", "run"]
    assert main(words) == 0
    (tmp_path / "run" / "metrics.json").unlink()
    texts, labels = reviews(60, 20, seed=5)
    write(tmp_path / "mine.csv", texts, [label if at % 2 else "" for at, label in enumerate(labels)])
    assert main([*words, "--resume"]) == 2
    assert "the data has changed since the run" in capsys.readouterr().err


def test_settings_are_kept_with_the_run(data):
    words = ["--data.views.strong", "dropout", "--data.views.strength", "0.4", "--embedding.draws", "1"]
    assert main(["train", "text", *data, *SMALL, *words, "--training.steps", "5", "--out", "run"]) == 0
    kept = yaml.safe_load((Run("run").path("recipe.yaml")).read_text())
    assert kept["data"]["views"] == {**kept["data"]["views"], "strong": "dropout", "strength": 0.4}
    assert (kept["encoder"], kept["frozen"], kept["embedding"]["draws"]) == ("words", True, 1)
