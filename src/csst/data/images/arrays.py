"""Images that fit in memory: CIFAR-10 and CIFAR-100, Fashion-MNIST, any `.npz` of images, Hugging Face `datasets`.

Training images are cut into a long-tailed labeled and unlabeled part; validation images come from the test images or
from the training images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from csst.data.huggingface import HUGGING_FACE
from csst.data.images.archives import Stored, read_cifar, read_hugging_face, read_npz_images
from csst.data.images.views import make_views
from csst.data.splits import Split, Tail, long_tail, split_hash, split_held_out, stratified_pair
from csst.data.task import Labeled, Task, View, as_labels, check_labels, refuse_other_shapes
from csst.errors import InputError
from csst.setting_checks import check_choices

#: kinds of a path; auto decides by its look
Kind = Literal["auto", "pickles", "npz", "huggingface"]


@dataclass(frozen=True)
class ImageSet:
    """Images of a file.

    Args:
        name: name of the data.
        class_names: K names.
        train: training images, uint8, (N, C, H, W), with their classes.
        test: test images, uint8, (M, C, H, W), with their classes.
        tracks: tracks of the training images, (N,): images of one class and track show one object; None if unknown.
    """

    name: str
    class_names: tuple[str, ...]
    train: Labeled
    test: Labeled
    tracks: np.ndarray | None = None


@dataclass(frozen=True)
class ImageArrays:
    """Long-tailed images of one size: CIFAR-10, CIFAR-100, MNIST, Fashion-MNIST, or your own.

    An `.npz` file holds x_train, y_train, x_test, y_test and optionally classes (the names); images are uint8, with
    the channels last, first or, for grayscale, left out.

    Args:
        path: an .npz file, the folder of CIFAR's python version, or hf:NAME_OR_FOLDER for Hugging Face datasets.
        source: kind of the path; auto decides by its look.
        classes: number of classes that the data must have; 0 takes any number.
        labeled: labeled images of the most frequent class.
        labeled_fraction: the fraction of these labels that is used; 2 for twice as many. The other parts stay the same.
        unlabeled: unlabeled images of the most frequent class.
        imbalance: most frequent over rarest class.
        unlabeled_imbalance: the same for the unlabeled part, if it differs.
        unlabeled_reversed: the unlabeled part's most frequent class is the labeled part's rarest.
        validation: validation images per class; 0 takes half of the test images.
        validation_part: the images that validation images are taken from: test, or train, which leaves all test images
            for testing.
        test: test images per class; 0 takes half of them, or all where validation images are training images.
        padding: how far, in pixels, the random crop of the weak and strong views may shift an image.
        flips: whether views are mirrored; a mirrored digit is not that digit.
        cutout: side of the gray square in strong views, as a fraction of the image's shorter side.
    """

    path: str = ""
    source: Kind = "auto"
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
    validation_part: Literal["test", "train"] = "test"
    flips: bool = True
    cutout: float = 0.5

    def __post_init__(self) -> None:
        check_choices(self, "data.")
        if self.validation_part == "train" and self.validation < 1:
            raise InputError("data.validation_part train needs data.validation, the number of images per class")

    def load(self, seed: int, holds_out: bool = True) -> Task:
        """Read the images and cut them.

        Args:
            seed: seed of the split.
            holds_out: unused; the settings name the validation images.

        Returns:
            The task.
        """
        images = read_images(self.path, self.source, self.classes)
        takes_training = self.validation_part == "train"
        imbalance = self.imbalance if self.unlabeled_imbalance is None else self.unlabeled_imbalance
        split = long_tail(
            images.train.labels.numpy(),
            Tail(self.labeled, self.imbalance),
            Tail(self.unlabeled, imbalance, self.unlabeled_reversed),
            labeled_fraction=self.labeled_fraction,
            validation=self.validation if takes_training else 0,
            seed=seed,
        )
        views = make_views(self.padding, self.cutout, self.flips)
        if takes_training:
            test = choose_test(images, self.test, seed)
            return make_image_task(images, replace(split, test=test), views, validates_on_training_images=True)
        labels = images.test.labels.numpy()
        validation, test = split_held_out(labels, seed, images.class_names, self.validation, self.test)
        return make_image_task(images, replace(split, validation=validation, test=test), views)


def choose_test(images: ImageSet, count: int, seed: int) -> np.ndarray:
    """Return the indices of `count` test images per class, or of all test images if it is 0."""

    def sizes(c: int, available: int) -> tuple[int, int]:
        if count > available:
            name = images.class_names[c]
            raise InputError(f"class {name!r} has {available} test images; data.test asks for {count}: lower it")
        return count or available, 0

    return stratified_pair(images.test.labels.numpy(), seed, sizes)[0]


def make_image_task(
    images: ImageSet, split: Split, views: tuple[View, View], validates_on_training_images: bool = False
) -> Task:
    """Return the task of these images and this split.

    Args:
        images: all images.
        split: its labeled and unlabeled parts are training images, its test part is test images.
        views: the weak and the strong view.
        validates_on_training_images: whether the validation part is training images, instead of test images.
    """
    labeled = images.train.part(split.labeled)
    unlabeled = images.train.part(split.unlabeled)
    validation = (images.train if validates_on_training_images else images.test).part(split.validation)
    test = images.test.part(split.test)
    # From the pixels and labels themselves: a changed image is another split, whatever its index.
    parts = (labeled, unlabeled, validation, test)
    content = split_hash(*(np.asarray(values) for part in parts for values in (part.inputs, part.labels)))
    return Task(
        images.name,
        images.class_names,
        labeled,
        unlabeled.inputs,
        validation,
        test,
        views=views,
        kind="image",
        unlabeled_truth=unlabeled.labels,
        split_hash=content,
    )


def read_images(path: str, source: Kind = "auto", classes: int = 0) -> ImageSet:
    """Return the images of a file or folder, checked.

    Args:
        path: see `ImageArrays`.
        source: kind of the path.
        classes: number of classes that there must be; 0 takes any number.
    """
    data, names, name = _read(path, source, classes)
    train = _read_part(data, "train")
    test = _read_part(data, "test")
    refuse_other_shapes(train.inputs, test.inputs)
    names = names or tuple(str(c) for c in range(int(torch.cat([train.labels, test.labels]).max()) + 1))
    if classes and classes != len(names):
        raise InputError(f"{path} has {len(names)} classes, but classes says {classes}")
    check_labels(train.labels, "training", names)
    check_labels(test.labels, "test", names)
    tracks = _read_labels(data["track"], "track").numpy() if "track" in data else None
    if tracks is not None and len(tracks) != len(train):
        raise InputError(f"each training image needs one track; found {len(train)} images and {len(tracks)} tracks")
    return ImageSet(name, names, train, test, tracks)


def _read(path: str, source: Kind, classes: int) -> Stored:
    if not path:
        raise InputError("the images need a path: --data.path FILE.npz, a CIFAR folder, or hf:NAME")
    if source == "auto":
        local: Kind = "pickles" if Path(path).is_dir() else "npz"
        source = "huggingface" if path.startswith(HUGGING_FACE) else local
    if source == "huggingface":
        return read_hugging_face(path.removeprefix(HUGGING_FACE))
    return read_cifar(path, classes) if source == "pickles" else read_npz_images(path)


def as_images(values: np.ndarray, what: str) -> np.ndarray:
    """Return images as uint8 (N, C, H, W), from channels last, first or left out."""
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


def _read_part(data: dict[str, np.ndarray], part: str) -> Labeled:
    """Return the training or the test images, with their labels."""
    images = as_images(data[f"x_{part}"], f"x_{part}")
    labels = _read_labels(data[f"y_{part}"], f"y_{part}")
    if len(images) != len(labels):
        raise InputError(f"each image needs one label; found {len(images)} images and {len(labels)} in y_{part}")
    return Labeled(torch.from_numpy(images), labels)


def _read_labels(values: np.ndarray, what: str) -> Tensor:
    """Return labels (N,), which some libraries store as (N, 1)."""
    return as_labels(values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values, what)
