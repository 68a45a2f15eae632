"""The command line as a person meets it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

from csst.cli import main
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import KeptEvidence
from csst.rules import fit_point
from csst.runs.folder import Run
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

FAST = ["--training.steps", "20", "--data.validation", "30", "--data.test", "30"]

PLUGIN = """
import torch
from csst import Objective
from csst.data import Toy
from csst.recipes import recipe
from csst.selftraining import Confidence, Hard, Method

mine = Method("mine", "objective", lambda s: Hard(), lambda s: Confidence(0.5))

class Worst(Objective):
    def utility(self, c):
        return c.recall[2]

def net(shape, classes):
    return torch.nn.Linear(shape[0], classes)

def task(seed):
    return Toy("toy", labeled=60, unlabeled=90, validation=30, test=30).load(seed)

def my_recipe():
    return recipe("toy")
"""


@pytest.fixture
def arrays(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 30, 10])
    x = rng.standard_normal((100, 4)) + 2 * np.eye(4)[y]
    y[::2] = -1
    np.savez(
        tmp_path / "mine.npz",
        x=x,
        y=y,
        x_test=x,
        y_test=np.repeat([0, 1, 2], [60, 30, 10]),
        class_names=["a", "b", "=c"],
    )
    np.savez(tmp_path / "new.npz", x=x[:5])
    return tmp_path


def test_train_evaluate_and_predict(arrays, capsys, monkeypatch):
    monkeypatch.chdir(arrays)
    sentence = "max mean(recall) s.t. recall['=c'] >= 0.5"
    assert (
        main(
            [
                "train",
                "array",
                "--data.path",
                "mine.npz",
                "--learner",
                "network",
                "--training.steps",
                "30",
                "--out",
                "r",
                "--objective",
                sentence,
            ]
        )
        == 0
    )
    shown = capsys.readouterr()
    assert "csst-fixmatch" in shown.out
    assert "worst recall" in shown.err  # plain lines where there is no terminal
    assert json.loads((arrays / "r/metrics.json").read_text())["objective"] == sentence
    assert main(["evaluate", "r"]) == 0
    assert "equal to metrics.json" in capsys.readouterr().out
    assert main(["predict", "r", "new.npz", "-o", "out.csv", "--probabilities"]) == 0
    rows = list(csv.DictReader((arrays / "out.csv").open()))
    assert len(rows) == 5
    assert list(rows[0]) == ["prediction", "probability", "p(a)", "p(b)", "p('=c)"]
    for row in rows:
        probs = {name: float(row[f"p({name})"]) for name in ("a", "b", "'=c")}
        assert sum(probs.values()) == pytest.approx(1, abs=1e-4)
        assert row["prediction"] == max(probs, key=probs.get)
        assert float(row["probability"]) == max(probs.values())


def test_resume_config_and_print_config(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "toy", *FAST, "--method", "csl", "--seed", "2", "--out", "a"]) == 0
    assert main(["train", "--config", "a/recipe.yaml", "--out", "b"]) == 0
    one, two = (Run(tmp_path / d).metrics() for d in "ab")
    one.pop("seconds"), two.pop("seconds")
    assert one == two
    assert main(["train", "toy", *FAST, "--method", "csl", "--seed", "2", "--out", "a", "--resume"]) == 0
    assert main(["train", "toy", *FAST, "--method", "csl", "--seed", "3", "--out", "a", "--resume"]) == 2
    assert "seed: 2 → 3" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["train", "toy", "--training.steps", "7", "--print_config"])
    assert stopped.value.code in (0, None)
    assert "steps: 7" in capsys.readouterr().out


def test_plugins_by_name(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_plugins_for_csst.py").write_text(PLUGIN)
    ref = "my_plugins_for_csst:"
    words = [
        "--method",
        ref + "mine",
        "--objective",
        ref + "Worst",
        "--model.name",
        ref + "net",
        "--training.steps",
        "20",
    ]
    assert main(["train", "custom", "--data.source", ref + "task", *words, "--out", "a"]) == 0
    found = json.loads((tmp_path / "a/metrics.json").read_text())
    assert found["method"] == "mine"
    assert found["test"]["objective_value"] == found["test"]["recall"][2]
    assert main(["train", ref + "my_recipe", *FAST, "--out", "b"]) == 0
    assert main(["evaluate", "b"]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train"], "which recipe?"),
        (["train", "digitz"], "did you mean 'digits'"),
        (["trane"], "did you mean 'train'"),
        (["train", "toy", "--training.stepz", "3"], "stepz"),
        (["train", "toy", "--training.lr", "fast"], "training.lr"),
        (["train", "toy", "--training.lr", "-1"], "training.lr must be positive"),
        (["train", "toy", "--dual.schedule", "sometimes"], "sometimes"),
        (["train", "toy", "--method", "fixmtch"], "did you mean 'fixmatch'"),
        (["train", "toy", "--objective", "max min(recal)"], "did you mean 'recall'"),
        (["train", "toy", "--objective", "max recall['nobody']"], "there is no class 'nobody'"),
        (["train", "toy", "--model.name", "mpl"], "did you mean 'mlp'"),
        (["train", "toy", "--hardware.accelerator", "cuda"], "cannot be used here"),
        (["train", "array"], "--data.path"),
        (["train", "array", "--data.path", "missing.npz"], "no file"),
        (["train", "custom"], "--data.source"),
        (["train", "custom", "--data.source", "json:dumps"], "must return"),
        (["train", "--config", "missing.yaml"], "cannot be read"),
        (["evaluate", "nowhere"], "not a run"),
        (["predict", "nowhere", "x.npz", "-o", "y.csv"], "not a run"),
        (["objective", "max recall"], "vector"),
        (["objective", "min-recall", "--prior", "a,b"], "numbers"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_2(words, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("csst: ")
    assert says in error
    assert "Traceback" not in error
    assert not (tmp_path / "runs").exists()  # nothing is begun that cannot be carried out


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"training": {"step": 60}}, "unknown setting 'training.step'; did you mean 'training.steps'?"),
        ({"objectiv": "min-recall"}, "unknown setting 'objectiv'; did you mean 'objective'?"),
        ({"trainin": {"lr": 0.1}}, "unknown setting 'trainin.lr'; did you mean 'training.lr'?"),
        ({"steps": 60}, "unknown setting 'steps'; did you mean 'training.steps'?"),
        ({"zebra": 60}, "unknown setting 'zebra'; --help lists all"),
    ],
)
def test_a_mistyped_setting_gets_a_suggestion(settings, says, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(json.dumps({"name": "digits", **settings}))
    out = ["--out", str(tmp_path / "run")]
    assert main(["train", "--config", str(tmp_path / "mine.yaml"), *out]) == 2
    assert says in capsys.readouterr().err
    (group, value), *_ = settings.items()
    word = f"--{group}.{next(iter(value))}" if isinstance(value, dict) else f"--{group}"
    assert main(["train", "digits", word, "1", *out]) == 2
    assert says in capsys.readouterr().err


def test_explaining_an_objective(capsys):
    assert (
        main(["objective", "max min(recall) s.t. coverage >= 0.95/K", "--prior", "7,2,1", "--class-names", "a,b,c"])
        == 0
    )
    shown = capsys.readouterr().out
    for words in (
        "in words    make the lowest recall as high as possible, with coverage at least 0.95/K for every class\n",
        "(recall: the fraction of a class's examples that are predicted as it)",
        "maximizes   min(recall)",
        "subject to  coverage >= 0.95/K",
        "simplex",
        "λ ≥ 0",
        "recall['c']",
        "G at the start",
    ):
        assert words in shown
    for sentence, words in (
        ("max gmean(f1)", "make the geometric mean of f1 as high as possible"),
        ("max min(recall[head], recall[tail])", "the lowest of the average recall in head and the average recall in"),
        ("max recall[1] s.t. 0.1 <= coverage[2]", "recall of class 1 as high as possible, with coverage of class 2 at"),
        ("max accuracy s.t. 0.3 >= coverage", "with coverage at most 0.3 for every class"),
        ("max min(each(recall, tail))", "make the lowest recall in tail as high as possible"),
    ):
        assert main(["objective", sentence]) == 0
        assert words in capsys.readouterr().out
    assert main(["recipes"]) == 0
    assert "toy-overlap" in capsys.readouterr().out


def test_help_is_instant_because_nothing_heavy_is_imported():
    heavy = "[m for m in ('torch', 'numpy', 'rich') if m in sys.modules]"
    code = f"import sys; from csst.cli import main; main(['--help']); print({heavy})"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
    assert time.perf_counter() - start < 10  # a stalled import, not a benchmark


def test_a_warning_is_a_sentence_without_a_line_of_code(tmp_path, capsys, monkeypatch):
    def show(message, category, filename, lineno, file=None, line=None):  # as Python does; pytest would keep it
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))

    warnings.simplefilter("default")  # SHORT_RUN hides what this test is about
    monkeypatch.setattr(warnings, "showwarning", show)
    monkeypatch.chdir(tmp_path)
    shifted = ["--data.unlabeled_imbalance", "1", "--method", "la", "--training.steps", "100", "--model.name", "mlp"]
    assert main(["train", "digits", "--out", "r", *FAST, *shifted]) == 0
    said = capsys.readouterr().err
    warned = [line for line in said.splitlines() if "differently balanced" in line]
    assert len(warned) == 1
    assert warned[0].startswith("csst: the unlabeled data looks differently balanced")
    assert "add --deployment_prior unlabeled" in warned[0]
    for word in ("total variation", "unlabeled_estimate", "selftraining"):  # which mean nothing to a newcomer
        assert word not in said
    assert "UserWarning" not in said
    assert "results(" not in said


def test_a_reader_that_has_seen_enough_is_no_error():
    command = [sys.executable, "-m", "csst", "objective", "--words"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_groups_in_brackets_are_shown(tmp_path, monkeypatch, capsys):
    """To Rich, [head] would be markup."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", "toy", *FAST, "--objective", "max min(recall[head], recall[tail])", "--out", "a"]) == 0
    assert "for 'max min(recall[head], recall[tail])'" in " ".join(capsys.readouterr().out.split())


