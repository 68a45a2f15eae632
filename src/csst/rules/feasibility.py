"""Whether the constraints of an objective can be met, and else what comes nearest, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from csst.estimation.class_rates import RateEstimate
from csst.maths.costs import format_amount
from csst.maths.language import Sentence
from csst.maths.language.meaning import at_place, entries, evaluate, has_groups, is_constant, list_places
from csst.maths.language.tree import Constraint, render
from csst.maths.objectives import Objective
from csst.rules.soft_objective import SoftObjective

#: a constraint missed by no more than this counts as met
TOLERANCE = 1e-3


def note_missed(goal: SoftObjective, estimate: RateEstimate) -> tuple[str, ...]:
    """A sentence about constraints that the rule misses by more than a standard error, with the nearest; or none."""
    description = describe_missed(goal, estimate)
    if not description:
        return ()
    return (
        f"no rule was found that meets all constraints, {estimate.basis}: {description}: loosen the bound, "
        "or label more rows",
    )


def describe_missed(goal: SoftObjective, estimate: RateEstimate) -> str:
    """The constraints that the rule misses by more than a standard error, each with the nearest; "" for none."""
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
    """Whether the constraints can all be met, and else what comes nearest, in a sentence.

    missed: what `find_missed` found. refit: the estimate of the best rule for another objective.
    """
    if not missed:
        unit = objective.measure_units(estimate.confusion.prior)[0]
        value = format_amount(float(objective.value(estimate.confusion)), unit)
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
    """Each missed constraint: its number, its name, and the nearest that the rule reaches."""
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
        size = entries(constraint, objective.binding, objective.text)
        part = slack[start : start + size]
        worst_entry = min(range(size), key=part.__getitem__)
        if part[worst_entry] < -TOLERANCE * units[start]:
            nearest_value = _reached(objective, constraint, part[worst_entry])
            scope = ""
            where = ""
            if size > 1:
                metric = constraint.right if is_constant(constraint.left) else constraint.left
                place = list_places(constraint, objective.binding, objective.text)[worst_entry]
                scope = " for every group and class" if has_groups(constraint) else " for every class"
                where = f", for {render(at_place(metric, place, objective.binding))}"
            yield number, render(constraint) + scope, f"the nearest {nearest_value}{where}"
        start += size


def _reached(objective: Sentence, constraint: Constraint, slack: float) -> str:
    """ "is 0.088 instead of 0.095" where one side is a number, else by how much it is missed."""
    for side, lower_sign in ((constraint.right, ">="), (constraint.left, "<=")):
        if is_constant(side):
            bound = float(evaluate(side, None, objective.binding, objective.text))
            return f"is {bound + slack if constraint.sign == lower_sign else bound - slack:.3g} instead of {bound:.3g}"
    return f"misses it by {-slack:.3g}"
