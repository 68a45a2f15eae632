"""Multinomial logistic regression on standardized columns, or on columns divided by one common deviation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
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

        table = self.table.centered_for(rows)
        model = LogisticRegression(C=self.penalty, max_iter=MOST_ITERATIONS, tol=TOLERANCE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # good enough: it is calibrated afterwards
            model.fit(standardize(rows, table), labels, weights)
        # In the order in which they are stored: products of another order differ in the last bit.
        coefficients = np.ascontiguousarray(model.coef_, dtype=np.float64), model.intercept_.astype(np.float64)
        if len(model.classes_) == 2:
            coefficients = tuple(np.stack([-c[0] / 2, c[0] / 2]) for c in coefficients)  # type: ignore[assignment]
        return FittedLinear(table, *coefficients)


def standardize(rows: Any, table: Rows) -> Any:
    """Return (x - mean) / std for columns of numbers, and an indicator for every category.

    Sparse rows stay sparse where the table has neither means nor categories (it was `centered_for` sparse rows); else
    the model was fitted on dense rows, and sparse ones become dense too.
    """
    if is_sparse(rows):
        from scipy.sparse import diags

        if table.is_scale_only:
            return (rows.tocsr() @ diags(1 / table.std)).astype(np.float32)
        rows = rows.toarray()
    numbers = [at for at, size in enumerate(table.sizes) if not size]
    scaled = ((rows[:, numbers] - table.mean[numbers]) / table.std[numbers]).astype(np.float32)
    places = [(at, size) for at, size in enumerate(table.sizes) if size]
    if not places:
        return scaled
    indicators = [rows[:, at, None] == np.arange(size) for at, size in places]
    return np.hstack([scaled, *(indicator.astype(np.float32) for indicator in indicators)])