def test_another_sentence_is_warned_of_refused_or_may_abstain(arrays, monkeypatch, capsys):
    monkeypatch.chdir(arrays)
    assert main(["train", "array", "--data.path", "mine.npz", "--learner", "linear", "--out", "run"]) == 0
    command = ["predict", "run", "mine.npz", "-o", "out.csv", "--objective"]
    capsys.readouterr()
    assert main([*command, "max mean(recall) s.t. coverage >= 0.6"]) == 2
    assert "no classifier can meet coverage >= 0.6" in capsys.readouterr().err
    assert main(["frontier", "run", "--objective", "max mean(recall) s.t. coverage >= 0.6"]) == 0
    assert "cannot be met" in " ".join(capsys.readouterr().out.split())
    with pytest.warns(UserWarning, match="no rule was found that meets all constraints"):
        assert main([*command, "max mean(recall) s.t. recall >= 0.9999, precision >= 0.9999"]) == 0
    assert main([*command, "max min(recall) s.t. abstain <= 0.3"]) == 0
    with open("out.csv", newline="") as file:
        answers = [row["prediction"] for row in csv.DictReader(file)]
    assert 0 < answers.count("") < 0.5 * len(answers)


def test_predictions_for_another_sentence_are_those_of_its_point(arrays, monkeypatch, capsys):
    """What the page of a run offers: the command of a point decides as the point's numbers say."""
    monkeypatch.chdir(arrays)
    assert main(["train", "array", "--data.path", "mine.npz", "--learner", "linear", "--out", "run"]) == 0
    metrics = json.loads((arrays / "run" / "metrics.json").read_text())
    kept = KeptEvidence.read("run")
    labels = {}
    for point in (metrics["adjusted"]["trades"]["ways"]["lowest recall"][i] for i in (0, -1)):
        fitted = FittedModel.load("run").with_objective("run", point["sentence"])
        again = fit_point(kept.evidence, kept.prior, fitted.objective)
        assert again.estimate.confusion.recall.tolist() == pytest.approx(point["recall"], abs=1e-4)
        assert again.mean_recall == pytest.approx(point["mean_recall"], abs=1e-9)
        assert main(["predict", "run", "mine.npz", "-o", "out.csv", "--objective", point["sentence"]]) == 0
        with open("out.csv", newline="") as file:
            labels[point["sentence"]] = [row["prediction"] for row in csv.DictReader(file)]
        x = np.load("mine.npz")["x"].astype(np.float32)
        expected = again.rule.predict(FittedModel.load("run").probs(x)).tolist()
        assert labels[point["sentence"]] == [["a", "b", "'=c"][k] for k in expected]
    assert main(["predict", "run", "mine.npz", "-o", "out.csv", "--objective", "max recal"]) == 2
    assert "recal" in capsys.readouterr().err


