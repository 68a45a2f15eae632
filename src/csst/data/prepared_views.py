"""Views that were embedded beforehand, from which training draws.

A view of an image that can be stored depends on the image, the view's settings and the number of the draw only, so that
its vector is kept under a key of these three and found again by every run.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from csst.data.images.views import SeededDraws
from csst.data.task import Labeled, Task


@runtime_checkable
class IndexedView(Protocol):
    """A view that was computed for every unlabeled example beforehand, and is fetched by index."""

    def of_index(self, index: Tensor, generator: torch.Generator) -> Any: ...


@runtime_checkable
class StorableView(Protocol):
    """A view of images that does not depend on the images beside, and is told apart by its fingerprint."""

    @property
    def fingerprint(self) -> str: ...

    def __call__(self, images: Tensor, draws: SeededDraws, /) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Prepared:
    """The strong view of embeddings: one of the vectors (draws, N, width) computed beforehand, with noise."""

    vectors: Tensor
    scale: Tensor
    noise: float = 0.0

    def of_index(self, index: Tensor, generator: torch.Generator) -> Tensor:
        draw = torch.randint(len(self.vectors), (len(index),), generator=generator)
        return self._add_noise(self.vectors[draw, index].float(), generator)

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Of examples that are not among the unlabeled ones: noise alone."""
        return self._add_noise(batch, generator)

    def _add_noise(self, vectors: Tensor, generator: torch.Generator) -> Tensor:
        if not self.noise:
            return vectors
        return vectors + self.noise * self.scale * torch.randn(vectors.shape, generator=generator)


class WeakViews:
    """The weak view of embeddings: the example's own vector, or one of its views' computed beforehand.

    An example is known by its vector, not by its index, so that whoever cuts or joins a task's parts keeps the views.
    A vector that is not known stays as it is.

    Args:
        plain: vectors (N, width) of the examples themselves, float32.
        views: vectors (views, N, width) of their views.
    """

    def __init__(self, plain: Tensor, views: Tensor) -> None:
        self.views = views
        marks = mark_rows(plain)
        self._order = marks.argsort(stable=True)
        self._marks = marks[self._order]

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        draw = torch.randint(1 + len(self.views), (len(batch),), generator=generator)
        marks = mark_rows(batch)
        place = torch.searchsorted(self._marks, marks).clamp(max=len(self._marks) - 1)
        changed = ((self._marks[place] == marks) & (draw > 0)).nonzero().flatten()
        views = self.views[draw[changed] - 1, self._order[place[changed]]]
        return batch.index_put((changed,), views.to(batch.dtype))


def mark_rows(vectors: Tensor) -> Tensor:
    """A 64-bit mark of each row's bits (N,), int64: a sum, modulo 2^64, of its bits times random odd numbers."""
    bits = vectors.float().contiguous().view(torch.int32).long()
    low, high = -(2**63), 2**63 - 1
    factors = torch.randint(low, high, (bits.shape[1],), generator=torch.Generator().manual_seed(bits.shape[1])) | 1
    return (bits * factors).sum(1)


def view_keys(contents: list[bytes], view: StorableView, draw: int) -> list[bytes]:
    """16 bytes for one view of each image with these contents: the key of its vector and the seed of its draws."""
    name = f"{view.fingerprint}-{draw}".encode()
    return [hashlib.sha256(content + name).digest()[:16] for content in contents]


def project(task: Task, components: int) -> Task:
    """The embedded task on the principal components of its training examples.

    All components are scaled by one number, not each by its own: those of small variance are mostly noise, and few
    labels cannot tell.
    """
    known = torch.cat([task.labeled.inputs, task.unlabeled])  # type: ignore[list-item]
    center = known.mean(0)
    centered = (known - center).double()
    directions = torch.linalg.eigh(centered.T @ centered).eigenvectors.flip(1)[:, :components]
    signs = directions.gather(0, directions.abs().argmax(0, keepdim=True)).sign()  # which side is up is arbitrary
    basis = (directions * signs).float().contiguous()

    def apply(vectors: Tensor) -> Tensor:
        return ((vectors.float() - center) @ basis).to(vectors.dtype)

    def part(labeled: Labeled) -> Labeled:
        return Labeled(apply(labeled.inputs), labeled.labels)  # type: ignore[arg-type]

    labeled, unlabeled = part(task.labeled), apply(task.unlabeled)  # type: ignore[arg-type]
    plain = torch.cat([labeled.inputs, unlabeled])  # type: ignore[list-item]
    deviation = float(plain.double().square().mean().sqrt())
    strong, weak = task.strong, task.weak
    assert isinstance(strong, Prepared)
    return replace(
        task,
        labeled=labeled,
        unlabeled=unlabeled,
        validation=part(task.validation),
        certifying=None if task.certifying is None else part(task.certifying),
        kept_apart=None if task.kept_apart is None else apply(task.kept_apart),  # type: ignore[arg-type]
        test=None if task.test is None else part(task.test),
        weak=WeakViews(plain, apply(weak.views)) if isinstance(weak, WeakViews) else weak,
        strong=Prepared(apply(strong.vectors), unlabeled.std(0, correction=0), strong.noise),
        moments=(np.zeros(components), np.full(components, deviation)),
        projection=(center, basis),
    )
