"""How steep constraints are compared with the maximized terms: the units in which their multipliers are measured.

    slope of f = max_ij |(1/pi_i) df/dR_ij|,      the largest entry that f gives to a gain

A multiplier is a price per unit of a constraint, and any unit will do. recall['a'] >= 0.8 is K times as steep as a mean
of K recalls, so that steps of lambda which suit the one throw the other from side to side; and a ratio such as the
precision of a class that is hardly predicted is arbitrarily steep, so that its price, shifted to be non-negative, would
drown all else in the gain. The paper's coverage constraints are linear and no steeper than its mean recall: they are
left unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from csst.maths.confusion import Confusion, confusion_from_margins
from csst.maths.objectives import MetricPrior, Objective, payoff_of

#: slopes that differ by less than this part are the same
ROUNDING = 1e-9
#: weight of a constraint that is not linear, at most, as a part of the maximized terms: its prices of wrong
#: predictions, shifted to be non-negative, flatten a gain until every pseudo-label looks right
MOST_WEIGHT = 0.5
#: how many times as steep as the maximized terms a constraint may be before its steps become smaller
STEEP = 3.0


@dataclass(frozen=True, eq=False)
class ConstraintUnits:
    """The slopes of an objective's constraints at chance, R = 1/K.

    Args:
        objective: the objective, bound to the classes.
        train_prior: pi, (K,).
        metric_prior: "train" or "evaluation", see `csst.gain_matrix`.
        slopes: slope of each constraint, (m,).
        scales: min(1, STEEP slope of the maximized terms / slope of the constraint), (m,): factor of its dual step.
        limits: the highest multiplier of each constraint, (m,); infinity for a linear one.
        curved: indices of the constraints that are not linear in the rates.
    """

    objective: Objective
    train_prior: Tensor
    metric_prior: MetricPrior
    slopes: Tensor
    scales: Tensor
    limits: Tensor
    curved: tuple[int, ...]

    @classmethod
    def measure(cls, objective: Objective, train_prior: Tensor, metric_prior: MetricPrior) -> ConstraintUnits:
        """Measure the slopes at chance; an evaluation prior, still unknown, is taken to be uniform."""
        chance = Confusion.uniform(train_prior)
        classes = len(train_prior)
        if metric_prior == "evaluation":
            chance = chance.with_prior(torch.full_like(train_prior, 1 / classes))
        size = len(payoff_of(objective, chance))
        ones = torch.ones(size, dtype=torch.float64)
        is_constraint = ~objective.domain.simplex_mask(size)
        places = is_constraint.nonzero().flatten().tolist()
        limits = torch.full_like(ones, float("inf"))
        if not places or objective.constant_gain is not None:
            return cls(objective, train_prior, metric_prior, ones, ones, limits, ())
        worst_cases = torch.where(is_constraint, 0.0, objective.domain.start(size, classes))
        goal_slope, slopes = _measure(objective, worst_cases, places, chance, train_prior)
        scales = ones.clone()
        curved_places = _find_curved(objective, chance, places)
        if goal_slope > 0:
            scales[places] = (STEEP * goal_slope / slopes[places]).clamp(max=1)
            limits[curved_places] = (MOST_WEIGHT * goal_slope / slopes)[curved_places]
        return cls(objective, train_prior, metric_prior, slopes, scales, limits, tuple(curved_places))

    def damp(self, confusion: Confusion) -> Tensor:
        """Return min(1, slope at chance / slope at this confusion) per constraint, (m,); 1 for a linear one."""
        factors = torch.ones_like(self.slopes)
        if self.curved:
            places = list(self.curved)
            point = confusion.with_prior(self.train_prior) if self.metric_prior == "train" else confusion
            point = point.smoothed(self.objective.epsilon)
            slopes_here = _measure(self.objective, factors, places, point, self.train_prior)[1]
            factors[places] = (self.slopes[places] / slopes_here[places]).clamp(max=1)
        return factors


def _measure(
    objective: Objective, weights: Tensor, places: list[int], confusion: Confusion, train_prior: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the slope of u + weights . phi, and the slopes of the payoffs at these places, (m,), 1 elsewhere."""
    with torch.enable_grad():
        differentiate = _by_margins if objective.reads_margins else _by_rates
        point, slope = differentiate(confusion, train_prior)
        payoff = payoff_of(objective, point)
        slopes = torch.ones(len(payoff), dtype=torch.float64)
        for k in places:
            slopes[k] = slope(payoff[k]).clamp(min=1e-300)
        return slope(objective.utility(point) + weights @ payoff), slopes


Slope = Callable[[Tensor], Tensor]


def _by_rates(confusion: Confusion, train_prior: Tensor) -> tuple[Confusion, Slope]:
    """Return a confusion with a graph from its rates, and a function from a derived number to its slope."""
    rates = confusion.rates.detach().requires_grad_()

    def slope(value: Tensor) -> Tensor:
        return (_derive(value, [rates])[0] / train_prior[:, None]).abs().max()

    return Confusion(rates, confusion.prior), slope


def _by_margins(confusion: Confusion, train_prior: Tensor) -> tuple[Confusion, Slope]:
    """Do as `_by_rates` from recall and coverage, K numbers each instead of K^2.

    df/dR_ij = delta_ij df/drec_j + pi_i df/dcov_j
    """
    recall = confusion.recall.detach().clone().requires_grad_()
    coverage = confusion.coverage.detach().clone().requires_grad_()
    ratio = confusion.prior / train_prior

    def slope(value: Tensor) -> Tensor:
        recall_slope, price = _derive(value, [recall, coverage])
        return torch.maximum((recall_slope / train_prior + ratio * price).abs().max(), ratio.max() * price.abs().max())

    return confusion_from_margins(recall, coverage, confusion.prior), slope


def _derive(value: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """Return the derivatives by the leaves; 0 for a leaf that the value does not depend on."""
    if not value.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return list(torch.autograd.grad(value, leaves, retain_graph=True, materialize_grads=True))


def _find_curved(objective: Objective, chance: Confusion, places: list[int]) -> list[int]:
    """Return the places of payoffs that are not linear: between two points, they differ from the mean of the ends."""
    perfect = torch.eye(chance.classes, dtype=torch.float64)
    uneven = chance.rates * torch.linspace(0.1, 1.0, chance.classes, dtype=torch.float64).sqrt()
    begin = 0.7 * perfect + 0.3 * chance.rates
    end = uneven / uneven.sum(1, keepdim=True)
    at_begin, at_end, at_middle = (
        payoff_of(objective, Confusion(rates, chance.prior)) for rates in (begin, end, (begin + end) / 2)
    )
    is_curved = (at_middle - (at_begin + at_end) / 2).abs() > ROUNDING * (1 + at_middle.abs())
    return [k for k in places if is_curved[k]]
