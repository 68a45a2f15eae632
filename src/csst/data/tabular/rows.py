"""Rows of numbers: what learners fit on, and as a task with views what a network is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.data.splits import split_hash
from csst.data.tabular.table_views import NeighborMix, NumberNoise, ScarfCorruption
from csst.data.tabular.tables import is_sparse, statistics
from csst.data.task import Examples, Labeled, Task, View

#: rows from which the strong view draws values, and those among which it looks for neighbors
POOL, NEIGHBORS, POOL_CELLS = 10_000, 2_000, 20_000_000


class SparseRows:
    """A sparse matrix as examples: rows become dense only in the batches that ask for them."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix.tocsr()

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, indices: Tensor) -> Tensor:
        return torch.from_numpy(self.matrix[indices.numpy()].toarray().astype(np.float32, copy=False))


def as_examples(rows: Any) -> Examples:
    """Dense rows as a float32 tensor, sparse ones as they are."""
    return SparseRows(rows) if is_sparse(rows) else torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))


def as_rows(inputs: Any) -> Any:
    """Examples as rows of numbers, (N, D); sparse matrices and arrays as they are."""
    if isinstance(inputs, np.ndarray) or is_sparse(inputs):
        return inputs
    values = inputs[torch.arange(len(inputs))]
    return np.asarray(values, dtype=np.float32).reshape(len(inputs), -1)


@dataclass(frozen=True)
class RowParts:
    """Rows of numbers with classes 0 .. K-1.

    Args:
        labeled: rows that are learned from, (n, D), an array or a sparse matrix.
        labels: their class indices, (n,).
        unlabeled: rows without a label, (m, D); m may be 0.
        validation: rows and class indices; None where the labeled rows are judged out of fold.
        class_names: in the order of the indices.
        sizes: number of categories of every column, 0 for numbers.
        test: rows and class indices that nothing is fitted to.
    """

    labeled: Any
    labels: np.ndarray
    unlabeled: Any
    validation: tuple[Any, np.ndarray] | None
    class_names: tuple[str, ...]
    sizes: list[int]
    test: tuple[Any, np.ndarray] | None = None

    @property
    def measured(self) -> Any:
        """The rows whose columns are measured: those without labels, which are many, or else the labeled ones."""
        return self.unlabeled if self.unlabeled.shape[0] else self.labeled

    @property
    def digest(self) -> str:
        """A fingerprint of the labeled and validation rows with their labels."""
        pairs = [(self.labeled, self.labels), *([self.validation] if self.validation is not None else [])]
        return split_hash(*(part for rows, labels in pairs for part in (*_arrays(rows), labels)))

    def as_task(self, views: tuple[View, View] | str) -> Task:
        """The task of a network; without validation rows, the labeled ones take their place.

        Args:
            views: "table", "embedding", or a weak and a strong view.
        """
        labeled = Labeled(as_examples(self.labeled), torch.from_numpy(self.labels))
        held = labeled
        if self.validation is not None:
            held = Labeled(as_examples(self.validation[0]), torch.from_numpy(self.validation[1]))
        weak, strong = make_views(self, views) if isinstance(views, str) else views
        unlabeled = as_examples(self.unlabeled)
        moments = statistics(self.measured)
        return Task(
            "arrays", self.class_names, labeled, unlabeled, held, None, weak=weak, strong=strong, moments=moments
        )


def make_views(rows: RowParts, kind: str) -> tuple[View, View]:
    """Weak and strong view: of embeddings, or of a table of numbers and categories."""
    source = rows.measured
    size = min(NEIGHBORS if kind == "embedding" else POOL, max(1, POOL_CELLS // source.shape[1]))
    chosen = np.random.default_rng(0).permutation(source.shape[0])[:size]
    pool = as_examples(source[np.sort(chosen)])[torch.arange(len(chosen))]
    mean, std = (torch.from_numpy(values.astype(np.float32)) for values in statistics(source))
    is_category = torch.tensor(rows.sizes) > 0
    scale = torch.where(is_category, torch.zeros(()), std)
    if kind == "embedding":
        return NumberNoise(scale), NeighborMix(pool, mean, scale)
    return NumberNoise(scale), ScarfCorruption(pool, scale, torch.where(is_category, -torch.ones(()), mean))


def _arrays(rows: Any) -> list[np.ndarray]:
    return [rows.data, rows.indices, rows.indptr] if is_sparse(rows) else [rows]
