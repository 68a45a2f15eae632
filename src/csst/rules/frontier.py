"""What rules on one model's probabilities can trade off: mean recall against the lowest recall and coverage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from csst.estimation.class_rates import RateEstimate, estimate_rates
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.candidates import Candidate, fit_pooled, plain_argmax, sharpness
from csst.rules.class_trades import ClassPoint, trace_classes
from csst.rules.feasibility import describe_feasibility, find_missed
from csst.rules.rule import DecisionRule
from csst.rules.soft_objective import SoftObjective
from csst.rules.threads import use_one_thread

#: how many steps from one end of each trade-off to the other: tenths, so that the sentences are short
STEPS = 11
#: the same for precision, whose rules take longest
PRECISION_STEPS = 6


@dataclass(frozen=True, eq=False)
class Point:
    """What one rule is expected to do, and the sentence that it is the rule of."""

    mean_recall: float
    min_recall: float
    min_coverage: float
    accuracy: float
    rule: DecisionRule
    estimate: RateEstimate
    sentence: str = ""

    def as_dict(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("mean_recall", "min_recall", "min_coverage", "accuracy")}

    @property
    def min_precision(self) -> float:
        """The lowest precision of a class; 0 where one is never predicted."""
        return float(self.estimate.confusion.precision.min())


@dataclass(frozen=True, eq=False)
class Frontier:
    """The points that no other point beats in mean recall, lowest recall and coverage, from high mean recall down.

    All are estimated from the rows they were fitted on: a picture of what is there, not a comparison.

    Args:
        points: of the frontier.
        unadjusted: the plain argmax, of a network that of its softmax.
        best: the objective's own rule; None without an objective.
        feasible: whether the constraints can be met; None without constraints.
        sentence: what is possible, in words.
        trades: the ways from the best mean recall to the best of one other number: each goes from high mean recall
            down, and on it no point beats another in these two numbers.
        class_trades: of a class (index), its recall against its precision, see `trace_classes`.
    """

    points: tuple[Point, ...]
    unadjusted: Point
    best: Point | None
    feasible: bool | None
    sentence: str
    trades: dict[str, tuple[Point, ...]] = field(default_factory=dict)
    class_trades: dict[int, tuple[ClassPoint, ...]] = field(default_factory=dict)


@use_one_thread
def trace_frontier(
    evidence: HeldOutScores,
    prior: np.ndarray,
    objective: Objective | None = None,
    undo: torch.Tensor | None = None,
    steps: int = STEPS,
) -> Frontier:
    """The trade-off that rules attain on this evidence, under a deployment prior (K,).

    Each rule is the one of its sentence alone (`fit_point`), so that the sentence gives the point again. With an
    objective (bound to the classes) its own rule is added, and the sentence says whether all its constraints can be met
    and else what comes nearest.
    """

    def fit(goal: Objective) -> Point:
        return fit_point(evidence, prior, goal, undo)

    def walk(sentences: Sequence[str]) -> list[Point]:
        return [fit(read_objective(text).bind(evidence.classes)) for text in sentences]

    shares = np.linspace(0, 1, steps)
    plain = measure_plain(evidence, prior, undo)
    between = [f"max {1 - share:.6g}*mean(recall) + {share:.6g}*min(recall)" for share in shares[1:-1]]
    lowest = walk(["max mean(recall)", *between, "max min(recall)"])
    coverage = walk([f"max mean(recall) s.t. coverage >= {share:.6g}/K" for share in 0.5 + 0.5 * shares])
    highest = walk(["max min(precision)"])[0].min_precision
    bounds = np.linspace(min(lowest[0].min_precision, highest), highest, min(steps, PRECISION_STEPS))
    hundredths = dict.fromkeys(np.floor(100 * bounds) / 100)
    precision = walk([f"max mean(recall) s.t. precision >= {bound:.6g}" for bound in hundredths])
    trades = {
        "lowest recall": keep_trade(lowest, lambda point: point.min_recall),
        "coverage": keep_trade([lowest[0], *coverage], lambda point: point.min_coverage),
        "precision": keep_trade([lowest[0], *precision], lambda point: point.min_precision),
    }
    class_trades = trace_classes(evidence, prior)
    every = [plain, *lowest, *coverage]
    best = None if objective is None else fit(objective)
    if objective is not None and best is not None and any(find_missed(objective, best.estimate)):
        # Soft decisions met what hard ones miss: another point of the frontier may do.
        met = [point for point in every if not any(find_missed(objective, point.estimate))]
        best = max(met, key=lambda point: float(objective.value(point.estimate.confusion)), default=best)
    kept = keep_undominated([*every, best] if best is not None else every)
    if objective is None or best is None or not len(objective.slack(best.estimate.confusion)):
        low, high = min(p.mean_recall for p in kept), max(p.mean_recall for p in kept)
        sentence = (
            f"Decision rules reach a mean recall of {high:.3f}; the highest lowest-class recall is "
            f"{max(p.min_recall for p in kept):.3f}, with mean recalls from {low:.3f} on the frontier."
        )
        return Frontier(kept, plain, best, None, sentence, trades, class_trades)
    missed = list(find_missed(objective, best.estimate))
    sentence = describe_feasibility(objective, best.estimate, missed, lambda goal: fit(goal).estimate)
    return Frontier(kept, plain, best, not missed, sentence, trades, class_trades)


def fit_point(
    evidence: HeldOutScores, prior: np.ndarray, objective: Objective, undo: torch.Tensor | None = None
) -> Point:
    """The pooled rule for an objective that is bound to the classes, and what it is expected to do.

    Args:
        evidence: what it is fitted on.
        prior: the deployment prior, (K,).
        objective: bound to the classes.
        undo: see `DecisionRule`.
    """
    smooth = SoftObjective(objective, prior, sharpness(evidence))
    return replace(measure_point(evidence, fit_pooled(smooth, evidence), undo), sentence=str(objective))


def measure_point(evidence: HeldOutScores, candidate: Candidate, undo: torch.Tensor | None = None) -> Point:
    """What a way to decide is expected to do, under its deployment prior."""
    decisions = candidate.decide(evidence.scores), candidate.decide(evidence.soft_scores)
    estimate = estimate_rates(evidence, *decisions, candidate.prior)
    return make_point(estimate, candidate.as_rule(evidence.train_prior, undo))


def measure_plain(evidence: HeldOutScores, prior: np.ndarray, undo: torch.Tensor | None = None) -> Point:
    """What the model does without a rule; undo: what took the gain out of a network's softmax, see `DecisionRule`."""
    candidate = plain_argmax(evidence.train_prior, undo)
    estimate = estimate_rates(
        evidence, candidate.decide(evidence.scores), candidate.decide(evidence.soft_scores), prior
    )
    return make_point(estimate, DecisionRule.identity(evidence.classes))


def make_point(estimate: RateEstimate, rule: DecisionRule) -> Point:
    """The numbers of an estimate, and the rule it is of."""
    c = estimate.confusion
    mean, low, covered = float(c.recall.mean()), float(c.recall.min()), float(c.coverage.min())
    return Point(mean, low, covered, float(c.accuracy), rule, estimate)


def keep_trade(points: Sequence[Point], gain: Callable[[Point], float]) -> tuple[Point, ...]:
    """The points from high mean recall down, each with more of the other number than those before it."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.mean_recall, gain(point)), reverse=True):
        if not kept or gain(point) > gain(kept[-1]) + 1e-9:
            kept.append(point)
    return tuple(kept)


def keep_undominated(points: list[Point]) -> tuple[Point, ...]:
    """The points that no other is at least as good as in all three numbers; one of equals."""
    values = np.round([(p.mean_recall, p.min_recall, p.min_coverage) for p in points], 9)
    kept: list[int] = []
    # Sorted from the best down, a point can only be beaten by one before it.
    for i in sorted(range(len(points)), key=lambda i: tuple(values[i]), reverse=True):
        if not any((values[j] >= values[i]).all() for j in kept):
            kept.append(i)
    return tuple(points[i] for i in kept)
