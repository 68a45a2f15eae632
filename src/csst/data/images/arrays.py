"""Images that fit in memory: CIFAR-10 and CIFAR-100, Fashion-MNIST, any `.npz` of images, Hugging Face `datasets`.

Training images are cut into a long-tailed labeled and unlabeled part, test images into validation and test halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from csst.data.images.archives import Stored, read_cifar, read_hugging_face, read_npz_images
from csst.data.images.views import Strong, Weak
from csst.data.splits import Tail, long_tail, split_hash, split_held_out
from csst.data.task import Labeled, Task, as_labels
from csst.errors import InputError
from csst.maths.confusion import refuse_empty_classes
from csst.settings import check_choices

HUGGING_FACE = "hf:"


@dataclass(frozen=True)
class ImageArrays:
    """Long-tailed images of one size: CIFAR-10, CIFAR-100, Fashion-MNIST, or your own.

    An `.npz` file holds x_train, y_train, x_test, y_test and optionally classes (the names); images are uint8, with
    the channels last, first or, for grayscale, left out.

    Args:
        path: an .npz file, the folder of CIFAR's python version, or hf:NAME_OR_FOLDER for Hugging Face datasets.
        source: what the path is; auto decides by its look.
        classes: how many classes the data must have; 0 takes what is there.
        labeled: labeled images of the most frequent class.
        labeled_fraction: the fraction of these labels that is used; 2 for twice as many. The other parts stay the same.
        unlabeled: unlabeled images of the most frequent class.
        imbalance: most frequent over rarest class.
        unlabeled_imbalance: the same for the unlabeled part, if it differs.
        unlabeled_reversed: the unlabeled part's most frequent class is the labeled part's rarest.
        validation: validation images per class, out of the test images; 0 takes half of them.
        test: test images per class; 0 takes half of them.
        padding: how far, in pixels, the random crop of the weak and strong views may shift an image.
    """

    path: str = ""
    source: Literal["auto", "pickles", "npz", "huggingface"] = "auto"
    classes: int = 0
    labeled: int = 1000
    unlabeled: int = 4000
    imbalance: float = 100.0
    unlabeled_imbalance: float | None = None
    unlabeled_reversed: bool = False
    validation: int = 0
    test: int = 0
    padding: int = 4
    labeled_fraction: float = 1.0

    def __post_init__(self) -> None:
        check_choices(self, "data.")

    def load(self, seed: int) -> Task:
        data, names, name = self._read()
        train, held = as_images(data["x_train"], "x_train"), as_images(data["x_test"], "x_test")
        if train.shape[1:] != held.shape[1:]:
            raise InputError(
                f"x_train and x_test must hold images of one shape; found {train.shape[1:]} and {held.shape[1:]}"
            )
        y = {key: _labels(data[key], key) for key in ("y_train", "y_test")}
        names = names or tuple(str(c) for c in range(int(max(v.max() for v in y.values())) + 1))
        if self.classes and self.classes != len(names):
            raise InputError(f"{self.path} has {len(names)} classes, but classes says {self.classes}")
        for images, key in ((train, "y_train"), (held, "y_test")):
            if len(images) != len(y[key]):
                raise InputError(f"each image needs one label; found {len(images)} images and {len(y[key])} in {key}")
            if y[key].min() < 0 or y[key].max() >= len(names):
                raise InputError(
                    f"{key} must lie in 0 .. {len(names) - 1}, one number per class; "
                    f"found {y[key].min()} to {y[key].max()}"
                )
            refuse_empty_classes(torch.from_numpy(np.bincount(y[key], minlength=len(names))), names, "recall", key)
        imbalance = self.imbalance if self.unlabeled_imbalance is None else self.unlabeled_imbalance
        pool = long_tail(
            y["y_train"],
            Tail(self.labeled, self.imbalance),
            Tail(self.unlabeled, imbalance, self.unlabeled_reversed),
            labeled_fraction=self.labeled_fraction,
            seed=seed,
        )
        validation, test = split_held_out(y["y_test"], seed, names, self.validation, self.test)
        parts = [(train[index], y["y_train"][index]) for index in (pool.labeled, pool.unlabeled)]
        parts += [(held[index], y["y_test"][index]) for index in (validation, test)]
        labeled, rest, first, second = (Labeled(*map(torch.from_numpy, part)) for part in parts)
        return Task(
            name,
            names,
            labeled,
            rest.inputs,
            first,
            second,
            weak=Weak(self.padding),
            strong=Strong(padding=self.padding),
            kind="image",
            unlabeled_truth=rest.labels,
            # Of the pixels and labels themselves: a changed image is another split, whatever its index.
            split_hash=split_hash(*(array for part in parts for array in part)),
        )

    def _read(self) -> Stored:
        if not self.path:
            raise InputError("the images need a path: --data.path FILE.npz, a CIFAR folder, or hf:NAME")
        source = self.source
        if source == "auto":
            local = "pickles" if Path(self.path).is_dir() else "npz"
            source = "huggingface" if self.path.startswith(HUGGING_FACE) else local  # type: ignore[assignment]
        if source == "huggingface":
            return read_hugging_face(self.path.removeprefix(HUGGING_FACE))
        return read_cifar(self.path, self.classes) if source == "pickles" else read_npz_images(self.path)


def as_images(values: np.ndarray, what: str) -> np.ndarray:
    """Images as uint8 (N, C, H, W), from channels last, first or left out."""
    if values.dtype != np.uint8:
        raise InputError(f"{what} must be uint8, pixels 0 .. 255; found {values.dtype}: convert it before saving")
    if values.ndim == 3:
        values = values[..., None]
    if values.ndim == 4 and 0 not in values.shape:
        if values.shape[3] in (1, 3):
            return np.ascontiguousarray(values.transpose(0, 3, 1, 2))
        if values.shape[1] in (1, 3):
            return values
    raise InputError(
        f"{what} must hold images (N, H, W), (N, H, W, C) or (N, C, H, W) with C = 1 or 3; found {values.shape}"
    )


def _labels(values: np.ndarray, what: str) -> np.ndarray:
    """Labels (N,) or, as some libraries store them, (N, 1)."""
    labels: Tensor = as_labels(values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values, what)
    if not len(labels):
        raise InputError(f"{what} is empty")
    return labels.numpy()
