"""Multinomial logistic regression on standardized columns, or on columns divided by one common deviation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_softmax

from csst.data.tabular.tables import is_sparse
from csst.learners.protocol import Rows

#: inverse penalties to choose from, by balanced out-of-fold log-loss
PENALTIES = (0.01, 0.1, 1.0)
#: of the solver
MOST_ITERATIONS, TOLERANCE = 300, 1e-3


@dataclass(frozen=True, eq=False)
class FittedLinear:
    """log softmax(W x' + b) for standardized columns x'; categories become indicators.

    Args:
        table: how columns are standardized.
        weights: W, (K, D').
        bias: b, (K,).
    """

    table: Rows
    weights: np.ndarray
    bias: np.ndarray

    def log_probs(self, rows: Any) -> np.ndarray:
        return log_softmax(standardize(rows, self.table) @ self.weights.T + self.bias, axis=1)


@dataclass(frozen=True)
class Linear:
    """Logistic regression, unweighted, with inverse penalty C."""

    table: Rows
    penalty: float = 0.1
    name: str = "linear"

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedLinear:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        # Sparse rows are not centered; what was learned from them is not centered either when dense rows are scored.
        table = replace(self.table, mean=np.zeros_like(self.table.mean)) if is_sparse(rows) else self.table
        model = LogisticRegression(C=self.penalty, max_iter=MOST_ITERATIONS, tol=TOLERANCE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # good enough: it is calibrated afterwards
            model.fit(standardize(rows, table), labels, weights)
        coefficients = model.coef_.astype(np.float64), model.intercept_.astype(np.float64)
        if len(model.classes_) == 2:
            coefficients = tuple(np.stack([-c[0] / 2, c[0] / 2]) for c in coefficients)  # type: ignore[assignment]
        return FittedLinear(table, *coefficients)


def standardize(rows: Any, table: Rows) -> Any:
    """Columns with mean 0 and deviation 1, and an indicator for every category; sparse rows are only scaled."""
    if is_sparse(rows):
        from scipy.sparse import diags

        return (rows.tocsr() @ diags(1 / table.std)).astype(np.float32)
    numbers = [at for at, size in enumerate(table.sizes) if not size]
    scaled = ((rows[:, numbers] - table.mean[numbers]) / table.std[numbers]).astype(np.float32)
    places = [(at, size) for at, size in enumerate(table.sizes) if size]
    if not places:
        return scaled
    indicators = [rows[:, at, None] == np.arange(size) for at, size in places]
    return np.hstack([scaled, *(indicator.astype(np.float32) for indicator in indicators)])
