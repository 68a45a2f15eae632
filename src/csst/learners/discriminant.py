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

    S is the covariance around the classes' means m_k, drawn to a multiple of the identity as far as the oracle
    approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010) says.
    """

    projection: Projection
    name: str = "lda"

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedLinear:
        from sklearn.covariance import oas

        values = self.projection.apply(rows).astype(np.float64)
        share = np.ones(len(labels)) if weights is None else weights * len(weights) / weights.sum()
        classes = int(labels.max()) + 1
        totals = np.bincount(labels, share, minlength=classes)
        means = np.stack([np.average(values[labels == k], axis=0, weights=share[labels == k]) for k in range(classes)])
        residuals = (values - means[labels]) * np.sqrt(share)[:, None]
        # A class's mean takes one degree of freedom; where nearly all rows are means, the spread is that of all rows.
        freedom = len(values) - classes
        if freedom < 1:
            residuals, freedom = values - values.mean(0), max(1, len(values) - 1)
        covariance, _ = oas(residuals * (len(values) / freedom) ** 0.5, assume_centered=True)
        covariance += 1e-9 * max(float(np.trace(covariance)) / len(covariance), 1e-12) * np.eye(len(covariance))
        inner = np.linalg.solve(covariance, means.T).T
        bias = np.log(totals / totals.sum()) - (inner * means).sum(1) / 2
        outer = inner @ self.projection.matrix.T
        return FittedLinear(self.projection.table, outer, bias - outer @ self.projection.center)
