"""Image sets that fit in memory: CIFAR's pickles (and what hides in them), `.npz` files, Hugging Face datasets."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from csst.data.images.arrays import ImageArrays, as_images
from csst.data.splits import split_held_out
from csst.errors import InputError

Image = pytest.importorskip("PIL.Image")


def pixels(labels, channels=3, side=32, seed=0):
    """Images (N, H, W, C) whose first pixel tells their class and second their position."""
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), side, side, channels), dtype=np.uint8)
    images[:, 0, 0, 0] = labels
    images[:, 0, 1, 0] = np.arange(len(labels)) % 256
    return images


def cifar(folder, classes, per_class=20, protocol=2):
    """CIFAR in its official format, small: the same files, keys and layout."""
    key = "label" if classes == 10 else "fine_label"
    train = np.tile(np.arange(classes), per_class)
    test = np.tile(np.arange(classes), 4)

    def write(name, labels, seed):
        data = pixels(labels, seed=seed).transpose(0, 3, 1, 2).reshape(-1, 3072)
        stored = {b"data": data, f"{key}s".encode(): labels.tolist(), b"filenames": [b"x.png"] * len(labels)}
        (folder / name).write_bytes(pickle.dumps(stored, protocol=protocol))

    if classes == 10:
        folder = folder / "cifar-10-batches-py"
        folder.mkdir(parents=True)
        for i, piece in enumerate(np.array_split(train, 5)):
            write(f"data_batch_{i + 1}", piece, i)
        write("test_batch", test, 9)
        meta = "batches.meta"
    else:
        folder = folder / "cifar-100-python"
        folder.mkdir(parents=True)
        write("train", train, 0)
        write("test", test, 9)
        meta = "meta"
    names = [f"name{c}".encode() for c in range(classes)]
    (folder / meta).write_bytes(pickle.dumps({f"{key}_names".encode(): names}, protocol=protocol))
    return folder


def npz(path, classes=3, per_class=30, channels=3, side=12, **changed):
    train, test = np.tile(np.arange(classes), per_class), np.tile(np.arange(classes), 6)
    arrays = {"x_train": pixels(train, channels, side), "y_train": train}
    arrays |= {"x_test": pixels(test, channels, side, seed=1), "y_test": test, **changed}
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return str(path)


def agree(part):
    """The class written into the pixels is the label: images and labels stayed together."""
    return torch.equal(part.inputs[:, 0, 0, 0].long(), part.labels)


SMALL = {"labeled": 8, "unlabeled": 10, "imbalance": 4.0}


def test_the_hash_is_of_the_pixels_and_labels_that_are_used(tmp_path):
    labels = np.tile(np.arange(3), 30)
    same = ImageArrays(npz(tmp_path / "a.npz"), **SMALL).load(0)
    fewer = ImageArrays(npz(tmp_path / "a.npz"), **SMALL, labeled_fraction=0.5).load(0)
    assert torch.equal(fewer.unlabeled, same.unlabeled)
    assert len(fewer.labeled) < len(same.labeled)
    assert ImageArrays(npz(tmp_path / "b.npz"), **SMALL).load(0).split_hash == same.split_hash
    for part, changed in (("train", pixels(labels, 3, 12)), ("test", pixels(np.tile(np.arange(3), 6), 3, 12, seed=1))):
        changed[:, 5, 5] ^= 1  # one pixel of every image
        other = ImageArrays(npz(tmp_path / f"{part}.npz", **{f"x_{part}": changed}), **SMALL).load(0)
        assert other.split_hash != same.split_hash
    moved = np.roll(labels, 1)
    assert ImageArrays(npz(tmp_path / "c.npz", y_train=moved), **SMALL).load(0).split_hash != same.split_hash


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_cifar_from_the_official_pickles(tmp_path, classes, protocol):
    folder = cifar(tmp_path, classes, protocol=protocol)
    task = ImageArrays(str(folder), **SMALL).load(0)
    assert task.kind == "image"
    assert task.name == f"cifar-{classes}"
    assert task.class_names == tuple(f"name{c}" for c in range(classes))
    assert task.input_shape == (3, 32, 32)
    assert task.labeled.inputs.dtype == torch.uint8
    assert task.train_counts.tolist() == [max(1, int(8 * 4 ** (-c / (classes - 1)) + 1e-9)) for c in range(classes)]
    assert all(agree(part) for part in (task.labeled, task.validation, task.test))
    assert torch.equal(task.unlabeled[:, 0, 0, 0].long(), task.unlabeled_truth)
    assert torch.bincount(task.validation.labels).tolist() == torch.bincount(task.test.labels).tolist() == [2] * classes
    above = ImageArrays(str(tmp_path), classes=classes, **SMALL).load(0)
    assert above.split_hash == task.split_hash
    assert torch.equal(above.labeled.inputs, task.labeled.inputs)
    assert ImageArrays(str(folder), **SMALL).load(1).split_hash != task.split_hash


def test_rows_and_channels_are_in_cifars_order(tmp_path):
    folder = cifar(tmp_path, 10)
    task = ImageArrays(str(folder), **SMALL).load(0)
    written = pixels(np.tile(np.arange(10), 4), seed=9)
    assert sorted(x.tobytes() for x in torch.cat([task.validation.inputs, task.test.inputs]).numpy()) == sorted(
        x.transpose(2, 0, 1).tobytes() for x in written
    )


def test_two_cifars_in_one_folder_need_a_word(tmp_path):
    cifar(tmp_path, 10)
    cifar(tmp_path, 100)
    with pytest.raises(InputError, match="found both: set classes = 10 or classes = 100"):
        ImageArrays(str(tmp_path), **SMALL).load(0)
    assert ImageArrays(str(tmp_path), classes=100, **SMALL).load(0).classes == 100


class Evil:
    def __init__(self, call, *arguments):
        self.reduced = call, arguments

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("name", ["data_batch_3", "batches.meta", "test_batch"])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_no_code_in_a_pickle_runs(tmp_path, name, protocol):
    folder, sign = cifar(tmp_path, 10), tmp_path / "ran"
    for evil in (Evil(os.system, f"touch {sign}"), Evil(eval, f"open({str(sign)!r}, 'w')"), Evil(open, str(sign), "w")):
        dumped = pickle.dumps({b"data": evil}, protocol=protocol)
        (folder / name).write_bytes(dumped)
        with pytest.raises(InputError, match=r"asks for .*only arrays and plain containers are allowed"):
            ImageArrays(str(folder), **SMALL).load(0)
        assert not sign.exists()
    pickle.loads(dumped)  # the file is a real attack
    assert sign.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", pickle.dumps([1, 2]), pickle.dumps({b"data": np.zeros((4, 3072), np.uint8)})[:-200]],
)
def test_damaged_pickles(tmp_path, content):
    folder = cifar(tmp_path, 10)
    (folder / "data_batch_2").write_bytes(content)
    with pytest.raises(InputError, match="data_batch_2 cannot be read as one of CIFAR's files"):
        ImageArrays(str(folder), **SMALL).load(0)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({b"data": np.zeros((4, 100), np.uint8), b"labels": [0] * 4}, "uint8 rows of 3 x 32 x 32"),
        ({b"labels": [0] * 4}, "uint8 rows of 3 x 32 x 32"),
        ({b"data": np.zeros((4, 3072), np.uint8), b"labels": [0] * 3}, "one integer for each of its 4 images"),
        ({b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, "3"]}, "one integer for each"),
        ({b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, 10]}, r"must lie in 0 \.\. 9"),
    ],
)
def test_wrong_pickles(tmp_path, stored, message):
    folder = cifar(tmp_path, 10)
    (folder / "data_batch_2").write_bytes(pickle.dumps(stored))
    with pytest.raises(InputError, match=message):
        ImageArrays(str(folder), **SMALL).load(0)


def test_an_incomplete_cifar(tmp_path):
    folder = cifar(tmp_path, 10)
    (folder / "data_batch_4").unlink()
    with pytest.raises(InputError, match="lacks data_batch_4: unpack the archive again"):
        ImageArrays(str(folder)).load(0)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "N1HW", "NHW1", "NHW", "keras labels"])
def test_npz_layouts(tmp_path, layout):
    changed = {}
    path = npz(tmp_path / "a.npz", channels=1 if "1" in layout or layout == "NHW" else 3)
    with np.load(path) as stored:
        for key in ("x_train", "x_test"):
            if layout in ("NCHW", "N1HW"):
                changed[key] = stored[key].transpose(0, 3, 1, 2)
            if layout == "NHW":
                changed[key] = stored[key][..., 0]
        if layout == "keras labels":
            changed = {key: stored[key][:, None] for key in ("y_train", "y_test")}
    plain = ImageArrays(path, **SMALL).load(3)
    task = ImageArrays(npz(tmp_path / "b.npz", channels=plain.input_shape[0], **changed), **SMALL).load(3)
    assert task.name == "b"
    assert task.input_shape == ((1, 12, 12) if "1" in layout or layout == "NHW" else (3, 12, 12))
    assert agree(task.labeled)
    assert torch.equal(task.unlabeled, plain.unlabeled)
    weak = task.weak(task.unlabeled, torch.Generator().manual_seed(0))
    strong = task.strong(task.unlabeled, torch.Generator().manual_seed(0))
    assert weak.shape == strong.shape == task.unlabeled.shape
    assert not torch.equal(weak, strong)


def test_names_counts_and_mismatched_unlabeled(tmp_path):
    path = npz(tmp_path / "a.npz")
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **arrays, classes=np.array(["ant", "bee", "cat"]), index_train=np.arange(90))
    task = ImageArrays(
        path, labeled=8, unlabeled=16, imbalance=4, unlabeled_imbalance=16, unlabeled_reversed=True
    ).load(0)
    assert task.class_names == ("ant", "bee", "cat")
    assert task.train_counts.tolist() == [8, 4, 2]
    assert torch.bincount(task.unlabeled_truth).tolist() == [1, 4, 16]
    task = ImageArrays(path, validation=1, test=4, **SMALL).load(0)
    assert torch.bincount(task.validation.labels).tolist() == [1, 1, 1]
    assert torch.bincount(task.test.labels).tolist() == [4, 4, 4]


def test_no_image_has_two_roles(tmp_path):
    path = npz(tmp_path / "a.npz", per_class=60)
    task = ImageArrays(path, labeled=25, unlabeled=35, imbalance=1).load(0)
    seen = Counter(x.tobytes() for x in torch.cat([task.labeled.inputs, task.unlabeled]).numpy())
    assert len(seen) == 180
    assert set(seen.values()) == {1}
    held = Counter(x.tobytes() for x in torch.cat([task.validation.inputs, task.test.inputs]).numpy())
    assert len(held) == 18


def test_halves_are_per_class_and_seeded():
    labels = np.array([0] * 10 + [1] * 5 + [2] * 2)
    validation, test = split_held_out(labels, 0, ("a", "b", "c"))
    assert np.bincount(labels[validation]).tolist() == [5, 2, 1]
    assert np.bincount(labels[test]).tolist() == [5, 3, 1]
    assert sorted([*validation, *test]) == list(range(17))
    assert not np.array_equal(split_held_out(labels, 1, ("a", "b", "c"))[0], validation)
    with pytest.raises(
        InputError, match="class 'b' has 5 held-out examples; 4 for validation and 2 for test are needed"
    ):
        split_held_out(labels, 0, ("a", "b", "c"), validation=4, test=2)
    with pytest.raises(InputError, match="class 'b' has 1 held-out examples; 1 for validation and 1 for test"):
        split_held_out(np.array([0, 0, 1]), 0, ("a", "b"))


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"x_train": np.zeros((90, 12, 12, 3))}, {}, "x_train must be uint8, pixels 0 .. 255; found float64"),
        ({"x_train": np.zeros((90, 12, 12, 4), np.uint8)}, {}, r"C = 1 or 3; found \(90, 12, 12, 4\)"),
        ({"x_train": np.zeros((0, 12, 12, 3), np.uint8)}, {}, "x_train must hold images"),
        ({"x_test": np.zeros((18, 8, 8, 3), np.uint8)}, {}, "inputs of one shape"),
        ({"x_test": np.zeros((17, 12, 12, 3), np.uint8)}, {}, "found 17 images and 18 in y_test"),
        ({"y_train": np.tile([0, 1, -1], 30)}, {}, "training labels must lie in 0"),
        ({"y_train": np.tile([0, 1, 1], 30)}, {}, r"classes \['2'\] have none in the training examples"),
        ({"y_test": np.tile([0, 1, 1], 6)}, {}, r"classes \['2'\] have none in the test examples"),
        ({"y_train": np.tile([0.0, 1, 2], 30)}, {}, "y_train must be a vector of integers"),
        ({"y_test": np.zeros(0, np.int64)}, {}, "found 18 images and 0 in y_test"),
        ({"y_test": None}, {}, "lacks y_test"),
        ({"x_trian": np.zeros(3)}, {}, "did you mean 'x_train'"),
        ({"classes": np.array(["a", "b"])}, {}, r"training labels must lie in 0 \.\. 1"),
        ({}, {"classes": 10}, "has 3 classes, but classes says 10"),
        ({}, {"labeled": 100}, "the split needs"),
        ({}, {"imbalance": 0.5}, "imbalance >= 1"),
        ({}, {"padding": -1}, "padding"),
    ],
)
def test_wrong_npz(tmp_path, changed, options, message):
    train, test = np.tile(np.arange(3), 30), np.tile(np.arange(3), 6)
    arrays = {"x_train": pixels(train, side=12), "y_train": train, "x_test": pixels(test, side=12), "y_test": test}
    np.savez(tmp_path / "a.npz", **{k: v for k, v in {**arrays, **changed}.items() if v is not None})
    with pytest.raises(InputError, match=message):
        ImageArrays(str(tmp_path / "a.npz"), **{**SMALL, **options}).load(0)


def test_a_misspelled_source_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"data\.source must be one of auto, .*; did you mean 'pickles'"):
        ImageArrays("x", source="pickle")


def test_wrong_paths(tmp_path):
    for path, message in (
        ("", "need a path"),
        (str(tmp_path / "no.npz"), "there is no file"),
        (str(tmp_path), "found none"),
    ):
        with pytest.raises(InputError, match=message):
            ImageArrays(path).load(0)
    whole = Path(npz(tmp_path / "a.npz")).read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2], whole[:500] + b"\0" * 200 + whole[700:]):
        (tmp_path / "b.npz").write_bytes(content)
        with pytest.raises(InputError, match=r"b\.npz"):
            ImageArrays(str(tmp_path / "b.npz")).load(0)
    np.savez(tmp_path / "c.npz", x_train=np.array([{}], dtype=object), y_train=[0], x_test=[0], y_test=[0])
    with pytest.raises(InputError, match="plain arrays"):
        ImageArrays(str(tmp_path / "c.npz")).load(0)
    with pytest.raises(InputError, match=r"x must hold images \(N, H, W\)"):
        as_images(np.zeros((3, 4), np.uint8), "x")


# ── Hugging Face ──


def without_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)


def fake(monkeypatch, stored=None, error=None):
    """The part of `datasets` that is used, for machines that do not have it."""

    def load(name, split=None):
        if error is not None:
            raise error
        return stored

    package = SimpleNamespace(load_dataset=load, load_from_disk=load, config=SimpleNamespace(HF_HUB_OFFLINE=False))
    monkeypatch.setitem(sys.modules, "datasets", package)


class Split(dict):
    def __init__(self, labels, kind="fine_label", side=12):
        images = [Image.fromarray(x) for x in pixels(labels, side=side)]
        super().__init__(img=images, coarse_label=[0] * len(labels), **{kind: labels.tolist()})
        label = type("ClassLabel", (), {"names": ["ant", "bee", "cat"]})
        coarse = type("ClassLabel", (), {"names": ["animal"]})
        self.features = {"img": type("Image", (), {})(), "coarse_label": coarse(), kind: label()}


def test_hugging_face_columns(monkeypatch):
    train, test = np.tile(np.arange(3), 30), np.tile(np.arange(3), 6)
    fake(monkeypatch, {"train": Split(train), "test": Split(test)})
    task = ImageArrays("hf:someone/cifar", **SMALL).load(0)
    assert (task.name, task.class_names, task.input_shape) == ("cifar", ("ant", "bee", "cat"), (3, 12, 12))
    assert agree(task.labeled)
    assert ImageArrays("someone/cifar", source="huggingface", **SMALL).load(0).split_hash == task.split_hash
    fake(monkeypatch, {"train": Split(train)})
    with pytest.raises(InputError, match="needs the splits train and test"):
        ImageArrays("hf:x").load(0)
    fake(monkeypatch, {"train": SimpleNamespace(features={"text": 1}), "test": {}})
    with pytest.raises(InputError, match="a column of images and one of class labels; found text"):
        ImageArrays("hf:x").load(0)
    mixed = Split(train)
    mixed["img"][4] = mixed["img"][4].resize((9, 9))
    fake(monkeypatch, {"train": mixed, "test": Split(test)})
    with pytest.raises(InputError, match="must have one size and mode; found 2 kinds"):
        ImageArrays("hf:x").load(0)


def test_hugging_face_without_package_or_network(monkeypatch):
    without_datasets(monkeypatch)
    with pytest.raises(InputError, match=r"pip install csst-learn\[hf\]"):
        ImageArrays("hf:cifar10").load(0)
    fake(monkeypatch, error=RuntimeError("Couldn't reach 'cifar10' on the Hub\nmore"))
    with pytest.raises(InputError, match=r"that the Hugging Face hub gives: Couldn't reach 'cifar10' on the Hub$"):
        ImageArrays("hf:cifar10").load(0)


@pytest.mark.parametrize("way", ["saved", "parquet"])
def test_hugging_face_for_real(tmp_path, way):
    datasets = pytest.importorskip("datasets")
    train, test = np.tile(np.arange(3), 30), np.tile(np.arange(3), 6)
    features = datasets.Features(img=datasets.Image(), label=datasets.ClassLabel(names=["ant", "bee", "cat"]))

    def split(labels):
        images = [Image.fromarray(x) for x in pixels(labels, side=12)]
        return datasets.Dataset.from_dict({"img": images, "label": labels.tolist()}, features=features)

    if way == "saved":
        datasets.DatasetDict(train=split(train), test=split(test)).save_to_disk(tmp_path / "d")
    else:
        (tmp_path / "d").mkdir()
        for name, labels in (("train", train), ("test", test)):
            split(labels).to_parquet(tmp_path / "d" / f"{name}-00000-of-00001.parquet")
    task = ImageArrays(f"hf:{tmp_path / 'd'}", **SMALL).load(0)
    assert task.class_names == ("ant", "bee", "cat")
    assert agree(task.labeled)
    assert agree(task.test)


def test_a_folder_without_splits_or_rows_gets_a_sentence(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(img=datasets.Image(), label=datasets.ClassLabel(names=["ant", "bee", "cat"]))
    labels = np.arange(3)
    images = [Image.fromarray(x) for x in pixels(labels, side=12)]
    one = datasets.Dataset.from_dict({"img": images, "label": labels.tolist()}, features=features)
    one.save_to_disk(tmp_path / "one")
    with pytest.raises(InputError, match="holds one data set without splits, and images need train and test"):
        ImageArrays(f"hf:{tmp_path / 'one'}").load(0)
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="other is not a folder of rows that datasets' save_to_disk wrote, nor of"):
        ImageArrays(f"hf:{tmp_path / 'other'}").load(0)


def test_arrays_alone_import_no_pillow_and_no_datasets(tmp_path, monkeypatch):
    for name in list(sys.modules):
        if name.split(".")[0] in ("csst", "PIL", "datasets"):
            monkeypatch.delitem(sys.modules, name)
    for name in ("PIL", "datasets"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    arrays = importlib.import_module("csst.data.images.arrays")  # anew
    assert arrays.ImageArrays is not ImageArrays
    assert len(arrays.ImageArrays(npz(tmp_path / "a.npz"), labeled=8, unlabeled=10, imbalance=4).load(0).labeled) == 14
