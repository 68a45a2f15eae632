"""A portfolio as a torch module, for export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.learners.forest import SMALLEST_FRACTION, FittedForest, Trees, read_trees
from csst.learners.kernel import FittedKernel
from csst.learners.linear import FittedLinear
from csst.learners.portfolio import Member, Portfolio
from csst.learners.projection import Projection
from csst.learners.propagation import ADDED_PROBABILITY, DECAY, NEAREST, FittedPropagation
from csst.learners.protocol import Rows
from csst.models.table import TableInput


def make_input(table: Rows) -> TableInput:
    """Return the standardization of a table as a module, with exactly the deviations of the learner."""
    module = TableInput(list(table.sizes)).fit(table.mean, table.std)
    module.std = torch.from_numpy(table.std[module.numbers]).float()
    return module


class NumbersModule(nn.Module):
    """A module of arrays, float32."""

    def register_arrays(self, **arrays: np.ndarray) -> None:
        for name, value in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.array(value)).float())


class LinearScores(NumbersModule):
    """log softmax(W x' + b) on standardized columns x'."""

    weights: Tensor
    bias: Tensor

    def __init__(self, model: FittedLinear) -> None:
        super().__init__()
        self.input = make_input(model.table)
        self.register_arrays(weights=model.weights, bias=model.bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.input(x) @ self.weights.T + self.bias, 1)


class Projected(NumbersModule):
    """(x' - center) M, each row of length 1 if `has_unit_length`."""

    matrix: Tensor
    shift: Tensor

    def __init__(self, projection: Projection) -> None:
        super().__init__()
        self.input = make_input(projection.table)
        self.has_unit_length = projection.has_unit_length
        self.register_arrays(matrix=projection.matrix, shift=projection.center @ projection.matrix)

    def forward(self, x: Tensor) -> Tensor:
        values = self.input(x) @ self.matrix - self.shift
        if not self.has_unit_length:
            return values
        return values / values.norm(dim=1, keepdim=True).clamp(min=1e-12)


def square_distances(points: Tensor, others: Tensor) -> Tensor:
    """Return |x - y|^2, (N, M), computed in double precision: it is a small difference of large squares."""
    x = points.double()
    y = others.double()
    squares = (x**2).sum(1, keepdim=True) + (y**2).sum(1) - 2 * x @ y.T
    return squares.clamp(min=0).to(points.dtype)


class KernelScores(NumbersModule):
    """log softmax(k(x, landmarks) V + b)."""

    landmarks: Tensor
    weights: Tensor
    bias: Tensor

    def __init__(self, model: FittedKernel) -> None:
        super().__init__()
        self.space = Projected(model.projection)
        self.gamma = model.gamma
        self.register_arrays(landmarks=model.landmarks, weights=model.weights, bias=model.bias)

    def forward(self, x: Tensor) -> Tensor:
        similarities = torch.exp(-self.gamma * square_distances(self.space(x), self.landmarks))
        return torch.log_softmax(similarities @ self.weights.T + self.bias, 1)


class PropagationScores(NumbersModule):
    """The weighted mean of the nearest nodes' probabilities, under the class prior of the labels."""

    nodes: Tensor
    probs: Tensor
    log_prior: Tensor
    centers: Tensor
    places: Tensor
    is_nearby: Tensor

    def __init__(self, model: FittedPropagation) -> None:
        super().__init__()
        self.space = Projected(model.projection)
        self.has_cells = model.cells is not None
        self.register_arrays(nodes=model.nodes, probs=model.probs, log_prior=np.log(model.prior))
        if model.cells is not None:
            count = len(model.cells.centers)
            self.register_arrays(centers=model.cells.centers)
            places = np.where(model.search.places < 0, count, model.search.places)
            self.register_buffer("places", torch.from_numpy(places))
            is_nearby = torch.zeros(count, count + 1, dtype=torch.bool)  # the last cell is near none
            is_nearby[torch.arange(count)[:, None], torch.from_numpy(model.cells.nearby)] = True
            self.register_buffer("is_nearby", is_nearby)

    def forward(self, x: Tensor) -> Tensor:
        points = self.space(x)
        distances = square_distances(points, self.nodes)
        if self.has_cells:
            cells = square_distances(points, self.centers).argmin(1)
            is_candidate = self.is_nearby[cells][:, self.places]
            distances = torch.where(is_candidate, distances, torch.full_like(distances, torch.inf))
        squares, neighbors = distances.topk(min(NEAREST, len(self.nodes)), dim=1, largest=False)
        farthest = squares.amax(1, keepdim=True)
        weights = torch.exp(-DECAY * squares / torch.where(farthest > 0, farthest, torch.ones_like(farthest)))
        probs = (weights[:, :, None] * self.probs[neighbors]).sum(1) / weights.sum(1, keepdim=True)
        return torch.log_softmax(torch.log(probs + ADDED_PROBABILITY) + self.log_prior, 1)


class TreeFractions(nn.Module):
    """The mean of the trees' class fractions; all rows walk down all trees, a step at a time."""

    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    probs: Tensor

    def __init__(self, trees: Trees) -> None:
        super().__init__()
        self.depth = trees.depth
        for name in ("roots", "feature", "threshold", "left", "right"):
            self.register_buffer(name, torch.from_numpy(getattr(trees, name)))
        self.register_buffer("probs", torch.from_numpy(trees.probs).float())

    def forward(self, x: Tensor) -> Tensor:
        values = x.double()  # as the thresholds are
        node = self.roots.expand(x.shape[0], -1)
        for _ in range(self.depth):
            goes_left = values.gather(1, self.feature[node]) <= self.threshold[node]
            node = torch.where(goes_left, self.left[node], self.right[node])
        return self.probs[node].mean(1)


class ForestScores(nn.Module):
    """The mean of the forests' log-probabilities."""

    def __init__(self, model: FittedForest) -> None:
        super().__init__()
        self.forests = nn.ModuleList(TreeFractions(read_trees(forest)) for forest in model.forests)

    def forward(self, x: Tensor) -> Tensor:
        logs = [forest(x).clamp(min=SMALLEST_FRACTION).log() for forest in self.forests]
        return torch.log_softmax(torch.stack(logs).mean(0), 1)


class PortfolioScores(NumbersModule):
    """The weighted sum of the members' calibrated scores."""

    log_prior: Tensor
    weights: Tensor
    temperatures: Tensor
    shifts: Tensor

    def __init__(self, portfolio: Portfolio) -> None:
        super().__init__()
        members = portfolio.members
        self.members = nn.ModuleList(make_scores(member) for member in members)
        self.register_arrays(
            log_prior=np.log(portfolio.prior),
            weights=np.array([member.weight for member in members]),
            temperatures=np.array([member.calibration.temperature for member in members]),
            shifts=np.stack([member.calibration.bias for member in members]),
        )

    def forward(self, x: Tensor) -> Tensor:
        total = self.log_prior
        for k, member in enumerate(self.members):
            scores = self.temperatures[k] * (member(x) - self.log_prior) + self.shifts[k]
            total = total + self.weights[k] * scores
        return total


def make_scores(member: Member) -> nn.Module:
    """Return a member's log-probabilities as a module."""
    modules: dict[type, Callable[[Any], nn.Module]] = {
        FittedLinear: LinearScores,
        FittedKernel: KernelScores,
        FittedPropagation: PropagationScores,
        FittedForest: ForestScores,
    }
    if type(member.model) in modules:
        return modules[type(member.model)](member.model)
    raise InputError(
        f"the member {member.name} cannot be exported, only csst's own learners can: fit with learner='auto' or other "
        "learners by name"
    )
