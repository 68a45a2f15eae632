"""Linear discriminant analysis: one Gaussian per class, with one covariance for all, shrunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from csst.learners.linear import FittedLinear
from csst.learners.projection import Projection


@dataclass(frozen=True, eq=False)
class Discriminant:
    """log p_k(x) = m_k' S^-1 x - m_k' S^-1 m_k / 2 + log pi_k on principal components.

    S is the covariance around the class means m_k, shrunk toward a multiple of the identity by the oracle approximating
    shrinkage of Chen, Wiesel, Eldar and Hero (2010).
    """

    projection: Projection
    name: str = "lda"

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedLinear:
        from sklearn.covariance import oas

        values = self.projection.apply(rows).astype(np.float64)
        row_weights = np.ones(len(labels)) if weights is None else weights * len(weights) / weights.sum()
        classes = int(labels.max()) + 1
        totals = np.bincount(labels, row_weights, minlength=classes)
        masks = [labels == k for k in range(classes)]
        means = np.stack([np.average(values[mask], axis=0, weights=row_weights[mask]) for mask in masks])
        residuals = (values - means[labels]) * np.sqrt(row_weights)[:, None]
        # The mean of a class takes one degree of freedom. With one row per class nothing is left within the classes,
        # and the spread of all rows stands in.
        freedom = len(values) - classes
        if freedom < 1:
            residuals = values - values.mean(0)
            freedom = max(1, len(values) - 1)
        covariance, _ = oas(residuals * (len(values) / freedom) ** 0.5, assume_centered=True)
        covariance += 1e-9 * max(float(np.trace(covariance)) / len(covariance), 1e-12) * np.eye(len(covariance))
        directions = np.linalg.solve(covariance, means.T).T
        bias = np.log(totals / totals.sum()) - (directions * means).sum(1) / 2
        # The same model on standardized columns, so that it needs no projection later.
        weights_of_columns = directions @ self.projection.matrix.T
        bias = bias - weights_of_columns @ self.projection.center
        return FittedLinear(self.projection.table, weights_of_columns, bias)
