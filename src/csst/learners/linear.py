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
#: iterations of the solver, at most
MOST_ITERATIONS = 300
#: gradient at which the solver stops
TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class FittedLinear:
    """log softmax(W x' + b) for standardized columns x'; categories become indicators.

    Args:
        table: standardization of the columns.
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
        table = self.table.centered_for(rows)
        model = fit_logistic(standardize(rows, table), labels, weights, self.penalty)
        # C order, as in a stored file: products in another order differ in the last bit.
        coefficients = np.ascontiguousarray(model.coef_, dtype=np.float64)
        return FittedLinear(table, per_class(coefficients), per_class(model.intercept_.astype(np.float64)))


def fit_logistic(features: Any, labels: np.ndarray, weights: np.ndarray | None, penalty: float) -> Any:
    """Return scikit-learn's logistic regression with inverse penalty C, converged or not: it is calibrated later."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=penalty, max_iter=MOST_ITERATIONS, tol=TOLERANCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(features, labels, weights)


def per_class(coefficients: np.ndarray) -> np.ndarray:
    """Return coefficients with one row per class; scikit-learn stores a single row for two classes."""
    if len(coefficients) == 1:
        return np.stack([-coefficients[0] / 2, coefficients[0] / 2])
    return coefficients


def standardize(rows: Any, table: Rows) -> Any:
    """Return (x - mean) / std for columns of numbers, and an indicator for every category.

    Sparse rows stay sparse if the table has neither means nor categories (it was `centered_for` sparse rows); otherwise
    the model was fitted on dense rows, and sparse rows become dense.
    """
    if is_sparse(rows):
        from scipy.sparse import diags

        if table.is_scale_only:
            return (rows.tocsr() @ diags(1 / table.std)).astype(np.float32)
        rows = rows.toarray()
    numbers = [column for column, size in enumerate(table.sizes) if not size]
    blocks = [((rows[:, numbers] - table.mean[numbers]) / table.std[numbers]).astype(np.float32)]
    for column, size in enumerate(table.sizes):
        if size:
            blocks.append((rows[:, column, None] == np.arange(size)).astype(np.float32))
    return blocks[0] if len(blocks) == 1 else np.hstack(blocks)
