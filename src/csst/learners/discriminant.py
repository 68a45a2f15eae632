"""Linear discriminant analysis: one Gaussian per class, with one covariance for all, shrunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from csst.learners.linear import FittedLinear
from csst.learners.projection import Projection
from csst.learners.protocol import apply


@dataclass(frozen=True, eq=False)
class Discriminant:
    """log p_k(x) = m_k' S^-1 x - m_k' S^-1 m_k / 2 + log pi_k on principal components.

    S is the covariance around the class means m_k, shrunk toward a multiple of the identity by the oracle approximating
    shrinkage of Chen, Wiesel, Eldar and Hero (2010).
    """

    projection: Projection
    name: str = "lda"

    def fit(self, rows: Any, labels: np.ndarray, seed: int = 0) -> FittedLinear:
        from sklearn.covariance import oas

        values = apply(self.projection, rows).astype(np.float64)
        counts = np.bincount(labels)
        means = np.stack([values[labels == k].mean(0) for k in range(len(counts))])
        residuals = values - means[labels]
        # The mean of a class takes one degree of freedom. With one row per class nothing is left within the classes,
        # and the spread of all rows stands in.
        freedom = len(values) - len(counts)
        if freedom < 1:
            residuals = values - values.mean(0)
            freedom = max(1, len(values) - 1)
        covariance, _ = oas(residuals * (len(values) / freedom) ** 0.5, assume_centered=True)
        covariance += 1e-9 * max(float(np.trace(covariance)) / len(covariance), 1e-12) * np.eye(len(covariance))
        directions = np.linalg.solve(covariance, means.T).T
        bias = np.log(counts / counts.sum()) - (directions * means).sum(1) / 2
        # The same model on standardized columns, so that it needs no projection later.
        weights = directions @ self.projection.matrix.numpy().T
        return FittedLinear(
            input=self.projection.input, weights=weights, bias=bias - directions @ self.projection.shift.numpy()
        )
