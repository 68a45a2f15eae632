"""What rules on one model's probabilities can trade off: mean recall against the lowest recall and coverage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from csst.estimation.class_rates import RateEstimate
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.candidates import estimate_candidate, fit_pooled, plain_argmax, soften
from csst.rules.feasibility import describe_feasibility, find_missed, note_missed
from csst.rules.fit import fit_evidence
from csst.rules.possible import refuse_impossible
from csst.rules.rule import DecisionRule, Rule
from csst.rules.threads import use_one_thread
from csst.rules.trades import ClassPoint, GroupPoint, Review, keep_trade, trace_classes, trace_reviews

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
        points: points of the frontier.
        unadjusted: the plain argmax; of a network, the argmax of its softmax.
        best: the objective's own rule; None without an objective.
        feasible: whether the constraints can be met; None without constraints.
        sentence: what is possible, in words.
        trades: the ways from the best mean recall to the best of one other number: each goes from high mean recall
            down, and on it no point beats another in these two numbers.
        class_trades: recall against precision by class index, see `trace_classes`.
        reviews: what a human's answers buy, for a sentence that may leave rows to one; the rest always answers.
        groups: mean recall against the lowest recall of a class in a group of rows, for a fit with groups; the rest is
            about all rows together.
    """

    points: tuple[Point, ...]
    unadjusted: Point
    best: Point | None
    feasible: bool | None
    sentence: str
    trades: dict[str, tuple[Point, ...]] = field(default_factory=dict)
    class_trades: dict[int, tuple[ClassPoint, ...]] = field(default_factory=dict)
    reviews: tuple[Review, ...] = ()
    groups: tuple[GroupPoint, ...] = ()


@use_one_thread
def trace_frontier(
    evidence: HeldOutScores,
    prior: np.ndarray,
    objective: Objective | None = None,
    steps: int = STEPS,
) -> Frontier:
    """Return the trade-off that rules attain on this evidence, under a deployment prior (K,).

    Each rule is the one of its sentence alone (`fit_point`), so that the sentence gives the point again. With an
    objective (bound to the classes) its own rule is added, and the sentence says whether all its constraints can be met
    and else what comes nearest. Of an objective that may abstain, `reviews` say what that buys.
    """
    if isinstance(objective, Sentence) and objective.abstains:
        reviews = trace_reviews(evidence, prior, objective)
        return replace(trace_frontier(evidence, prior, objective.answering, steps), reviews=reviews)

    def fit(goal: Objective) -> Point:
        return fit_point(evidence, prior, goal)

    def walk(sentences: Sequence[str]) -> list[Point]:
        return [fit(read_objective(text).bind(evidence.classes)) for text in sentences]

    recall_points = walk(trade_recall(steps))
    coverage_points = walk(trade_coverage(steps))
    highest_precision = walk(["max min(precision)"])[0].min_precision
    precision_points = walk(trade_precision(recall_points[0].min_precision, highest_precision, steps))

    def trade(points: Sequence[Point], measure: Callable[[Point], float]) -> tuple[Point, ...]:
        return keep_trade(points, lambda point: (point.mean_recall, measure(point)))

    trades = {
        "lowest recall": trade(recall_points, lambda point: point.min_recall),
        "coverage": trade([recall_points[0], *coverage_points], lambda point: point.min_coverage),
        "precision": trade([recall_points[0], *precision_points], lambda point: point.min_precision),
    }
    class_trades = trace_classes(evidence, prior)
    plain_estimate = estimate_candidate(evidence, plain_argmax(evidence.train_prior, evidence.undo), prior)
    argmax_point = make_point(plain_estimate, DecisionRule.identity(evidence.classes))
    points = [argmax_point, *recall_points, *coverage_points]
    own_point = None if objective is None else choose_own_point(objective, fit(objective), points)
    frontier = keep_undominated(points if own_point is None else [*points, own_point])
    if objective is None or own_point is None or not len(objective.slack(own_point.estimate.confusion)):
        return Frontier(frontier, argmax_point, own_point, None, describe_range(frontier), trades, class_trades)
    misses = list(find_missed(objective, own_point.estimate))
    sentence = describe_feasibility(objective, own_point.estimate, misses, lambda goal: fit(goal).estimate)
    return Frontier(frontier, argmax_point, own_point, not misses, sentence, trades, class_trades)


