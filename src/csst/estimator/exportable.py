"""A fitted estimator as something to export: its network, its decision rule, and what its card says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.estimator.members import MembersFit
from csst.exporting import Exportable
from csst.learners.linear import FittedLinear
from csst.learners.portfolio import Portfolio
from csst.models.table import TableInput
from csst.statistics.calibration import Calibration


def exportable(fitted: Any) -> Exportable:
    """`fitted` is a `CSSTClassifier` after fit."""
    found, columns = fitted.fit_, fitted.columns_
    card = {
        "objective": str(found.objective),
        "method": found.about.removesuffix(", for"),
        "data_hash": fitted.data_hash_,
        "preprocessing": preprocessing(fitted.encoder, columns),
        "measured": {"labeled and unlabeled rows": {**fitted.intervals_, "basis": found.expected.basis}},
        "notes": [*fitted.notes_, *found.notes],
    }
    names = tuple(str(name) for name in fitted.classes_)
    example = torch.randn(3, columns.width, generator=torch.Generator().manual_seed(0))
    model = PortfolioScores(found.portfolio) if isinstance(found, MembersFit) else found.model
    return Exportable(model, example, names, found.rule, card)


class LinearScores(nn.Module):
    """One linear member: T (log softmax(W x' + b) - log pi) + a on standardized columns x'."""

    def __init__(self, model: FittedLinear, calibration: Calibration, prior: np.ndarray) -> None:
        super().__init__()
        self.input = TableInput(list(model.table.sizes)).fit(model.table.mean, model.table.std)
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

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(x) for member in self.members]).mean(0)


def preprocessing(encoder: Any, columns: Any) -> str:
    """What has to be done to raw examples before the graph, in words."""
    if encoder is not None:
        return f"each example is embedded by {encoder!r} first; the graph takes the vectors"
    known = "none: standardization is part of the graph"
    if columns.names is not None:
        known += f"; columns in this order: {_listed(columns.names)}"
    for at, categories in columns.categories.items():
        known += f"; column {at} holds the place, from 0, in {_listed(categories)}, and -1 for anything else"
    return known


def _listed(values: Any) -> str:
    return json.dumps(list(values), ensure_ascii=False, default=str)
