"""A portfolio as a torch module, for export."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.learners.forest import SMALLEST_PROBABILITY as SMALLEST_FRACTION
from csst.learners.forest import FittedForest
from csst.learners.kernel import FittedKernel
from csst.learners.linear import FittedLinear
from csst.learners.portfolio import Member, Portfolio
from csst.learners.projection import Projection
from csst.learners.propagation import DECAY, NEAREST, SMALLEST_PROBABILITY, FittedPropagation
from csst.learners.protocol import Rows
from csst.learners.trees import Trees, read_trees
from csst.models.table import TableInput


def make_input(table: Rows) -> TableInput:
    """The standardization of a table, as its learner has it."""
    first = TableInput(list(table.sizes)).fit(table.mean, table.std)
    first.std = torch.from_numpy(table.std[first.numbers]).float()
    return first


class NumbersModule(nn.Module):
    """A module of arrays, float32."""

    def keep(self, **arrays: np.ndarray) -> None:
        for name, value in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.array(value)).float())


class LinearScores(NumbersModule):
    """log softmax(W x' + b) on standardized columns x'."""

    weights: Tensor
    bias: Tensor

    def __init__(self, model: FittedLinear) -> None:
        super().__init__()
        self.input = make_input(model.table)
        self.keep(weights=model.weights, bias=model.bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.input(x) @ self.weights.T + self.bias, 1)


class Projected(NumbersModule):
    """(x' - center) M, of length 1 if asked for."""

    matrix: Tensor
    shift: Tensor

    def __init__(self, projection: Projection) -> None:
        super().__init__()
        self.input, self.has_unit_length = make_input(projection.table), projection.has_unit_length
        self.keep(matrix=projection.matrix, shift=projection.center @ projection.matrix)

    def forward(self, x: Tensor) -> Tensor:
        values = self.input(x) @ self.matrix - self.shift
        if not self.has_unit_length:
            return values
        return values / values.norm(dim=1, keepdim=True).clamp(min=1e-12)


def square_distances(points: Tensor, others: Tensor) -> Tensor:
    """|x - y|^2, (N, M); in double precision, as small differences of large squares count."""
    a, b = points.double(), others.double()
    apart = (a**2).sum(1, keepdim=True) + (b**2).sum(1) - 2 * a @ b.T
    return apart.clamp(min=0).to(points.dtype)


class KernelScores(NumbersModule):
    """log softmax(k(x, landmarks) V + b)."""

    landmarks: Tensor
    weights: Tensor
    bias: Tensor

    def __init__(self, model: FittedKernel) -> None:
        super().__init__()
        self.space, self.gamma = Projected(model.projection), model.gamma
        self.keep(landmarks=model.landmarks, weights=model.weights, bias=model.bias)

    def forward(self, x: Tensor) -> Tensor:
        near = torch.exp(-self.gamma * square_distances(self.space(x), self.landmarks))
        return torch.log_softmax(near @ self.weights.T + self.bias, 1)


class PropagationScores(NumbersModule):
    """The weighted mean of the nearest nodes' probabilities, under the labels' class balance."""

    nodes: Tensor
    probs: Tensor
    log_prior: Tensor
    centers: Tensor
    places: Tensor
    is_nearby: Tensor

    def __init__(self, model: FittedPropagation) -> None:
        super().__init__()
        self.space, self.has_cells = Projected(model.projection), model.cells is not None
        self.keep(nodes=model.nodes, probs=model.probs, log_prior=np.log(model.prior))
        if model.cells is not None:
            count = len(model.cells.centers)
            self.keep(centers=model.cells.centers)
            places = np.where(model.search.places < 0, count, model.search.places)
            self.register_buffer("places", torch.from_numpy(places))
            is_nearby = torch.zeros(count, count + 1, dtype=torch.bool)  # the last cell is near none
            is_nearby[torch.arange(count)[:, None], torch.from_numpy(model.cells.nearby)] = True
            self.register_buffer("is_nearby", is_nearby)

    def forward(self, x: Tensor) -> Tensor:
        points = self.space(x)
        apart = square_distances(points, self.nodes)
        if self.has_cells:
            cells = square_distances(points, self.centers).argmin(1)
            apart = torch.where(self.is_nearby[cells][:, self.places], apart, torch.full_like(apart, torch.inf))
        squares, near = apart.topk(min(NEAREST, len(self.nodes)), dim=1, largest=False)
        farthest = squares.amax(1, keepdim=True)
        weights = torch.exp(-DECAY * squares / torch.where(farthest > 0, farthest, torch.ones_like(farthest)))
        mixed = (weights[:, :, None] * self.probs[near]).sum(1) / weights.sum(1, keepdim=True)
        return torch.log_softmax(torch.log(mixed + SMALLEST_PROBABILITY) + self.log_prior, 1)


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
    """The weighted sum of the members' calibrated scores; what other learners compute is no graph here."""

    log_prior: Tensor
    weights: Tensor
    temperatures: Tensor
    shifts: Tensor

    def __init__(self, portfolio: Portfolio) -> None:
        super().__init__()
        members = portfolio.members
        self.members = nn.ModuleList(make_scores(member) for member in members)
        self.keep(
            log_prior=np.log(portfolio.prior),
            weights=np.array([member.weight for member in members]),
            temperatures=np.array([member.calibration.temperature for member in members]),
            shifts=np.stack([member.calibration.bias for member in members]),
        )

    def forward(self, x: Tensor) -> Tensor:
        total = self.log_prior
        for at, member in enumerate(self.members):
            calibrated = self.temperatures[at] * (member(x) - self.log_prior) + self.shifts[at]
            total = total + self.weights[at] * calibrated
        return total


def make_scores(member: Member) -> nn.Module:
    """A member's log-probabilities as a module."""
    model = member.model
    if isinstance(model, FittedLinear):
        return LinearScores(model)
    if isinstance(model, FittedKernel):
        return KernelScores(model)
    if isinstance(model, FittedPropagation):
        return PropagationScores(model)
    if isinstance(model, FittedForest):
        return ForestScores(model)
    raise InputError(
        f"the member {member.name} cannot be exported, as what it computes is not known here: fit with learner='auto' "
        "or other learners by their names instead"
    )
