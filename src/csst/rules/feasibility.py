"""Whether the constraints of an objective are met, and whether they can be, in sentences.

A bound is expected to be met by an estimate with its standard error, which is no promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from csst.estimation.class_rates import RateEstimate
from csst.estimation.expectation import constraint_names
from csst.maths.costs import format_amount
from csst.maths.language import Sentence
from csst.maths.language.meaning import at_place, entries, evaluate, has_groups, is_constant, list_places
from csst.maths.language.tree import Constraint, render
from csst.maths.objectives import Objective
from csst.rules.judging import SAFE, measure_errors
from csst.rules.soft_objective import SoftObjective

#: a constraint missed by no more than this counts as met
TOLERANCE = 1e-3
#: bounds that a sentence lists one by one
FEW_BOUNDS = 3
Status = Literal["met", "unsure", "missed"]


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
        """Return plain values for JSON."""
        values = {name: value for name, value in vars(self).items() if name != "unit" or value != 1.0}
        return {**values, "status": self.status}


def measure_bounds(goal: SoftObjective, estimate: RateEstimate) -> tuple[Bound, ...]:
    """Return every constraint of an objective as it is expected to be met at estimated rates."""
    slack = goal.stated.slack(estimate.confusion).tolist()
    names = constraint_names(goal.stated, estimate.confusion, len(slack))
    units = goal.units or (1.0,) * len(slack)
    errors = (measure_errors(goal, estimate)[goal.constraints] * np.array(units)).tolist()
    return tuple(Bound(*values) for values in zip(names, slack, errors, units, strict=True))


def describe_bounds(bounds: Sequence[Bound]) -> str:
    """Return what is expected of the constraints, to follow another sentence; "" without any."""
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


def note_missed(goal: SoftObjective, estimate: RateEstimate) -> tuple[str, ...]:
    """Return a sentence about constraints that the rule misses by more than a standard error; () for none."""
    description = describe_missed(goal, estimate)
    if not description:
        return ()
    return (
        f"no rule was found that meets all constraints, {estimate.basis}: {description}: loosen the bound, "
        "or label more rows",
    )


def describe_missed(goal: SoftObjective, estimate: RateEstimate) -> str:
    """Return the constraints that the rule misses by more than a standard error, with the nearest; "" for none."""
    objective = goal.objective
    c = estimate.confusion
    slack = objective.slack(c).numpy()
    if not len(slack) or slack.min() >= -TOLERANCE:
        return ""
    worst_place = goal.constraints[int(slack.argmin())]
    if -slack.min() <= goal.measure_errors(c.rates.numpy(), estimate.n + estimate.worth)[worst_place]:
        return ""
    return "; ".join(f"{what}: {nearest_value}" for _, what, nearest_value in find_missed(goal.stated, estimate))


def describe_feasibility(
    objective: Objective,
    estimate: RateEstimate,
    missed: list[tuple[int, str, str]],
    refit: Callable[[Objective], RateEstimate],
) -> str:
    """Return whether the constraints can all be met, and else what comes nearest, in a sentence.

    missed: what `find_missed` found. refit: the estimate of the best rule for another objective.
    """
    if not missed:
        value = objective.describe_value(float(objective.value(estimate.confusion)))
        return f"All constraints of '{objective}' can be met, with a value of {value}, {estimate.basis}."
    parts = []
    for number, what, nearest_value in missed:
        if not isinstance(objective, Sentence) or len(objective.constraints) < 2:
            parts.append(f"{what} cannot be met: {nearest_value}")
            continue
        lone_objective = replace(objective, constraints=(objective.constraints[number],))
        lone_miss = next(find_missed(lone_objective, refit(lone_objective)), None)
        other_bounds = ", ".join(render(c) for index, c in enumerate(objective.constraints) if index != number)
        parts.append(
            f"{what} cannot be met, even alone: {lone_miss[2]}"
            if lone_miss is not None
            else f"{what} cannot be met together with {other_bounds}: {nearest_value}"
        )
    return f"No rule was found that meets all constraints, {estimate.basis}. {'; '.join(parts)}."


def find_missed(objective: Objective, estimate: RateEstimate) -> Iterator[tuple[int, str, str]]:
    """Yield the number of every missed constraint, its name, and the nearest that the rule reaches."""
    slack = objective.slack(estimate.confusion).tolist()
    units = objective.measure_units(estimate.confusion.prior)[1] or (1.0,) * len(slack)
    if not isinstance(objective, Sentence):
        names = objective.labels[-len(slack) :] if len(objective.labels) >= len(slack) else ()
        for k, distance in enumerate(slack):
            if distance < -TOLERANCE:
                yield k, names[k] if names else f"constraint {k}", f"the nearest misses it by {-distance:.3g}"
        return
    start = 0
    for number, constraint in enumerate(objective.constraints):
        size = entries(constraint, objective.binding)
        part = slack[start : start + size]
        worst_entry = min(range(size), key=part.__getitem__)
        if part[worst_entry] < -TOLERANCE * units[start]:
            nearest_value = _reached(objective, constraint, part[worst_entry])
            scope = ""
            where = ""
            if size > 1:
                metric = constraint.right if is_constant(constraint.left) else constraint.left
                place = list_places(constraint, objective.binding)[worst_entry]
                scope = " for every group and class" if has_groups(constraint) else " for every class"
                where = f", for {render(at_place(metric, place, objective.binding))}"
            yield number, render(constraint) + scope, f"the nearest {nearest_value}{where}"
        start += size


def _reached(objective: Sentence, constraint: Constraint, slack: float) -> str:
    """Return "is 0.088 instead of 0.095" if one side is a number, else by how much the constraint is missed."""
    for side, lower_sign in ((constraint.right, ">="), (constraint.left, "<=")):
        if is_constant(side):
            bound = float(evaluate(side, None, objective.binding))
            return f"is {bound + slack if constraint.sign == lower_sign else bound - slack:.3g} instead of {bound:.3g}"
    return f"misses it by {-slack:.3g}"