def trade_recall(steps: int) -> list[str]:
    """Return sentences from the highest mean recall to the highest lowest recall."""
    shares = np.linspace(0, 1, steps)[1:-1]
    mixtures = [f"max {1 - share:.6g}*mean(recall) + {share:.6g}*min(recall)" for share in shares]
    return ["max mean(recall)", *mixtures, "max min(recall)"]


def trade_coverage(steps: int) -> list[str]:
    """Return sentences that ask for more and more coverage of every class."""
    shares = 0.5 + 0.5 * np.linspace(0, 1, steps)
    return [f"max mean(recall) s.t. coverage >= {share:.6g}/K" for share in shares]


def trade_precision(low: float, high: float, steps: int) -> list[str]:
    """Return sentences that ask for more and more precision of every class, in hundredths."""
    bounds = np.linspace(min(low, high), high, min(steps, PRECISION_STEPS))
    hundredths = dict.fromkeys(np.floor(100 * bounds) / 100)
    return [f"max mean(recall) s.t. precision >= {bound:.6g}" for bound in hundredths]


def choose_own_point(objective: Objective, own_point: Point, points: Sequence[Point]) -> Point:
    """Return the point of an objective's own rule, or the best of the others that meet constraints which it misses.

    Soft decisions may meet what hard ones miss.
    """
    if not any(find_missed(objective, own_point.estimate)):
        return own_point
    feasible_points = [point for point in points if not any(find_missed(objective, point.estimate))]
    return max(feasible_points, key=lambda point: float(objective.value(point.estimate.confusion)), default=own_point)


def describe_range(points: Sequence[Point]) -> str:
    """Return what rules reach, in a sentence."""
    recalls = [point.mean_recall for point in points]
    return (
        f"Decision rules reach a mean recall of {max(recalls):.3f}; the highest lowest-class recall is "
        f"{max(point.min_recall for point in points):.3f}, with mean recalls from {min(recalls):.3f} on the frontier."
    )


def fit_point(evidence: HeldOutScores, prior: np.ndarray, objective: Objective) -> Point:
    """Return the pooled rule for an objective that is bound to the classes, and what it is expected to do.

    Args:
        evidence: scores that the rule is fitted on.
        prior: the deployment prior, (K,).
        objective: bound to the classes.
    """
    goal = soften(objective, prior, evidence)
    candidate = fit_pooled(goal, evidence)
    estimate = estimate_candidate(evidence, candidate, prior)
    rule = candidate.as_rule(evidence.train_prior, evidence.undo)
    return replace(make_point(estimate, rule), sentence=str(objective))


def fit_again(evidence: HeldOutScores, prior: np.ndarray, objective: Objective) -> tuple[Rule, tuple[str, ...]]:
    """Return the rule of another sentence on scores that are there already, and what to be wary of.

    Args:
        evidence: scores that the rule is fitted on.
        prior: the deployment prior, (K,).
        objective: bound to the classes; bounds that no classifier can meet are refused.
    """
    refuse_impossible(objective, prior)
    if objective.abstains:
        fitted = fit_evidence(evidence, objective, prior)
        return fitted.rule, fitted.notes
    point = fit_point(evidence, prior, objective)
    return point.rule, note_missed(soften(objective, prior, evidence), point.estimate)


def make_point(estimate: RateEstimate, rule: DecisionRule) -> Point:
    """Return the point of a rule with an estimate of its rates."""
    c = estimate.confusion
    return Point(
        float(c.recall.mean()), float(c.recall.min()), float(c.coverage.min()), float(c.accuracy), rule, estimate
    )


def keep_undominated(points: list[Point]) -> tuple[Point, ...]:
    """Return the points that no other is at least as good as in all three numbers; one of equals."""
    values = np.round([(p.mean_recall, p.min_recall, p.min_coverage) for p in points], 9)
    frontier: list[int] = []
    # Sorted from the best down, a point can only be beaten by one before it.
    for i in sorted(range(len(points)), key=lambda i: tuple(values[i]), reverse=True):
        if not any((values[j] >= values[i]).all() for j in frontier):
            frontier.append(i)
    return tuple(points[i] for i in frontier)
