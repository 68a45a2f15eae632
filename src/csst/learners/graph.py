"""A portfolio as a torch module, for export."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.learners.linear import FittedLinear
from csst.learners.portfolio import Portfolio
from csst.models.table import TableInput
from csst.statistics.calibration import Calibration


class LinearScores(nn.Module):
    """One linear member: T (log softmax(W x' + b) - log pi) + a on standardized columns x'."""

    def __init__(self, model: FittedLinear, calibration: Calibration, prior: np.ndarray) -> None:
        super().__init__()
        self.input = TableInput(list(model.table.sizes)).fit(model.table.mean, model.table.std)
        self.input.std = torch.from_numpy(model.table.std[self.input.numbers]).float()  # as the learner has it
        numbers = {
            "weights": model.weights,
            "bias": model.bias,
            "prior": np.log(prior),
            "shift": calibration.bias,
            "temperature": np.array(calibration.temperature),
        }
        for name, value in numbers.items():
            self.register_buffer(name, torch.from_numpy(np.asarray(value)).float())

    def forward(self, x: Tensor) -> Tensor:
        logs = torch.log_softmax(self.input(x) @ self.weights.T + self.bias, 1)
        return self.temperature * (logs - self.prior) + self.shift  # type: ignore[operator]


class PortfolioScores(nn.Module):
    """The mean of linear members' scores; what other learners compute cannot be written as a graph here."""

    log_prior: Tensor

    def __init__(self, portfolio: Portfolio) -> None:
        super().__init__()
        members = []
        for one in portfolio.members:
            if not isinstance(one.model, FittedLinear):
                raise InputError(
                    f"the member {one.name} cannot be exported: fit with learner='linear' or learner='network' instead"
                )
            members.append(LinearScores(one.model, one.calibration, portfolio.prior))
        self.members = nn.ModuleList(members)
        self.register_buffer("log_prior", torch.from_numpy(np.log(portfolio.prior)).float())

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(x) for member in self.members]).mean(0) + self.log_prior
