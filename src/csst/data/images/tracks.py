"""Images of things met several times in a row: traffic signs from a moving car, animals at a camera.

Pictures of one track look alike. A part of the data that holds a picture from a track of another part would be judged
by what it has seen, so that whole tracks are dealt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from csst.data.images.arrays import ImageSet, Kind, choose_test, make_image_task, read_images
from csst.data.images.views import make_views
from csst.data.splits import Split
from csst.data.task import Task
from csst.errors import InputError
from csst.setting_checks import check_choices

#: parts of the tracks of a class over which its validation images and its labels are spread; the other half stays
#: unlabeled. Pictures of one track are nearly one picture: ten labels of ten signs teach more than ten of one.
VALIDATION_TRACKS = 1 / 6
LABELED_TRACKS = 1 / 3


@dataclass(frozen=True)
class TrackedImages:
    """Images with the class frequencies that they were taken with, of which few are labeled; tracks stay together.

    An `.npz` file holds what `ImageArrays` takes and `track`, whole numbers: training images of one class and track
    show one object.

    Args:
        path: an .npz file.
        source: kind of the path; auto decides by its look.
        classes: number of classes that the data must have; 0 takes any number.
        labeled: labeled images in all; each class has its share of them, and at least one.
        validation: validation images per class, out of the training images.
        test: test images per class; 0 takes all.
        padding: how far, in pixels, the random crop of the weak and strong views may shift an image.
        flips: whether views are mirrored.
        cutout: side of the gray square in strong views, as a fraction of the image's shorter side.
    """

    path: str = ""
    source: Kind = "auto"
    classes: int = 0
    labeled: int = 1500
    validation: int = 10
    test: int = 0
    padding: int = 3
    flips: bool = False
    cutout: float = 0.5

    def __post_init__(self) -> None:
        check_choices(self, "data.")

    def load(self, seed: int, holds_out: bool = True) -> Task:
        """Read the images and deal their tracks.

        Args:
            seed: seed of the split.
            holds_out: unused; the settings name the validation images.

        Returns:
            The task.
        """
        images = read_images(self.path, self.source, self.classes)
        split = deal_tracks(images, self.labeled, self.validation, seed)
        parts = Split(split.labeled, split.unlabeled, split.validation, choose_test(images, self.test, seed))
        views = make_views(self.padding, self.cutout, self.flips)
        return make_image_task(images, parts, views, validates_on_training_images=True)


def deal_tracks(images: ImageSet, labeled: int, validation: int, seed: int) -> Split:
    """Deal the training images of every class: tracks for validation, for labels, and the rest unlabeled.

    Validation images are spread evenly over a sixth of the tracks and labels over a third, or over more if these hold
    too few. What is left of these tracks is in no part.

    Args:
        images: images with tracks.
        labeled: labeled images in all.
        validation: validation images per class.
        seed: seed of the order of the tracks.

    Returns:
        Indices of training images; the test part is empty.
    """
    if images.tracks is None:
        raise InputError(f"{images.name} has no array 'track', one number per training image")
    total = len(images.train)
    if not 0 < labeled < total or validation < 1:
        raise InputError(
            f"data.labeled must be less than the {total} training images and data.validation at least 1; "
            f"found {labeled} and {validation}"
        )
    rng = np.random.default_rng(seed)
    parts: dict[str, list[np.ndarray]] = {"validation": [], "labeled": [], "unlabeled": []}
    for c, name in enumerate(images.class_names):
        members = np.flatnonzero(images.train.labels.numpy() == c)
        tracks = [members[images.tracks[members] == track] for track in np.unique(images.tracks[members])]
        order = [rng.permutation(tracks[place]) for place in rng.permutation(len(tracks))]
        label_count = max(1, round(labeled * len(members) / total))
        parts["validation"].append(_take(order, VALIDATION_TRACKS * len(tracks), validation, name))
        parts["labeled"].append(_take(order, LABELED_TRACKS * len(tracks), label_count, name))
        if not order:
            raise InputError(f"class {name!r} has no track left for unlabeled images: lower the counts")
        parts["unlabeled"] += order
    indices = {part: np.sort(np.concatenate(pieces)) for part, pieces in parts.items()}
    return Split(indices["labeled"], indices["unlabeled"], indices["validation"])


def _take(order: list[np.ndarray], tracks: float, images: int, name: str) -> np.ndarray:
    """Remove so many tracks of a class from the front of `order`, and return so many images of them.

    Every track gives its first image, then its second, and so on. No more tracks are taken than images, and more than
    asked for if these hold too few.
    """
    selection: list[np.ndarray] = []
    while (order and len(selection) < min(images, tracks)) or sum(map(len, selection)) < images:
        if not order:
            raise InputError(f"class {name!r} has too few tracks for {images} images more: lower the counts")
        selection.append(order.pop(0))
    turns = np.concatenate([np.arange(len(track)) for track in selection])
    return np.concatenate(selection)[np.argsort(turns, kind="stable")[:images]]
