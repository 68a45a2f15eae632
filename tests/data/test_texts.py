"""Tasks of texts: who is labeled, unlabeled, validation and test, and what cannot be split."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
import torch

from csst.data.text.texts import LongTailTexts, TextFile, Texts, hash_texts
from csst.data.text.views import TextViews
from csst.errors import InputError
from csst.models import mlp
from csst.settings import Dual, Hardware, Settings, Training
from csst.training.trainer import Trainer
from tests.helpers.tiny_models import reviews

ODD = ["", "   ", "🙂🙃", "東京はとても静かでした", "مرحبا بالعالم", "\n\t", "a" * 50_000, "word " * 20_000, "ı̇ ﬁ ß"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CSST_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path):
    """Writes texts and labels to a CSV (or other columns), in the order given."""

    def write(texts, labels, name="t.csv", head=("text", "label")):
        with open(tmp_path / name, "w", newline="", encoding="utf-8") as out:
            csv.writer(out).writerows([head, *zip(texts, labels, strict=True)])
        return str(tmp_path / name)

    return write


@pytest.fixture
def pool(tmp_path):
    """120 + 120 training and 30 + 30 held-out reviews, five of which are training reviews too."""
    (texts, labels), (held, held_labels) = reviews(120, 120), reviews(30, 30, seed=1)
    held[:5] = texts[:5]
    for name, rows in (("train", zip(texts, labels, strict=True)), ("test", zip(held, held_labels, strict=True))):
        lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return LongTailTexts(
        str(tmp_path / "train.jsonl"), str(tmp_path / "test.jsonl"), labeled=20, unlabeled=80, imbalance=4
    )


def listed(labeled) -> list[tuple[str, int]]:
    return list(zip(labeled.inputs.texts, labeled.labels.tolist(), strict=True))


def test_texts_are_examples():
    texts = Texts(["a", "", "ccc"])
    assert len(texts) == 3
    assert texts[torch.tensor([2, 0, 2])] == ["ccc", "a", "ccc"]
    assert texts.lengths.tolist() == [1, 0, 3]


def test_a_file_of_labeled_and_unlabeled_texts(file):
    texts, labels = reviews(30, 10)
    some = [label if at % 2 else ("", "-1", "nan", "null")[at % 4] for at, label in enumerate(labels)]
    task = TextFile(file(texts, some), validation=0.4).load(3)
    assert (task.class_names, task.kind, task.name, task.test) == (("bad", "good"), "text", "t", None)
    assert task.input_shape == ()
    assert task.unlabeled.texts == texts[::2]
    known = {text: task.class_names.index(label) for text, label in zip(texts[1::2], labels[1::2], strict=True)}
    both = listed(task.labeled) + listed(task.validation)
    assert len(both) == len(set(both)) == len(known)  # disjoint, and nothing is lost
    assert dict(both) == known
    assert torch.bincount(task.validation.labels).tolist() == [2, 6]  # 40 % of 5 and of 15
    assert task.weak(["as it is"], torch.Generator()) == ["as it is"]


def test_the_split_follows_the_seed_and_its_hash_the_content(file):
    texts, labels = reviews(20, 20)
    labels[::3] = [""] * len(labels[::3])
    source = TextFile(file(texts, labels))
    one, again, other = (source.load(seed) for seed in (0, 0, 1))
    assert listed(one.validation) == listed(again.validation) != listed(other.validation)
    assert one.split_hash == again.split_hash != other.split_hash
    hashes = {one.split_hash}
    for at, (text, label) in enumerate([(texts[1] + ".", labels[1]), (texts[3] + "!", ""), (texts[1], "bad")]):
        changed_texts, changed_labels = list(texts), list(labels)
        place = 3 if label == "" else 1
        changed_texts[place], changed_labels[place] = text, label
        hashes.add(TextFile(file(changed_texts, changed_labels, f"{at}.csv")).load(0).split_hash)
    assert len(hashes) == 4
    assert hash_texts(["ab", "c"]) != hash_texts(["a", "bc"]) != hash_texts(["a"], ["bc"])


def test_a_changed_label_changes_the_hash(file):
    texts, labels = reviews(5, 5)
    names, hashes = ("t.csv", "validation.csv", "test.csv"), set()
    for changed in (None, *names):
        written = {name: [*labels[:-1], "good" if name == changed else "bad"] for name in names}
        paths = [file(texts, written[name], name) for name in names]
        hashes.add(TextFile(paths[0], validation_path=paths[1], test_path=paths[2]).load(0).split_hash)
    assert len(hashes) == 4


def test_files_of_their_own_for_unlabeled_validation_and_test_texts(file):
    texts, labels = reviews(8, 8)
    more, held = reviews(5, 5, seed=1), reviews(4, 3, seed=2)
    task = TextFile(
        file(texts, labels),
        unlabeled_path=file(more[0], more[1], "more.csv"),  # its labels are not looked at
        validation_path=file(*held, "validation.csv"),
        test_path=file(*reviews(2, 6, seed=3), "test.csv"),
    ).load(0)
    assert task.labeled.inputs.texts == texts
    assert task.unlabeled.texts == more[0]
    assert task.validation.inputs.texts == held[0]
    assert torch.bincount(task.validation.labels).tolist() == [3, 4]
    assert torch.bincount(task.test.labels).tolist() == [6, 2]
    only_texts = file([[text] for text in more[0]], [""] * 10, "x.csv")  # a file without a label column will do
    with open(only_texts, "w", encoding="utf-8") as out:
        out.write("text\n" + "\n".join(more[0]))
    mixed = TextFile(file(texts, [*labels[:-1], ""]), unlabeled_path=only_texts).load(0)
    assert mixed.unlabeled.texts == [texts[-1], *more[0]]


def test_other_columns_and_a_numeric_order_of_classes(file):
    texts, _ = reviews(9, 9)
    path = file(texts, [9, 10, 2] * 6, head=("review", "stars"))
    task = TextFile(path, text="review", label="stars").load(0)
    assert task.class_names == ("2", "9", "10")
    with pytest.raises(InputError, match="no column 'text'"):
        TextFile(path).load(0)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["a"] * 6, "must hold labels of at least two classes; found a"),
        ([""] * 6, "found no label at all"),
        (["a", "a", "a", "a", "a", "b"], "class 'b' has 1 labeled examples, and holding some out"),
    ],
)
def test_classes_that_cannot_be_learned(file, labels, sentence):
    with pytest.raises(InputError, match=sentence):
        TextFile(file([str(at) for at in range(6)], labels)).load(0)


def test_held_out_files_must_have_the_same_classes(file):
    texts, labels = reviews(6, 6)
    path = file(texts, labels)
    for name in ("validation_path", "test_path"):
        wrong = {name: file(["x", "y", "z"], ["good", "Good", ""], "held.csv")}
        with pytest.raises(InputError, match=r"needs a label; 1 of the \d rows of .*held\.csv have none"):
            TextFile(path, **wrong).load(0)
        other = {name: file(["x", "y"], ["good", "Good"], "held.csv")}
        with pytest.raises(InputError, match=r"held\.csv has labels that the model does not know: \['Good'\]"):
            TextFile(path, **other).load(0)
        with pytest.raises(InputError, match=r"classes.*bad.*have none in the"):
            TextFile(path, **{name: file(["x", "y"], ["good", "good"], "held.csv")}).load(0)
    with pytest.raises(InputError, match="held-out fraction must lie between 0 and 1; found 1"):
        TextFile(path, validation=1.0).load(0)
    with pytest.raises(InputError, match=r"csst train text --data.path FILE\.csv"):
        TextFile().load(0)


def test_a_class_may_be_called_none(file):
    texts, _ = reviews(8, 8)
    task = TextFile(file(texts, ["none", "favor"] * 8), validation_path=file(["x", "y"], ["none", "favor"], "v.csv"))
    assert task.load(0).class_names == ("favor", "none")


def test_odd_texts_stay_as_they_are_and_have_strong_views(file):
    texts = [text for text in ODD for _ in range(2)] + ["fine words here"] * 6  # and duplicates
    labels = ["a", "b"] * (len(texts) // 2)
    path = file(texts + ODD, labels + [""] * len(ODD))
    for strong in ("tfidf", "dropout", "none"):
        task = TextFile(path, views=TextViews(strong)).load(0)
        assert task.unlabeled.texts == ODD
        views = task.strong(ODD, torch.Generator().manual_seed(0))
        assert len(views) == len(ODD)
        assert views[0] == ""
        assert strong != "none" or views == ODD
    assert sorted(task.labeled.inputs.texts + task.validation.inputs.texts) == sorted(texts)


def test_texts_that_are_held_out_and_trained_on_are_counted(file):
    texts = ["same", "same", "same", "same", *reviews(6, 6)[0]]
    task = TextFile(file(texts, ["a", "a", "b", "b"] * 4)).load(0)
    trained = {*task.labeled.inputs.texts, *task.unlabeled.texts}
    twice = sum(text in trained for text in task.validation.inputs.texts)
    assert task.facts == {"held_out_texts_also_in_training": twice}
    held = file(["same", "same", "new"], ["a", "b", "a"], "held.csv")
    task = TextFile(file(texts, ["a", "a", "b", "b"] * 4), validation_path=held, test_path=held).load(0)
    assert task.facts == {"held_out_texts_also_in_training": 4}


def test_the_strong_view_knows_training_texts_only(file):
    words, labels = [f"train{at}" for at in range(40)], ["a", "b"] * 20
    held = file([f"held{at}" for at in range(40)], labels, "held.csv")
    source = TextFile(file(words, labels), validation_path=held, test_path=held, views=TextViews(strength=1.0))
    seen = {*" ".join(source.load(0).strong(["x x x y z w v " * 50] * 20, torch.Generator())).split()}
    assert seen & set(words)
    assert not {word for word in seen if word.startswith("held")}


# ── Methods without unlabeled texts ──


def fast(task, method):
    settings = Settings(training=Training(4, 4, 4), dual=Dual(steps_per_update=2), hardware=Hardware(threads=1))
    numbers = replace(
        task,
        labeled=replace(task.labeled, inputs=torch.randn(len(task.labeled), 4)),
        validation=replace(task.validation, inputs=torch.randn(len(task.validation), 4)),
        unlabeled=torch.zeros(len(task.unlabeled), 4),
    )
    return Trainer(numbers, mlp((4,), task.classes, 8, 1), "min-recall", method, settings)


def test_no_unlabeled_texts(file):
    task = TextFile(file(*reviews(8, 8))).load(0)
    assert len(task.unlabeled) == 0
    assert len(list(fast(task, "csl").run())) == 3
    with pytest.raises(InputError, match="needs unlabeled examples; there are none: use csl, la or erm"):
        fast(task, "csst")


# ── Long tails ──


def test_a_long_tail_has_the_counts_and_nothing_twice(pool):
    task = pool.load(0)
    assert task.class_names == ("bad", "good")
    assert task.train_counts.tolist() == [20, 5]
    assert torch.bincount(task.unlabeled_truth).tolist() == [80, 20]
    # 30 bad and 25 new good held-out reviews, halved
    assert torch.bincount(task.validation.labels).tolist() == [15, 12]
    assert torch.bincount(task.test.labels).tolist() == [15, 13]
    parts = [task.labeled.inputs.texts, task.unlabeled.texts, task.validation.inputs.texts, task.test.inputs.texts]
    joined = [text for part in parts for text in part]
    assert len(joined) == len(set(joined))
    assert task.facts == {"held_out_texts_also_in_training_left_out": 5}
    truth = dict(zip(*reviews(120, 120), strict=True)) | dict(zip(*reviews(30, 30, seed=1), strict=True))
    labels = [*task.labeled.labels, *task.unlabeled_truth, *task.validation.labels, *task.test.labels]
    assert [truth[text] for text in joined] == [task.class_names[label] for label in labels]


def test_a_long_tail_follows_seed_and_settings(pool):
    one, again = pool.load(0), pool.load(0)
    assert one.split_hash == again.split_hash
    assert one.unlabeled.texts == again.unlabeled.texts
    others = [pool.load(1), replace(pool, labeled=19).load(0), replace(pool, validation=5).load(0)]
    assert len({one.split_hash, *(other.split_hash for other in others)}) == 4
    half = replace(pool, labeled_fraction=0.5).load(0)
    assert half.unlabeled.texts == one.unlabeled.texts
    assert torch.bincount(half.labeled.labels).tolist() == [10, 2]
    sized = replace(pool, validation=4, test=6).load(0)
    assert torch.bincount(sized.validation.labels).tolist() == [4, 4]
    assert torch.bincount(sized.test.labels).tolist() == [6, 6]


def test_long_tails_that_cannot_be_cut(pool, tmp_path):
    for changes, sentence in (
        ({"path": ""}, "needs the texts: --data.path"),
        ({"test_path": ""}, "--data.test_path FILE is needed too"),
        ({"classes": 14}, "has 2 classes, but this recipe is for 14"),
        ({"labeled": 60, "unlabeled": 61}, "the split needs 121 examples of class 0 .*; the pool has 120"),
        ({"validation": 20, "test": 20}, "has 30 held-out examples; 20 for validation and 20 for test"),
        ({"test_path": pool.path}, "every text of .* is a training text too"),
    ):
        with pytest.raises(InputError, match=sentence):
            replace(pool, **changes).load(0)
    unknown = r"odd\.jsonl has labels that the model does not know: \['great'\]; known are \['bad', 'good'\]"
    missing = r"needs a label; 1 of the 1 rows of .*odd\.jsonl have none"
    for label, found in (("great", unknown), ("", missing), (None, missing)):
        (tmp_path / "odd.jsonl").write_text(json.dumps({"text": "x", "label": label}))
        with pytest.raises(InputError, match=found):
            replace(pool, test_path=str(tmp_path / "odd.jsonl")).load(0)
    (tmp_path / "odd.jsonl").write_text("\n".join(json.dumps({"text": str(at), "label": "bad"}) for at in range(4)))
    with pytest.raises(InputError, match=r"classes.*good.*have none in the"):
        replace(pool, test_path=str(tmp_path / "odd.jsonl")).load(0)


def test_a_folder_of_datasets_with_both_splits(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra hf is not installed")
    datasets.disable_progress_bars()
    features = datasets.Features(
        {"content": datasets.Value("string"), "label": datasets.ClassLabel(names=["good", "bad"])}
    )
    both = {}
    for name, (texts, labels) in (("train", reviews(40, 40)), ("test", reviews(9, 9, seed=1))):
        rows = {"content": texts, "label": [int(label == "bad") for label in labels]}
        both[name] = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict(both).save_to_disk(tmp_path / "both")
    source = LongTailTexts(text="content", classes=2, labeled=8, unlabeled=16, imbalance=2)
    for path in (f"hf:{tmp_path}/both", f"{tmp_path}/both"):
        assert replace(source, path=path).load(0).train_counts.tolist() == [8, 4]
    both["train"].save_to_disk(tmp_path / "one")  # a folder without splits cannot be both
    with pytest.raises(InputError, match=r"every text of .* is a training text too"):
        replace(source, path=f"hf:{tmp_path}/one").load(0)
