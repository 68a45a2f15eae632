"""Principal components of standardized columns: a space in which few labels go further."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from csst.data.tabular.tables import is_sparse
from csst.learners.linear import standardize
from csst.learners.protocol import Rows

#: principal components, at most
COMPONENTS = 128
#: rows from which the components are computed, at most
MOST_ROWS = 5_000
#: components with less than this part of the largest variance are dropped
SMALLEST_VARIANCE = 1e-6
#: columns up to which all components are computed exactly
EXACT = 1_000


@dataclass(frozen=True, eq=False)
class Projection:
    """(x' - center) M for standardized columns x', each row of length 1 if `has_unit_length`.

    Args:
        table: standardization of the columns.
        center: mean of the standardized columns, (D',).
        matrix: M, (D', d).
        has_unit_length: whether rows are scaled to length 1.
    """

    table: Rows
    center: np.ndarray
    matrix: np.ndarray
    has_unit_length: bool = False

    def apply(self, rows: Any) -> np.ndarray:
        """Return the rows in the projected space, (N, d), float32."""
        values = np.asarray(standardize(rows, self.table) @ self.matrix - self.center @ self.matrix, dtype=np.float32)
        if not self.has_unit_length:
            return values
        return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


def fit_projection(
    rows: Any, table: Rows, whitening: float = 0.0, has_unit_length: bool = False, seed: int = 0
) -> Projection:
    """Compute principal components of unlabeled rows; component j is divided by variance_j^(whitening / 2).

    Args:
        rows: rows, (N, D); a random sample of at most 5,000 is used.
        table: standardization of the columns.
        whitening: 0 keeps the variances, 1 makes them equal.
        has_unit_length: whether rows are scaled to length 1 afterwards.
        seed: seed of the sample.
    """
    from sklearn.utils.extmath import randomized_svd

    table = table.centered_for(rows)
    sample = np.random.default_rng(seed).permutation(rows.shape[0])[:MOST_ROWS]
    values = standardize(rows[np.sort(sample)], table)
    width = values.shape[1]
    center = np.zeros(width) if is_sparse(values) else values.mean(0, dtype=np.float64)
    if is_sparse(values) or width > EXACT:
        deviations = values if is_sparse(values) else values - center.astype(np.float32)
        count = min(COMPONENTS, *values.shape)
        _, singular_values, axes = randomized_svd(deviations, count, random_state=seed)
        variances = singular_values.astype(np.float64) ** 2 / values.shape[0]
        axes = axes.astype(np.float64)
    else:
        deviations = values - center
        variances, vectors = np.linalg.eigh(deviations.T @ deviations / len(deviations))
        order = np.argsort(-variances, kind="stable")[:COMPONENTS]
        variances = variances[order]
        axes = vectors[:, order].T
    varies = variances > SMALLEST_VARIANCE * max(float(variances.max(initial=0.0)), 1e-300)
    if not varies.any():  # constant columns
        return Projection(table, center, np.zeros((width, 1)), has_unit_length)
    scale = variances[varies] ** (-whitening / 2)
    return Projection(table, center, axes[varies].T * scale, has_unit_length)
