"""Readers of whole image sets: `.npz` files, CIFAR's official pickles (no code in them can run), Hugging Face.

A reader returns the arrays x_train, y_train, x_test, y_test, the class names (empty if unknown) and a name.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from csst.data.huggingface import load_datasets
from csst.data.npz import read_npz
from csst.errors import InputError

Stored = tuple[dict[str, np.ndarray], tuple[str, ...], str]
NEEDED = ("x_train", "y_train", "x_test", "y_test")
# The indices are for people, not read here; `track` is read by data that has tracks.
KEYS = (*NEEDED, "classes", "class_names", "track", "index_train", "index_test")
CIFAR = {  # folder: (training files, test file, file of names, key of the labels)
    "cifar-10-batches-py": ([f"data_batch_{i}" for i in range(1, 6)], "test_batch", "batches.meta", "label"),
    "cifar-100-python": (["train"], "test", "meta", "fine_label"),
}
# What rebuilds an array, asked of NumPy itself because the home of these functions differs between its versions.
_ARRAY = {
    "_reconstruct": np.zeros(0).__reduce__()[0],
    "_frombuffer": np.zeros(1).__reduce_ex__(5)[0],
    "ndarray": np.ndarray,
    "dtype": np.dtype,
}


def read_npz_images(path: str) -> Stored:
    """Read an `.npz` of images, with x_train, y_train, x_test, y_test and optionally classes and track."""
    arrays = read_npz(path, KEYS, NEEDED)
    names = arrays.get("classes", arrays.get("class_names", np.zeros(0, dtype=str)))
    return arrays, tuple(map(str, names.reshape(-1))), Path(path).stem


# ── CIFAR ──


def read_cifar(path: str, classes: int = 0) -> Stored:
    """Read CIFAR-10 or CIFAR-100 from the official python version: its folder, or the one above it."""
    places = {}
    for name, (_, _, meta, _) in CIFAR.items():
        folders = [folder for folder in (Path(path), Path(path, name)) if (folder / meta).is_file()]
        if folders and (not classes or f"-{classes}-" in name):
            places[name] = folders[0]
    if len(places) != 1:
        restriction = f" with {classes} classes" if classes else ""
        raise InputError(
            f"{path!r} must be or hold one of the folders {' and '.join(CIFAR)} of CIFAR's python version; "
            + ("found both: set classes = 10 or classes = 100" if places else f"found none{restriction}")
        )
    ((name, folder),) = places.items()
    train, test, meta, key = CIFAR[name]
    missing_files = [file for file in (*train, test) if not (folder / file).is_file()]
    if missing_files:
        raise InputError(f"{folder} lacks {', '.join(missing_files)}: unpack the archive again")
    names = read_pickle(folder / meta).get(f"{key}_names", [])
    pieces = [_read_batch(folder / file, f"{key}s") for file in train]
    arrays = (*(np.concatenate(part) for part in zip(*pieces, strict=True)), *_read_batch(folder / test, f"{key}s"))
    words = tuple(word.decode() if isinstance(word, bytes) else str(word) for word in names)
    return dict(zip(NEEDED, arrays, strict=True)), words, "-".join(name.split("-")[:2])


def read_pickle(path: Path) -> dict[str, Any]:
    """Read one of CIFAR's pickled dictionaries, its keys as text; no code in the file can run."""
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, encoding="bytes").load()
        return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(f"{path} cannot be read as one of CIFAR's files: {error}") from None


class _ArraysOnly(pickle.Unpickler):
    """Reads plain containers and NumPy arrays; a pickle that names anything else is refused before it can run."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in _ARRAY:
            return _ARRAY[name]
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in the old protocols
            return _encode_latin1
        raise InputError(f"it asks for {module}.{name}, and only arrays and plain containers are allowed")


def _encode_latin1(text: str, encoding: str) -> bytes:
    return text.encode("latin1")


def _read_batch(path: Path, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the images (N, 3, 32, 32) and the labels (N,) of one file."""
    content = read_pickle(path)
    data = content.get("data")
    labels = content.get(key)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise InputError(f"{path} must hold 'data', uint8 rows of 3 x 32 x 32 pixels: unpack the archive again")
    if not isinstance(labels, list) or len(labels) != len(data) or not all(type(label) is int for label in labels):
        raise InputError(f"{path} must hold '{key}', one integer for each of its {len(data)} images")
    return data.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


# ── Hugging Face ──


def read_hugging_face(name: str) -> Stored:
    """Read the training and test images of a dataset of the hub or in a local folder, all of one size."""
    dataset = load_datasets(name)
    if hasattr(dataset, "features"):  # one data set, saved without the name of a split
        raise InputError(
            f"{name} holds one data set without splits, and images need train and test (or validation): save both as a "
            "DatasetDict"
        )
    held_out_name = next((part for part in ("test", "validation") if part in dataset), None)
    if "train" not in dataset or held_out_name is None:
        raise InputError(
            f"the dataset {name!r} needs the splits train and test (or validation); found {', '.join(dataset)}"
        )
    features = dataset["train"].features
    images = [key for key, kind in features.items() if type(kind).__name__ == "Image"]
    labels = [key for key, kind in features.items() if type(kind).__name__ == "ClassLabel"]
    labels = [key for key in ("fine_label", "label") if key in labels] or labels
    if not images or not labels:
        raise InputError(
            f"the dataset {name!r} needs a column of images and one of class labels; found {', '.join(features)}"
        )
    arrays = []
    for part in ("train", held_out_name):
        arrays += [
            _stack_images(dataset[part][images[0]], f"{name} {part}"),
            np.array(dataset[part][labels[0]], dtype=np.int64),
        ]
    return dict(zip(NEEDED, arrays, strict=True)), tuple(features[labels[0]].names), Path(name).name


def _stack_images(images: Any, what: str) -> np.ndarray:
    """Return Pillow images of one size as an array, grayscale or RGB."""
    arrays = [np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB")) for image in images]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) != 1:
        raise InputError(
            f"the images of {what} must have one size and mode; found {len(shapes)} kinds, such as {shapes[:3]}: "
            "save them as files and train on the folder"
        )
    return np.stack(arrays)
