"""Principal components of standardized columns: a space in which few labels go further."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from csst.data.tabular.tables import is_sparse
from csst.learners.linear import standardize
from csst.learners.protocol import Rows

#: principal components at most, and the rows they are computed from
COMPONENTS, MOST_ROWS = 128, 5_000
#: components with less than this part of the largest variance are dropped
SMALLEST_VARIANCE = 1e-6
#: columns up to which all components are computed exactly
EXACT = 1_000


@dataclass(frozen=True, eq=False)
class Projection:
    """(x' - center) M for standardized columns x', each row of length 1 if `has_unit_length`.

    Args:
        table: how columns are standardized.
        center: (D',).
        matrix: M, (D', d).
        has_unit_length: whether only the direction of a row counts.
    """

    table: Rows
    center: np.ndarray
    matrix: np.ndarray
    has_unit_length: bool = False

    def apply(self, rows: Any) -> np.ndarray:
        """The rows in the projected space, (N, d), float32."""
        values = np.asarray(standardize(rows, self.table) @ self.matrix - self.center @ self.matrix, dtype=np.float32)
        if not self.has_unit_length:
            return values
        return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


def fit_projection(
    rows: Any, table: Rows, whitening: float = 0.0, has_unit_length: bool = False, seed: int = 0
) -> Projection:
    """The principal components of rows that need no label; component j is divided by variance_j^(whitening / 2).

    Args:
        rows: (N, D), of which at most 5,000 are looked at.
        table: what is known about the columns.
        whitening: 0 keeps the variances, 1 makes them all alike.
        has_unit_length: whether rows are scaled to length 1 afterwards.
        seed: of the choice of rows.
    """
    from sklearn.utils.extmath import randomized_svd

    table = table.centered_for(rows)
    chosen = np.random.default_rng(seed).permutation(rows.shape[0])[:MOST_ROWS]
    values = standardize(rows[np.sort(chosen)], table)
    width = values.shape[1]
    center = np.zeros(width) if is_sparse(values) else values.mean(0, dtype=np.float64)
    if is_sparse(values) or width > EXACT:
        centered = values if is_sparse(values) else values - center.astype(np.float32)
        most = min(COMPONENTS, *values.shape)
        _, sizes, axes = randomized_svd(centered, most, random_state=seed)
        variances, axes = sizes.astype(np.float64) ** 2 / values.shape[0], axes.astype(np.float64)
    else:
        centered = values - center
        variances, vectors = np.linalg.eigh(centered.T @ centered / len(centered))
        order = np.argsort(-variances, kind="stable")[:COMPONENTS]
        variances, axes = variances[order], vectors[:, order].T
    kept = variances > SMALLEST_VARIANCE * max(float(variances.max(initial=0.0)), 1e-300)
    if not kept.any():  # constant columns
        return Projection(table, center, np.zeros((width, 1)), has_unit_length)
    scale = variances[kept] ** (-whitening / 2)
    return Projection(table, center, axes[kept].T * scale, has_unit_length)
