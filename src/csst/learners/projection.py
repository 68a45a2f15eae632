"""Principal components of standardized columns: a space in which few labels go further."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from csst.data.tabular.tables import is_sparse
from csst.learners.protocol import Rows, apply
from csst.models.stored import StoredModule
from csst.models.table import TableInput

#: principal components, at most
COMPONENTS = 128
#: rows from which the components are computed, at most
MOST_ROWS = 5_000
#: components with less than this part of the largest variance are dropped
SMALLEST_VARIANCE = 1e-6
#: columns up to which all components are computed exactly
EXACT = 1_000


class Projection(StoredModule):
    """x' M - shift for standardized columns x', float32, each row of length 1 if `has_unit_length`.

    Args:
        input: standardization of the columns.
        matrix: M, (D', d).
        shift: the mean of the projected rows, (d,).
        has_unit_length: whether rows are scaled to length 1.
    """

    input: TableInput
    matrix: Tensor
    shift: Tensor
    has_unit_length: bool

    def with_unit_length(self) -> Projection:
        """Return the same projection with rows scaled to length 1."""
        return Projection(input=self.input, matrix=self.matrix, shift=self.shift, has_unit_length=True)

    def forward(self, x: Tensor) -> Tensor:
        points = (self.input(x).double() @ self.matrix - self.shift).float()
        if not self.has_unit_length:
            return points
        return points / points.norm(dim=1, keepdim=True).clamp(min=1e-12)


def fit_projection(rows: Any, table: Rows, seed: int = 0) -> Projection:
    """Compute principal components of unlabeled rows.

    Args:
        rows: rows, (N, D); a random sample of at most 5,000 is used.
        table: standardization of the columns.
        seed: seed of the sample.
    """
    from sklearn.utils.extmath import randomized_svd

    standardize = table.as_input(rows)
    sample = np.random.default_rng(seed).permutation(rows.shape[0])[:MOST_ROWS]
    values = apply(standardize, rows[np.sort(sample)])
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
    matrix = axes[varies].T if varies.any() else np.zeros((width, 1))  # zeros for constant columns
    return Projection(input=standardize, matrix=matrix, shift=center @ matrix, has_unit_length=False)
