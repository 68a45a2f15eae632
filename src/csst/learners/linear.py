"""Multinomial logistic regression on standardized columns, or on columns divided by one common deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.learners.protocol import FittedLearner, Rows, apply
from csst.models.linear_start import fit_logistic
from csst.models.table import TableInput

#: inverse penalties to choose from, by balanced out-of-fold log-loss
PENALTIES = (0.01, 0.1, 1.0)


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
