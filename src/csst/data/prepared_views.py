"""Views that are embedded before training, which samples from them.

A storable view of an image depends on the image, the settings of the view and the number of the draw only. Its vector
is stored under a key of these three, where every later run finds it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from csst.data.images.views import SeededDraws
from csst.data.row_hashes import hash_rows
from csst.data.task import Task


@runtime_checkable
class IndexedView(Protocol):
    """A view computed beforehand for every unlabeled example and fetched by index."""

    def of_index(self, index: Tensor, generator: torch.Generator) -> Any: ...


@runtime_checkable
class StorableView(Protocol):
    """A view of images that treats each image on its own and is identified by its fingerprint."""

    @property
    def fingerprint(self) -> str: ...

    def __call__(self, images: Tensor, draws: SeededDraws, /) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Prepared:
    """The strong view of embeddings: a random one of the vectors (draws, N, width) computed beforehand, with noise."""

    vectors: Tensor
    scale: Tensor
    noise: float = 0.0

    def of_index(self, index: Tensor, generator: torch.Generator) -> Tensor:
        draw = torch.randint(len(self.vectors), (len(index),), generator=generator)
        return self._add_noise(self.vectors[draw, index].float(), generator)

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Return labeled examples, which have no stored views, with noise only."""
        return self._add_noise(batch, generator)

    def _add_noise(self, vectors: Tensor, generator: torch.Generator) -> Tensor:
        if not self.noise:
            return vectors
        return vectors + self.noise * self.scale * torch.randn(vectors.shape, generator=generator)


class WeakViews:
    """The weak view of embeddings: a random choice of the example's vector and the vectors of its views.

    An example is identified by its vector, not by its index, so that the parts of a task can be split and joined.
    An unknown vector is left unchanged.

    Args:
        vectors: vectors of the examples, (N, width), float32.
        views: vectors of their views, (views, N, width).
    """

    def __init__(self, vectors: Tensor, views: Tensor) -> None:
        self.views = views
        marks = _mark_rows(vectors)
        self._order = marks.argsort(stable=True)
        self._marks = marks[self._order]

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        draws = torch.randint(1 + len(self.views), (len(batch),), generator=generator)
        marks = _mark_rows(batch)
        places = torch.searchsorted(self._marks, marks).clamp(max=len(self._marks) - 1)
        rows = ((self._marks[places] == marks) & (draws > 0)).nonzero().flatten()
        views = self.views[draws[rows] - 1, self._order[places[rows]]]
        return batch.index_put((rows,), views.to(batch.dtype))


def _mark_rows(vectors: Tensor) -> Tensor:
    """Return the hash of each row as a number that torch can sort, (N,), int64."""
    return torch.from_numpy(hash_rows(vectors).view(np.int64))


def view_keys(contents: list[bytes], view: StorableView, draw: int) -> list[bytes]:
    """Return 16 bytes for one view of each image: the key of its vector and the seed of its random draws."""
    name = f"{view.fingerprint}-{draw}".encode()
    return [hashlib.sha256(content + name).digest()[:16] for content in contents]


def project(task: Task, components: int) -> Task:
    """Return the embedded task on the principal components of its training examples.

    One deviation scales all components: components of small variance are mostly noise, which few labels cannot tell.
    """
    examples = torch.cat([task.labeled.inputs, task.unlabeled])  # type: ignore[list-item]
    center = examples.mean(0)
    deviations = (examples - center).double()
    directions = torch.linalg.eigh(deviations.T @ deviations).eigenvectors.flip(1)[:, :components]
    # The sign of an eigenvector is arbitrary; its largest entry is made positive.
    signs = directions.gather(0, directions.abs().argmax(0, keepdim=True)).sign()
    basis = (directions * signs).float().contiguous()

    def apply(vectors: Tensor) -> Tensor:
        return ((vectors.float() - center) @ basis).to(vectors.dtype)

    projected_task = task.with_inputs(lambda vectors, _: apply(vectors))  # type: ignore[arg-type]
    vectors = torch.cat([projected_task.labeled.inputs, projected_task.unlabeled])  # type: ignore[list-item]
    deviation = float(vectors.double().square().mean().sqrt())
    strong = task.strong
    weak = task.weak
    assert isinstance(strong, Prepared)
    if isinstance(weak, WeakViews):
        weak = WeakViews(vectors, apply(weak.views))
    scale = vectors[len(task.labeled) :].std(0, correction=0)
    return replace(
        projected_task,
        views=(weak, Prepared(apply(strong.vectors), scale, strong.noise)),
        moments=(np.zeros(components), np.full(components, deviation)),
        projection=(center, basis),
    )
