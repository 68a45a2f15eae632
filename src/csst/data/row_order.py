"""An order of rows that depends on their content and not on their original order.

    h(x) = sum_j w_j r_j(x)  mod 2^64,    r_j(x) = how many distinct smaller values column j has,    w_j random and odd

Rows are sorted by h before any sampling, so that held-out rows, folds, forests, landmarks and batches are the same for
any order of the rows, any unit of a column, and for dense and sparse rows. Equal rows are sorted by their labels, which
makes them interchangeable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from csst.data.tabular.tables import is_sparse

#: size up to which values are ranked; for larger tables sorting is slow, their bits are used, and units matter
MOST_RANKED = 4_000_000
#: numbers hashed at a time
CELLS = 1_000_000


def order_by_content(rows: Any, labels: np.ndarray | None = None) -> np.ndarray:
    """Return the order of rows by their content.

    Args:
        rows: N rows of numbers: an array, a tensor on the CPU or a sparse matrix.
        labels: classes of the rows, (N,), by which equal rows are sorted; None for unlabeled rows.

    Returns:
        Indices, (N,).
    """
    keys = [_hash_sparse(rows.tocsr()) if is_sparse(rows) else _hash_dense(np.asarray(rows))]
    if labels is not None:
        keys.insert(0, labels)
    return np.lexsort(keys)  # the last key counts first


def _hash_dense(rows: np.ndarray) -> np.ndarray:
    count = len(rows)
    table = rows.reshape(count, int(np.prod(rows.shape[1:])))
    weights = draw_weights(table.shape[1])
    hashes = np.zeros(count, dtype=np.uint64)
    is_ranked = table.size <= MOST_RANKED
    width = max(1, CELLS // max(1, count))
    for start in range(0, table.shape[1], width):
        values = table[:, start : start + width].astype(np.float32) + np.float32(0)  # -0 becomes 0
        codes = _rank_columns(values) if is_ranked else values.view(np.uint32)
        hashes += codes.astype(np.uint64) @ weights[start : start + width]
    return hashes


def _rank_columns(values: np.ndarray) -> np.ndarray:
    """Return for each value the number of distinct smaller values in its column, (N, D)."""
    order = np.argsort(values, axis=0)
    sorted_values = np.take_along_axis(values, order, 0)
    is_new = np.zeros(values.shape, dtype=np.int64)
    is_new[1:] = sorted_values[1:] != sorted_values[:-1]
    ranks = np.empty_like(is_new)
    np.put_along_axis(ranks, order, np.cumsum(is_new, axis=0), 0)
    return ranks


def _hash_sparse(matrix: Any) -> np.ndarray:
    """Return the hashes of `_hash_dense` for the same rows, computed from the stored values alone."""
    count, width = matrix.shape
    weights = draw_weights(width)
    matrix = matrix.astype(np.float32)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if count * width > MOST_RANKED:
        return sum_rows(matrix, matrix.data.view(np.uint32).astype(np.uint64) * weights[matrix.indices])
    columns = matrix.indices
    order = np.lexsort([matrix.data, columns])
    sorted_values = matrix.data[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = columns[order][1:] != columns[order][:-1]
    is_new = begins.copy()
    is_new[1:] |= sorted_values[1:] != sorted_values[:-1]
    level = np.cumsum(is_new)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = level - np.maximum.accumulate(np.where(begins, level, 0))  # within the column
    has_zero = np.bincount(columns, minlength=width) < count
    # Zeros that are not stored are a value too: it comes after the negative values.
    zero_rank = np.bincount(columns[order][is_new & (sorted_values < 0)], minlength=width) * has_zero
    ranks += (matrix.data > 0) & has_zero[columns]
    # The hash of a row of zeros, with each stored value in place of a zero.
    with np.errstate(over="ignore"):
        base = (zero_rank.astype(np.uint64) * weights).sum(dtype=np.uint64)
        return base + sum_rows(matrix, (ranks - zero_rank[columns]).astype(np.uint64) * weights[columns])


def sum_rows(matrix: Any, parts: np.ndarray) -> np.ndarray:
    """Return the sum of `parts`, one number per stored value of a CSR matrix, over each row, (N,), modulo 2^64."""
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(parts, dtype=np.uint64)])
    return sums[matrix.indptr[1:]] - sums[matrix.indptr[:-1]]


def draw_weights(columns: int) -> np.ndarray:
    """Return random odd weights of columns, (D,), uint64, always the same."""
    integers = np.random.default_rng(0).integers(0, 2**63, size=columns, dtype=np.uint64)
    return 2 * integers + np.uint64(1)


class Reordered:
    """Examples in another order, fetched one by one.

    Args:
        inputs: N examples.
        order: the index of each, (N,).
    """

    def __init__(self, inputs: Any, order: Tensor) -> None:
        self.inputs = inputs
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, indices: Tensor) -> Any:
        return self.inputs[self.order[indices]]
