"""Rows of numbers: what learners fit on, and as a task with views what a network is trained on."""

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
    array = np.asarray(values, dtype=np.float32)
    return array.reshape(len(inputs), int(np.prod(array.shape[1:])))  # -1 would not do for no rows at all


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
        certifying: rows and class indices that certify bounds and that nothing else is fitted to.
        kept_apart: unlabeled rows that prove a coverage and that nothing else is fitted to.
        row_hashes: of all rows as they were given, see `csst.data.row_hashes`; None takes these rows.
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
        """The rows whose columns are measured: those without labels, which are many, or else the labeled ones."""
        return self.unlabeled if self.unlabeled.shape[0] else self.labeled

    @property
    def digest(self) -> str:
        """A fingerprint of the labeled and validation rows with their labels."""
        pairs = [(self.labeled, self.labels), *([self.validation] if self.validation is not None else [])]
        return split_hash(*(part for rows, labels in pairs for part in (*_arrays(rows), labels)))

    def hash_rows(self) -> np.ndarray:
        """Return hashes of all rows that take part in a fit, see `csst.data.row_hashes`.

        Returns:
            (N,), uint64.
        """
        if self.row_hashes is not None:
            return self.row_hashes
        pairs = [pair[0] for pair in (self.validation, self.certifying) if pair is not None]
        apart = [] if self.kept_apart is None else [self.kept_apart]
        return np.concatenate([hash_rows(rows) for rows in (self.labeled, self.unlabeled, *pairs, *apart)])

    def in_content_order(self) -> RowParts:
        """Return the same rows, each part in the order of its rows' content (test rows stay, nothing is drawn there).

        Folds, forests, landmarks and batches then do not depend on the order in which the rows came.
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
        """The task of a network; without validation rows, the labeled ones take their place.

        Args:
            views: "table", "embedding", or a weak and a strong view.
            convert: makes examples of rows.
        """
        labeled = Labeled(convert(self.labeled), torch.from_numpy(self.labels))
        held = labeled
        if self.validation is not None:
            held = Labeled(convert(self.validation[0]), torch.from_numpy(self.validation[1]))
        certifying = None
        if self.certifying is not None:
            certifying = Labeled(convert(self.certifying[0]), torch.from_numpy(self.certifying[1]))
        kept_apart = None if self.kept_apart is None else convert(self.kept_apart)
        weak, strong = make_views(self, views) if isinstance(views, str) else views
        unlabeled = convert(self.unlabeled)
        moments = statistics(self.measured)
        return Task(
            "arrays",
            self.class_names,
            labeled,
            unlabeled,
            held,
            None,
            weak=weak,
            strong=strong,
            moments=moments,
            certifying=certifying,
            kept_apart=kept_apart,
            row_hashes=self.hash_rows(),
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
