"""Weak and strong views of images, a whole batch at a time.

    Weak      reflect-padded random crop and random horizontal flip                       alpha(x)
    Strong    the weak view, then RandAugment, then Cutout                                A(x)
    OPERATIONS    RandAugment's table: name -> (function, low, high)

The views of FixMatch (Sohn et al. 2020, Table 12). A view is called with images (B, C, H, W), uint8, C = 1 or 3, and
a `torch.Generator`; every image gets its own draws, and the same generator state gives the same views. The generator
may live on the CPU while the images are on a GPU. Nothing is done in place. With `SeededDraws` instead of a generator,
an image's view does not depend on the images beside it, so that it can be computed once and found again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from csst.data.images.operations import GEOMETRY, OPERATIONS, affine, check_images
from csst.errors import InputError

GRAY = 127
#: goes up when the same draws give other pixels, so that stored views are computed anew
VERSION = 1


class SeededDraws:
    """Random numbers of a batch's images, each image's from a seed of its own: the bytes of SHAKE-256 of the seed.

    Args:
        seeds: one per image.
    """

    device = torch.device("cpu")

    def __init__(self, seeds: Sequence[bytes]) -> None:
        self.seeds = seeds
        self._draws = 0
        self._numbers = np.zeros((len(seeds), 0))

    def uniform(self) -> Tensor:
        """Return the next number of every image (B,), float64, in [0, 1)."""
        if self._draws == self._numbers.shape[1]:
            size = 2 * self._draws or 16
            digests = b"".join(hashlib.shake_256(seed).digest(8 * size) for seed in self.seeds)
            integers = np.frombuffer(digests, dtype="<u8").reshape(len(self.seeds), size)
            self._numbers = (integers >> np.uint64(11)) * 2.0**-53
        self._draws += 1
        return torch.from_numpy(self._numbers[:, self._draws - 1].copy())


Randomness = torch.Generator | SeededDraws


@dataclass(frozen=True)
class Seedable:
    """A view whose vectors can be stored and found again, by its settings."""

    @property
    def fingerprint(self) -> str:
        """The settings of the view, by which stored views are told apart."""
        return f"{self}-{VERSION}"


@dataclass(frozen=True)
class Weak(Seedable):
    """A random crop of the image padded by reflection, and a flip with probability 1/2."""

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise InputError(f"the padding of a crop must be at least 0 pixels; found {self.padding}")

    def __call__(self, images: Tensor, generator: Randomness) -> Tensor:
        """Return views whose pixel (y, x) is the image's at reflect(y + rows_down), reflect(x + columns_right).

        A flip mirrors x; `rows_down` and `columns_right` are uniform in -padding ... padding.
        """
        batch, channels, height, width = check_images(images).shape
        if self.padding >= min(height, width):
            raise InputError(
                f"a crop by reflection needs padding below the image's sides; "
                f"found padding {self.padding} for images of {height}x{width}: lower the padding"
            )
        rows_down, columns_right = _draw(2 * self.padding + 1, (2, batch, 1), images, generator) - self.padding
        x = torch.arange(width, device=images.device)
        if self.flip:
            x = torch.where(_draw(2, (batch, 1), images, generator) == 1, width - 1 - x, x)
        rows = _reflect(torch.arange(height, device=images.device) + rows_down, height)
        columns = _reflect(x + columns_right, width)
        source = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)[:, None]
        return images.flatten(2).gather(2, source.expand(-1, channels, -1)).view(images.shape)


@dataclass(frozen=True)
class Strong(Seedable):
    """The weak view, then random operations, then a gray square.

    `operations` are drawn per image, uniformly and with replacement from `OPERATIONS`, each with a magnitude uniform
    in its range. `cutout` is the square's side as a fraction of the image's shorter side; its center is uniform over
    the pixels, and what falls outside the image is lost.
    """

    operations: int = 2
    cutout: float = 0.5
    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        Weak(self.padding, self.flip)
        if self.operations < 0:
            raise InputError(f"the number of operations must be at least 0; found {self.operations}")
        if not 0 <= self.cutout <= 1:
            raise InputError(f"cutout is a fraction of the image's side, between 0 and 1; found {self.cutout}")

    def __call__(self, images: Tensor, generator: Randomness) -> Tensor:
        images = Weak(self.padding, self.flip)(images, generator)
        for _ in range(self.operations):
            images = _apply_operations(images, generator)
        return _cut_out(images, round(self.cutout * min(images.shape[2:])), generator)


def make_views(padding: int, cutout: float = 0.5, flips: bool = True) -> tuple[Weak, Strong]:
    """Return the weak and the strong view.

    Args:
        padding: how far, in pixels, a crop may shift an image.
        cutout: side of the gray square, as a fraction of the image's shorter side.
        flips: whether images are mirrored.
    """
    return Weak(padding, flips), Strong(cutout=cutout, padding=padding, flip=flips)


def _apply_operations(images: Tensor, generator: Randomness) -> Tensor:
    """Apply one random operation per image: sort images by operation, run each operation once, sort back.

    The geometric operations, last in the order, share one `affine`.
    """
    shape = (len(images),)
    choice = _draw_integers(len(OPERATIONS), shape, generator)
    level = _draw_levels(len(images), generator).to(images.device)
    counts = choice.bincount(minlength=len(OPERATIONS)).tolist()
    order = choice.argsort(stable=True)
    place = order.argsort().to(images.device)
    order = order.to(images.device)
    images = images.index_select(0, order)
    groups = zip(OPERATIONS.items(), images.split(counts), level[order].split(counts), strict=True)
    maps = []
    for (name, (function, low, high)), group, part in groups:
        magnitude = low + (high - low) * part
        if name in GEOMETRY:
            maps.append(GEOMETRY[name](magnitude, *images.shape[2:]))
        elif len(group):
            group.copy_(function(group, magnitude))
    coefficients = torch.cat(maps, 1)
    moving_images = images[len(images) - coefficients.shape[1] :]
    moving_images.copy_(affine(moving_images, coefficients))
    return images.index_select(0, place)


def _cut_out(images: Tensor, side: int, generator: Randomness) -> Tensor:
    """Paint gray squares with this side, in place: the caller has no other use for the images."""
    height, width = images.shape[2:]
    rows = _cover(height, side, images, generator)
    columns = _cover(width, side, images, generator)
    square = (rows[:, :, None] & columns[:, None, :])[:, None]
    return images.bitwise_and_(~square).bitwise_or_(square & GRAY)


def _cover(length: int, side: int, images: Tensor, generator: Randomness) -> Tensor:
    """Return 255 for places in a segment with this side around a random place, else 0, (B, length)."""
    start = _draw(length, (len(images), 1), images, generator) - side // 2
    place = torch.arange(length, device=images.device)
    return ((place >= start) & (place < start + side)).to(torch.uint8).neg_()


def _draw(high: int, shape: tuple[int, ...], images: Tensor, generator: Randomness) -> Tensor:
    """Draw uniform integers below `high` where the generator lives, and return them on the images' device."""
    return _draw_integers(high, shape, generator).to(images.device)


def _draw_integers(high: int, shape: tuple[int, ...], generator: Randomness) -> Tensor:
    if isinstance(generator, torch.Generator):
        return torch.randint(high, shape, generator=generator, device=generator.device)
    draw_count = torch.Size(shape).numel() // max(1, len(generator.seeds))
    draws = torch.stack([generator.uniform() for _ in range(draw_count)]) if draw_count else torch.zeros(shape)
    return (draws * high).long().view(shape)


def _draw_levels(count: int, generator: Randomness) -> Tensor:
    """Draw uniform numbers (B,) in [0, 1), float32."""
    if isinstance(generator, torch.Generator):
        return torch.rand((count,), generator=generator, device=generator.device)
    return generator.uniform().float()


def _reflect(index: Tensor, length: int) -> Tensor:
    """Return indices in 0 ... length - 1, mirrored at both ends without repeating the edge."""
    return length - 1 - (length - 1 - index.abs()).abs()
