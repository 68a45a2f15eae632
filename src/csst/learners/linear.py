"""Multinomial logistic regression on standardized columns, or on columns divided by one common deviation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.learners.protocol import FittedLearner, Rows, apply
from csst.models.table import TableInput

#: iterations of the solver, at most
MOST_ITERATIONS = 300
#: gradient at which the solver stops
TOLERANCE = 1e-3

#: inverse penalties to choose from, by balanced out-of-fold log-loss
PENALTIES = (0.01, 0.1, 1.0)


def fit_logistic(features: Any, labels: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Return W (K, D) and b (K,) of scikit-learn's logistic regression with inverse penalty C.

    Whether the solver has converged does not matter: the scores are calibrated later.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=penalty, max_iter=MOST_ITERATIONS, tol=TOLERANCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(features, labels)
    weights = model.coef_.astype(np.float64)
    bias = model.intercept_.astype(np.float64)
    if len(weights) == 1:  # scikit-learn stores a single row for two classes
        weights = np.stack([-weights[0] / 2, weights[0] / 2])
        bias = np.stack([-bias[0] / 2, bias[0] / 2])
    return weights, bias


class FittedLinear(FittedLearner):
    """log softmax(W x' + b) for standardized columns x'; categories become indicators.

    Args:
        input: standardization of the columns.
        weights: W, (K, D').
        bias: b, (K,).
    """

    input: TableInput
    weights: Tensor
    bias: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.input(x).double() @ self.weights.T + self.bias, 1)


@dataclass(frozen=True)
class Linear:
    """Logistic regression, unweighted, with inverse penalty C."""

    table: Rows
    penalty: float = 0.1
    name: str = "linear"

    def fit(self, rows: Any, labels: np.ndarray, seed: int = 0) -> FittedLinear:
        table = self.table.as_input(rows)
        weights, bias = fit_logistic(apply(table, rows), labels, self.penalty)
        return FittedLinear(input=table, weights=weights, bias=bias)
