"""Rows of numbers for learners, and the task with views that a network is trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.data.row_hashes import hash_rows
from csst.data.row_order import order_by_content
from csst.data.splits import split_hash
from csst.data.tabular.table_views import NeighborMix, NumberNoise, ScarfCorruption
from csst.data.tabular.tables import is_sparse, statistics
from csst.data.task import Examples, Labeled, Task, View

#: rows from which the strong view of a table draws values, at most
POOL = 10_000
#: rows among which the strong view of embeddings finds neighbors, at most
NEIGHBORS = 2_000
#: numbers in these rows, at most
POOL_CELLS = 20_000_000


class SparseRows:
    """A sparse matrix as examples: rows become dense only in the batches that use them."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix.tocsr()

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, indices: Tensor) -> Tensor:
        return torch.from_numpy(self.matrix[indices.numpy()].toarray().astype(np.float32, copy=False))


def as_examples(rows: Any) -> Examples:
    """Return dense rows as a float32 tensor, sparse rows as `SparseRows`."""
    return SparseRows(rows) if is_sparse(rows) else torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))


def as_rows(inputs: Any) -> Any:
    """Return examples as rows of numbers, (N, D); arrays and sparse matrices are returned unchanged."""
    if isinstance(inputs, np.ndarray) or is_sparse(inputs):
        return inputs
    values = inputs[torch.arange(len(inputs))]
    array = np.asarray(values, dtype=np.float32)
    return array.reshape(len(inputs), int(np.prod(array.shape[1:])))  # -1 would fail for zero rows


@dataclass(frozen=True)
class RowParts:
    """Rows of numbers with classes 0 .. K-1.

    Args:
        labeled: rows to learn from, (n, D), an array or a sparse matrix.
        labels: class indices of the labeled rows, (n,).
        unlabeled: rows without a label, (m, D); m may be 0.
        validation: rows and class indices to judge by; None judges the labeled rows out of fold.
        class_names: K names, in the order of the indices.
        sizes: number of categories of each column, 0 for numbers.
        test: rows and class indices to which nothing is fitted.
        certifying: rows and class indices that certify bounds and have no other use.
        kept_apart: unlabeled rows that certify a coverage and have no other use.
        row_hashes: hashes of the original rows, see `csst.data.row_hashes`; None hashes the rows above.
    """

    labeled: Any
    labels: np.ndarray
    unlabeled: Any
    validation: tuple[Any, np.ndarray] | None
    class_names: tuple[str, ...]
    sizes: list[int]
    test: tuple[Any, np.ndarray] | None = None
    certifying: tuple[Any, np.ndarray] | None = None
    kept_apart: Any = None
    row_hashes: np.ndarray | None = None

    @property
    def measured(self) -> Any:
        """The rows by which columns are measured: the unlabeled rows if there are any, else the labeled rows."""
        return self.unlabeled if self.unlabeled.shape[0] else self.labeled

    @property
    def digest(self) -> str:
        """A fingerprint of the labeled and validation rows with their labels."""
        arrays = [*_arrays(self.labeled), self.labels]
        if self.validation is not None:
            arrays += [*_arrays(self.validation[0]), self.validation[1]]
        return split_hash(*arrays)

    def hash_rows(self) -> np.ndarray:
        """Return hashes of all rows that are used in a fit, see `csst.data.row_hashes`.

        Returns:
            (N,), uint64.
        """
        if self.row_hashes is not None:
            return self.row_hashes
        blocks = [self.labeled, self.unlabeled]
        blocks += [pair[0] for pair in (self.validation, self.certifying) if pair is not None]
        if self.kept_apart is not None:
            blocks.append(self.kept_apart)
        return np.concatenate([hash_rows(rows) for rows in blocks])

    def in_content_order(self) -> RowParts:
        """Return the same rows, each part sorted by content; test rows, which are never sampled, keep their order.

        Folds, forests, landmarks and batches then do not depend on the original order of the rows.
        """

        def sort(pair: tuple[Any, np.ndarray] | None) -> tuple[Any, np.ndarray] | None:
            if pair is None:
                return None
            place = order_by_content(*pair)
            return pair[0][place], pair[1][place]

        order = order_by_content(self.labeled, self.labels)
        kept_apart = self.kept_apart
        if kept_apart is not None:
            kept_apart = kept_apart[order_by_content(kept_apart)]
        return replace(
            self,
            labeled=self.labeled[order],
            labels=self.labels[order],
            unlabeled=self.unlabeled[order_by_content(self.unlabeled)],
            validation=sort(self.validation),
            certifying=sort(self.certifying),
            kept_apart=kept_apart,
        )

    def as_task(self, views: tuple[View, View] | str, convert: Callable[[Any], Examples] = as_examples) -> Task:
        """Return the task of a network; without validation rows, the labeled rows take their place.

        Args:
            views: "table", "embedding", or a weak and a strong view.
            convert: makes examples of rows.
        """

        def make_part(rows: Any, labels: np.ndarray) -> Labeled:
            return Labeled(convert(rows), torch.from_numpy(labels))

        labeled = make_part(self.labeled, self.labels)
        weak, strong = make_views(self, views) if isinstance(views, str) else views
        return Task(
            "arrays",
            self.class_names,
            labeled,
            convert(self.unlabeled),
            labeled if self.validation is None else make_part(*self.validation),
            None,
            weak=weak,
            strong=strong,
            moments=statistics(self.measured),
            certifying=None if self.certifying is None else make_part(*self.certifying),
            kept_apart=None if self.kept_apart is None else convert(self.kept_apart),
            row_hashes=self.hash_rows(),
        )


def make_views(rows: RowParts, kind: str) -> tuple[View, View]:
    """Return the weak and the strong view of embeddings, or of a table of numbers and categories."""
    source = rows.measured
    size = min(NEIGHBORS if kind == "embedding" else POOL, max(1, POOL_CELLS // source.shape[1]))
    sample = np.random.default_rng(0).permutation(source.shape[0])[:size]
    pool = as_examples(source[np.sort(sample)])[torch.arange(len(sample))]
    mean, std = (torch.from_numpy(values.astype(np.float32)) for values in statistics(source))
    is_category = torch.tensor(rows.sizes) > 0
    scale = torch.where(is_category, torch.zeros(()), std)
    if kind == "embedding":
        return NumberNoise(scale), NeighborMix(pool, mean, scale)
    return NumberNoise(scale), ScarfCorruption(pool, scale, torch.where(is_category, -torch.ones(()), mean))


def _arrays(rows: Any) -> list[np.ndarray]:
    return [rows.data, rows.indices, rows.indptr] if is_sparse(rows) else [rows]
