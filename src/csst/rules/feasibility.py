"""Whether the constraints of an objective can be met, and else what comes nearest, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from csst.estimation.class_rates import RateEstimate
from csst.maths.language import Sentence
from csst.maths.language.meaning import at_class, entries, evaluate, is_constant
from csst.maths.language.tree import Constraint, render
from csst.maths.objectives import Objective
from csst.maths.ranking import score_on
from csst.rules.soft_objective import SoftObjective

#: a constraint missed by no more than this counts as met
TOLERANCE = 1e-3


def note_missed(smooth: SoftObjective, estimate: RateEstimate) -> tuple[str, ...]:
    """A sentence about constraints that the rule misses by more than a standard error, with the nearest; or none."""
    missed = describe_missed(smooth, estimate)
    if not missed:
        return ()
    return (
        f"no rule was found that meets all constraints, {estimate.basis}: {missed}: loosen the bound, "
        "or label more rows",
    )


def describe_missed(smooth: SoftObjective, estimate: RateEstimate) -> str:
    """The constraints that the rule misses by more than a standard error, each with the nearest; "" for none."""
    objective, c = smooth.objective, estimate.confusion
    slack = objective.slack(c).numpy()
    if not len(slack) or slack.min() >= -TOLERANCE:
        return ""
    worst = smooth.constraints[int(slack.argmin())]
    if -slack.min() <= smooth.measure_errors(c.rates.numpy(), estimate.n + estimate.worth, [worst])[worst]:
        return ""
    return "; ".join(f"{what}: {nearest}" for _, what, nearest in find_missed(objective, estimate))


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
        value = float(objective.value(estimate.confusion))
        return f"All constraints of '{objective}' can be met, with a value of {value:.3f}, {estimate.basis}."
    parts = []
    for number, what, nearest in missed:
        if not isinstance(objective, Sentence) or len(objective.constraints) < 2:
            parts.append(f"{what} cannot be met: {nearest}")
            continue
        single = replace(objective, constraints=(objective.constraints[number],))
        alone = next(find_missed(single, refit(single)), None)
        others = ", ".join(render(c) for at, c in enumerate(objective.constraints) if at != number)
        parts.append(
            f"{what} cannot be met, even alone: {alone[2]}"
            if alone is not None
            else f"{what} cannot be met together with {others}: {nearest}"
        )
    return f"No rule was found that meets all constraints, {estimate.basis}. {'; '.join(parts)}."


def find_missed(objective: Objective, estimate: RateEstimate) -> Iterator[tuple[int, str, str]]:
    """Each missed constraint: its number, its name, and the nearest that the rule reaches."""
    slack = score_on(objective, estimate.confusion, TOLERANCE).slack
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
        worst = min(range(size), key=part.__getitem__)
        if part[worst] < -TOLERANCE:
            reached = _reached(objective, constraint, part[worst])
            every, where = "", ""
            if size > 1:
                moving = constraint.right if is_constant(constraint.left) else constraint.left
                every, where = " for every class", f", for {render(at_class(moving, worst, objective.binding))}"
            yield number, render(constraint) + every, f"the nearest {reached}{where}"
        start += size


def _reached(objective: Sentence, constraint: Constraint, slack: float) -> str:
    """ "is 0.088 instead of 0.095" where one side is a number, else by how much it is missed."""
    for side, rising in ((constraint.right, ">="), (constraint.left, "<=")):
        if is_constant(side):
            bound = float(evaluate(side, None, objective.binding, objective.text))
            return f"is {bound + slack if constraint.sign == rising else bound - slack:.3g} instead of {bound:.3g}"
    return f"misses it by {-slack:.3g}"