def test_a_table_of_numbers_with_a_column_of_labels(tmp_path, monkeypatch, capsys):
    """The same rows as a CSV and as arrays are the same split and the same model; predictions go by column names."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 30, 10])
    x = (rng.standard_normal((100, 3)) + 2 * np.eye(3)[y]).astype(np.float32)
    hidden = np.where(np.arange(100) % 2, y, -1)
    np.savez("mine.npz", x=x, y=hidden, class_names=["cat", "dog", "owl"])
    lines = [
        f"{a!r},{['cat', 'dog', 'owl', ''][k]},{b!r},{c!r}" for (a, b, c), k in zip(x.tolist(), hidden, strict=True)
    ]
    (tmp_path / "mine.csv").write_text("a,kind,b,c\n" + "\n".join(lines) + "\n")
    table = ["--data.path", "mine.csv", "--data.label", "kind", "--learner", "linear", "--out", "table"]
    assert main(["train", "array", *table]) == 0
    assert main(["train", "array", "--data.path", "mine.npz", "--learner", "linear", "--out", "arrays"]) == 0
    runs = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("table", "arrays")]
    assert runs[0]["facts"]["columns"] == ["a", "b", "c"]
    assert runs[0]["split_hash"] == runs[1]["split_hash"]
    assert runs[0]["adjusted"]["rule"] == runs[1]["adjusted"]["rule"]
    (tmp_path / "new.csv").write_text("c,note,b,a\n" + "".join(f"{c!r},hm,{b!r},{a!r}\n" for a, b, c in x.tolist()))
    np.savez("new.npz", x=x)
    assert main(["predict", "table", "new.csv", "-o", "one.csv"]) == 0
    assert main(["predict", "arrays", "new.npz", "-o", "two.csv"]) == 0
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "two.csv").read_text()
    capsys.readouterr()
    assert main(["predict", "arrays", "new.csv", "-o", "three.csv"]) == 2
    assert "columns have no names" in capsys.readouterr().err
    (tmp_path / "bad.csv").write_text("a,kind\n1,cat\nred,dog\n")
    assert main(["train", "array", "--data.path", "bad.csv", "--out", "bad"]) == 2
    assert "label" in capsys.readouterr().err
