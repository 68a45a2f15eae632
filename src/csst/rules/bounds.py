"""The constraints of a sentence as a rule is expected to meet them: an estimate with its standard error, no promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from csst.estimation.class_rates import RateEstimate
from csst.estimation.expectation import constraint_names
from csst.maths.costs import format_amount
from csst.rules.judging import SAFE, measure_errors
from csst.rules.soft_objective import SoftObjective

Status = Literal["met", "unsure", "missed"]
#: bounds that a sentence lists one by one
FEW_BOUNDS = 3


@dataclass(frozen=True)
class Bound:
    """A constraint, by how much it is expected to be met, and the standard error of that.

    Args:
        constraint: its text.
        slack: negative where it is expected to be missed.
        error: the standard error of the slack.
        unit: what counts as 1, for a bound on costs; of rates it is 1.
    """

    constraint: str
    slack: float
    error: float
    unit: float = 1.0

    @property
    def status(self) -> Status:
        """ "met" by at least a standard error, "missed" by more than one, or "unsure".

        Both numbers, this and the margin that rules are searched with, were chosen on made worlds with a rare class
        and then measured on real tables (benchmarks/results/promises.md).
        """
        if self.slack >= SAFE * self.error:
            return "met"
        return "missed" if self.slack < -self.error else "unsure"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {name: value for name, value in vars(self).items() if name != "unit" or value != 1.0}
        return {**values, "status": self.status}


def measure_bounds(goal: SoftObjective, estimate: RateEstimate) -> tuple[Bound, ...]:
    """Every constraint of an objective at estimated rates."""
    slack = goal.stated.slack(estimate.confusion).tolist()
    names = constraint_names(goal.stated, estimate.confusion, len(slack))
    units = goal.units or (1.0,) * len(slack)
    errors = (measure_errors(goal, estimate)[goal.constraints] * np.array(units)).tolist()
    return tuple(Bound(*values) for values in zip(names, slack, errors, units, strict=True))


def describe_bounds(bounds: Sequence[Bound]) -> str:
    """What is expected of the constraints, in a sentence after another; "" without any."""
    if not bounds:
        return ""
    nearest_bounds = sorted(bounds, key=lambda bound: (bound.slack - SAFE * bound.error) / bound.unit)[:FEW_BOUNDS]
    words = {"met": "is met", "unsure": "may be met or not", "missed": "is missed"}
    parts = [
        f"{bound.constraint} {words[bound.status]} ({format_amount(bound.slack, bound.unit, '+')}, standard error "
        f"{format_amount(bound.error, bound.unit)})"
        for bound in nearest_bounds
    ]
    rest_count = len(bounds) - len(nearest_bounds)
    remark = f"; {rest_count} more are farther from their bounds" if rest_count else ""
    return f" Expected of the constraints: {'; '.join(parts)}{remark}."
