"""Validation images that are training images, and whole tracks of images that look alike."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from csst.data.images.arrays import ImageArrays, ImageSet
from csst.data.images.tracks import TrackedImages, deal_tracks
from csst.data.task import Labeled
from csst.errors import InputError


def number_images(labels: np.ndarray) -> np.ndarray:
    """Images (N, 4, 4) whose first two pixels tell their position."""
    images = np.zeros((len(labels), 4, 4), dtype=np.uint8)
    images[:, 0, 0] = np.arange(len(labels)) % 256
    images[:, 0, 1] = np.arange(len(labels)) // 256
    return images


def read_positions(images: torch.Tensor) -> set[int]:
    """The positions that `number_images` wrote."""
    return set((images[:, 0, 0, 0].int() + 256 * images[:, 0, 0, 1].int()).tolist())


@pytest.fixture
def archive(tmp_path):
    """Three classes of 300, 120 and 60 training images in tracks of 6, and 20 test images each."""
    train = np.repeat(np.arange(3), [300, 120, 60])
    test = np.repeat(np.arange(3), 20)
    tracks = np.concatenate([np.arange(count) // 6 for count in (300, 120, 60)])
    path = tmp_path / "signs.npz"
    np.savez(path, x_train=number_images(train), y_train=train, x_test=number_images(test), y_test=test, track=tracks)
    return path, train, tracks


def test_validation_images_of_the_training_part_leave_all_test_images(archive):
    path, train, _ = archive
    settings = {"labeled": 30, "unlabeled": 60, "imbalance": 10, "validation": 8, "validation_part": "train"}
    task = ImageArrays(str(path), **settings).load(0)
    assert task.train_counts.tolist() == [30, 9, 3]
    assert task.validation.labels.bincount().tolist() == [8, 8, 8]
    assert task.test.labels.bincount().tolist() == [20, 20, 20]
    parts = [read_positions(part) for part in (task.labeled.inputs, task.unlabeled, task.validation.inputs)]
    assert len(set.union(*parts)) == sum(map(len, parts))
    assert train[sorted(parts[2])].tolist() == task.validation.labels.tolist()
    assert ImageArrays(str(path), **settings, test=5).load(0).test.labels.bincount().tolist() == [5, 5, 5]
    with pytest.raises(InputError, match=r"class '0' has 20 test images; data\.test asks for 21"):
        ImageArrays(str(path), **settings, test=21).load(0)
    with pytest.raises(InputError, match=r"validation_part train needs data\.validation"):
        ImageArrays(str(path), validation_part="train")


def test_views_without_flips_never_mirror(archive):
    path = str(archive[0])
    settings = {"labeled": 30, "unlabeled": 60, "imbalance": 10, "padding": 0, "cutout": 0.0}
    images = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4).repeat(64, 1, 1, 1)
    mirrored = {}
    for flips in (False, True):
        task = ImageArrays(path, flips=flips, **settings).load(0)
        views = task.weak(images, torch.Generator().manual_seed(0))
        mirrored[flips] = int((views == images.flip(3)).flatten(1).all(1).sum())
        assert task.strong.flip is flips
    assert mirrored[False] == 0
    assert 16 <= mirrored[True] <= 48


@pytest.mark.parametrize("seed", range(5))
def test_a_track_is_never_split(archive, seed):
    path, train, tracks = archive
    task = TrackedImages(str(path), labeled=48, validation=8, padding=1).load(seed)
    parts = {
        "labeled": sorted(read_positions(task.labeled.inputs)),
        "unlabeled": sorted(read_positions(task.unlabeled)),
        "validation": sorted(read_positions(task.validation.inputs)),
    }
    assert task.train_counts.tolist() == [30, 12, 6]  # natural frequencies
    assert task.validation.labels.bincount().tolist() == [8, 8, 8]
    assert len(task.test) == 60
    objects = [{(train[place], tracks[place]) for place in part} for part in parts.values()]
    assert len(set.union(*objects)) == sum(map(len, objects))
    # A third of 50, 20 and 10 tracks has labels, a sixth validation images, and all of the others are unlabeled.
    for part, count in {"labeled": 17 + 7 + 4, "validation": 8 + 4 + 2}.items():
        images = Counter((train[place], tracks[place]) for place in parts[part])
        assert len(images) == count
        for c in range(3):
            of_class = [n for (label, _), n in images.items() if label == c]
            assert max(of_class) - min(of_class) <= 1, "spread evenly"
    assert len(parts["unlabeled"]) == 6 * (80 - 28 - 14)


def test_seeds_deal_other_tracks_and_the_same_seed_the_same(archive):
    path = str(archive[0])
    hashes = [TrackedImages(path, labeled=48, validation=8).load(seed).split_hash for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_counts_that_tracks_cannot_give_are_refused(archive, tmp_path):
    path, train, tracks = archive
    with pytest.raises(InputError, match="class '2' has too few tracks for 61 images more"):
        TrackedImages(str(path), labeled=48, validation=61).load(0)
    with pytest.raises(InputError, match="class '2' has no track left for unlabeled images"):
        TrackedImages(str(path), labeled=48, validation=54).load(0)
    with pytest.raises(InputError, match=r"less than the 480 training images .* found 480 and 8"):
        TrackedImages(str(path), labeled=480, validation=8).load(0)
    part = Labeled(torch.from_numpy(number_images(train)), torch.from_numpy(train))
    images = ImageSet("signs", ("a", "b", "c"), part, part)
    with pytest.raises(InputError, match="signs has no array 'track'"):
        deal_tracks(images, 48, 8, 0)
    stored = dict(np.load(path))
    np.savez(tmp_path / "short.npz", **{**stored, "track": tracks[:5]})
    with pytest.raises(InputError, match="480 images and 5 tracks"):
        TrackedImages(str(tmp_path / "short.npz")).load(0)
