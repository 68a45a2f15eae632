"""What rules on one model's probabilities can attain: mean recall against the worst recall and the worst coverage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from csst.language import Sentence
from csst.language import objective as read_objective
from csst.language.meaning import at_class, entries, evaluate, is_constant
from csst.language.tree import Constraint, shown
from csst.objectives import Objective
from csst.posthoc.fitting import TOLERANCE, Fitted, fitted, searched
from csst.posthoc.problem import Problem
from csst.posthoc.rule import DecisionRule

#: the goals whose best rules span the trade-off
GOALS = (
    "max mean(recall)",
    "max 0.6*mean(recall) + 0.4*min(recall)",
    "max 0.2*mean(recall) + 0.8*min(recall)",
    "max min(recall)",
    *(f"max mean(recall) s.t. coverage >= {share}/K" for share in (0.6, 0.8, 0.9, 0.95, 1)),
    "max min(recall) s.t. coverage >= 0.95/K",
)


@dataclass(frozen=True, eq=False)
class Point:
    """What one rule does on the validation examples."""

    mean_recall: float
    min_recall: float
    min_coverage: float
    accuracy: float
    rule: DecisionRule

    def as_dict(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("mean_recall", "min_recall", "min_coverage", "accuracy")}


@dataclass(frozen=True, eq=False)
class Frontier:
    """The points that no other point beats in mean recall, min recall and min coverage, from high mean recall down.

    `feasible` is None for an objective without constraints (or no objective); `best` is the objective's own rule.
    All are measured on the examples they were fitted on: a picture of what is there, not a comparison.
    """

    points: tuple[Point, ...]
    unadjusted: Point
    best: Point | None
    feasible: bool | None
    sentence: str


def frontier(
    probs: Any,
    labels: Any,
    objective: Objective | str | None = None,
    train_prior: Any = None,
    *,
    points: int = 60,
    seed: int = 0,
) -> Frontier:
    """The trade-off that post-hoc rules attain on these probabilities and labels (see `fit` for the arguments).

    With an objective, its own best rule is added, and the sentence says whether all its constraints can be met and
    else what comes nearest. points: at most about so many are kept, spread along the frontier.
    """
    problem = Problem.of(probs, labels, GOALS[0] if objective is None else objective, train_prior, TOLERANCE)
    quick = 4 * problem.classes
    plain = _point(problem, torch.eye(problem.classes, dtype=torch.float64))
    every = [plain]
    for goal in GOALS:
        met = searched(replace(problem, objective=read_objective(goal).bind(problem.classes)), quick, seed)
        every += [_point(problem, one.matrix, one.counts) for one in met]
    found = None if objective is None else fitted(problem, None, seed)
    best = None if found is None else _point(problem, found.rule.matrix)
    kept = _spread(_undominated([*every, best] if best is not None else every), points)
    if found is None or not len(found.deterministic.slack):
        low, high = min(p.mean_recall for p in kept), max(p.mean_recall for p in kept)
        worst = max(p.min_recall for p in kept)
        told = f"Post-hoc rules reach a mean recall of {high:.3f}; the highest worst recall is {worst:.3f}"
        return Frontier(kept, plain, best, None, f"{told}, with mean recalls from {low:.3f} on the frontier.")
    return Frontier(kept, plain, best, found.deterministic.violation == 0, feasibility(problem, found))


def feasibility(problem: Problem, found: Fitted) -> str:
    """Whether the constraints can all be met on these examples, and else what comes nearest, in a sentence."""
    objective = problem.objective
    missed = list(_missed(objective, found))
    if not missed:
        return (
            f"All constraints of '{objective}' can be met on these validation examples, "
            f"with a value of {found.deterministic_value:.3f}."
        )
    told = "; ".join(_said(problem, *one) for one in missed)
    lottery = found.lottery.violation == 0
    note = f" A randomised rule meets all of them, with a value of {found.randomised_value:.3f}." if lottery else ""
    return f"On these validation examples no rule was found that meets all constraints. {told}.{note}"


def _missed(objective: Objective, found: Fitted) -> Iterator[tuple[int, str, str]]:
    """Each missed constraint: its number, its name, and the nearest that the best rule reaches."""
    slack = found.deterministic.slack
    if not isinstance(objective, Sentence):
        names = objective.labels[-len(slack) :] if len(objective.labels) >= len(slack) else ()
        for k, one in enumerate(slack):
            if one < -TOLERANCE:
                yield k, names[k] if names else f"constraint {k}", f"the nearest misses it by {-one:.3g}"
        return
    at = 0
    for number, constraint in enumerate(objective.constraints):
        size = entries(constraint, objective.binding, objective.text)
        part = slack[at : at + size]
        worst = min(range(size), key=part.__getitem__)
        if part[worst] < -TOLERANCE:
            reached = _reached(objective, constraint, part[worst])
            every, where = "", ""
            if size > 1:
                moving = constraint.right if is_constant(constraint.left) else constraint.left
                every, where = " for every class", f", for {shown(at_class(moving, worst, objective.binding))}"
            yield number, shown(constraint) + every, f"the nearest {reached}{where}"
        at += size


def _reached(objective: Sentence, constraint: Constraint, slack: float) -> str:
    """ "is 0.088 instead of 0.095" where one side is a number, else by how much it is missed."""
    for side, rising in ((constraint.right, ">="), (constraint.left, "<=")):
        if is_constant(side):
            bound = float(evaluate(side, None, objective.binding, objective.text))
            return f"is {bound + slack if constraint.sign == rising else bound - slack:.3g} instead of {bound:.3g}"
    return f"misses it by {-slack:.3g}"


def _said(problem: Problem, number: int, what: str, nearest: str) -> str:
    """That a constraint cannot be met: even alone, with the nearest it comes then, or together with the others."""
    objective = problem.objective
    if not isinstance(objective, Sentence) or len(objective.constraints) < 2:
        return f"{what} cannot be met: {nearest}"
    single = replace(objective, constraints=(objective.constraints[number],))
    for _, _, alone in _missed(single, fitted(replace(problem, objective=single))):
        return f"{what} cannot be met, even alone: {alone}"
    others = [shown(c) for at, c in enumerate(objective.constraints) if at != number]
    return f"{what} cannot be met together with {', '.join(others)}: {nearest}"


def _point(problem: Problem, matrix: Tensor, counts: Tensor | None = None) -> Point:
    c = problem.confusion(problem.counts(matrix) if counts is None else counts)
    return Point(
        float(c.recall.mean()), float(c.recall.min()), float(c.coverage.min()), float(c.accuracy), DecisionRule(matrix)
    )


def _undominated(points: list[Point]) -> list[Point]:
    """The points that no other is at least as good as in all three numbers; one of equals."""
    values = torch.tensor([(p.mean_recall, p.min_recall, p.min_coverage) for p in points], dtype=torch.float64)
    values = (values * 1e9).round()
    kept: list[int] = []
    # Sorted from the best down, a point can only be beaten by one before it.
    for i in sorted(range(len(points)), key=lambda i: values[i].tolist(), reverse=True):
        if not any((values[j] >= values[i]).all() for j in kept):
            kept.append(i)
    return [points[i] for i in kept]


def _spread(points: list[Point], most: int) -> tuple[Point, ...]:
    """At most about `most` of the points, evenly along the list, with the extremes of each number."""
    ends = {max(points, key=key) for key in (lambda p: p.mean_recall, lambda p: p.min_recall, lambda p: p.min_coverage)}
    steps = torch.linspace(0, len(points) - 1, min(most, len(points)), dtype=torch.float64).round().long().tolist()
    chosen = {points[i] for i in steps} | ends
    return tuple(p for p in points if p in chosen)
