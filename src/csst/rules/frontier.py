"""What rules on one model's probabilities can trade off: mean recall against the lowest recall and coverage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.candidates import Candidate, fit_pooled, sharpness
from csst.rules.feasibility import describe_feasibility, find_missed
from csst.rules.rule import DecisionRule
from csst.rules.smooth import SmoothObjective
from csst.statistics.evidence import Evidence
from csst.statistics.rates import RateEstimate, estimate_rates

#: how many steps from one end of each trade-off to the other
STEPS = 12


@dataclass(frozen=True, eq=False)
class Point:
    """What one rule is expected to do."""

    mean_recall: float
    min_recall: float
    min_coverage: float
    accuracy: float
    rule: DecisionRule
    estimate: RateEstimate

    def as_dict(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("mean_recall", "min_recall", "min_coverage", "accuracy")}


@dataclass(frozen=True, eq=False)
class Frontier:
    """The points that no other point beats in mean recall, lowest recall and coverage, from high mean recall down.

    `feasible` is None for an objective without constraints (or no objective); `best` is the objective's own rule.
    All are estimated from the rows they were fitted on: a picture of what is there, not a comparison.
    """

    points: tuple[Point, ...]
    unadjusted: Point
    best: Point | None
    feasible: bool | None
    sentence: str


def trace_frontier(
    evidence: Evidence,
    prior: np.ndarray,
    objective: Objective | None = None,
    undo: torch.Tensor | None = None,
    steps: int = STEPS,
) -> Frontier:
    """The trade-off that rules attain on this evidence, under a deployment prior (K,).

    Each rule is searched from the one before. With an objective (bound to the classes) its own rule is added, and the
    sentence says whether all its constraints can be met and else what comes nearest.
    """

    def measure(one: Candidate) -> Point:
        estimate = estimate_rates(evidence, one.decide(evidence.scores), one.decide(evidence.soft_scores), prior)
        c = estimate.confusion
        mean, low, covered = float(c.recall.mean()), float(c.recall.min()), float(c.coverage.min())
        return Point(mean, low, covered, float(c.accuracy), one.as_rule(evidence.train_prior, undo), estimate)

    def fit(goal: Objective, start: Candidate | None = None) -> Candidate:
        return fit_pooled(SmoothObjective(goal, prior, sharpness(evidence)), evidence, start)

    def walk(goals: list[str]) -> Iterator[Point]:
        last: Candidate | None = None
        for text in goals:
            last = fit(read_objective(text).bind(evidence.classes), last)
            yield measure(last)

    plain = measure(Candidate("plain", evidence.calibration, prior, bias=np.log(evidence.train_prior)))
    shares = np.linspace(0, 1, steps)
    worst = [f"max {1 - share:.6g}*mean(recall) + {share:.6g}*min(recall)" for share in shares]
    coverage = [f"max mean(recall) s.t. coverage >= {share:.6g}/K" for share in 0.5 + 0.5 * shares]
    every = [plain, *walk(worst), *walk(coverage)]
    best = None if objective is None else measure(fit(objective))
    if objective is not None and best is not None and any(find_missed(objective, best.estimate)):
        # Soft decisions met what hard ones miss: another point of the frontier may do.
        met = [point for point in every if not any(find_missed(objective, point.estimate))]
        best = max(met, key=lambda point: float(objective.value(point.estimate.confusion)), default=best)
    kept = keep_undominated([*every, best] if best is not None else every)
    if objective is None or best is None or not len(objective.slack(best.estimate.confusion)):
        low, high = min(p.mean_recall for p in kept), max(p.mean_recall for p in kept)
        lowest = max(p.min_recall for p in kept)
        said = f"Decision rules reach a mean recall of {high:.3f}; the highest lowest-class recall is {lowest:.3f}"
        return Frontier(kept, plain, best, None, f"{said}, with mean recalls from {low:.3f} on the frontier.")
    missed = list(find_missed(objective, best.estimate))
    sentence = describe_feasibility(objective, best.estimate, missed, lambda goal: measure(fit(goal)).estimate)
    return Frontier(kept, plain, best, not missed, sentence)


def keep_undominated(points: list[Point]) -> tuple[Point, ...]:
    """The points that no other is at least as good as in all three numbers; one of equals."""
    values = np.round([(p.mean_recall, p.min_recall, p.min_coverage) for p in points], 9)
    kept: list[int] = []
    # Sorted from the best down, a point can only be beaten by one before it.
    for i in sorted(range(len(points)), key=lambda i: tuple(values[i]), reverse=True):
        if not any((values[j] >= values[i]).all() for j in kept):
            kept.append(i)
    return tuple(points[i] for i in kept)
