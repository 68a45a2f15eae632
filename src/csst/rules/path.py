"""Rules from cautious to bold: the sentence solved with every bound tightened by fewer and fewer standard errors.

The path is fixed by the labels of the fit and the unlabeled rows, before a label that certifies is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from csst.estimation.class_rates import UNLABELED_WORTH, RateEstimate, estimate_rates
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.confusion import make_unchecked
from csst.maths.objectives import Objective
from csst.rules.bias_search import WeightedRows
from csst.rules.candidates import Candidate, fit_pooled, hard_rates, sharpness
from csst.rules.soft_objective import SoftObjective

#: by how many standard errors every bound is tightened, rule by rule
MARGINS = tuple(np.arange(4.0, -0.01, -0.25).tolist())
#: unlabeled rows that the path is fitted on: there are up to 17 fits
MOST_ROWS = 2000
#: a bound is tightened at most to this part of the way to what a perfect classifier has
LARGEST_PART = 0.9


@dataclass(frozen=True, eq=False)
class PathRule:
    """A rule of the path.

    Args:
        candidate: what decides.
        estimate: its rates by the rows that it was fitted on.
        caution: by how many standard errors the bound that is nearest to being missed is met.
        value: of the objective, as estimated.
    """

    candidate: Candidate
    estimate: RateEstimate
    caution: float
    value: float


def fit_tightened(evidence: HeldOutScores, objective: Objective, prior: np.ndarray, margins: np.ndarray) -> Candidate:
    """Return the rule that solves the objective with its bounds tightened.

    Args:
        evidence: what it is fitted on.
        objective: bound to the classes.
        prior: the deployment prior, (K,).
        margins: by how much each payoff that is a constraint is to be met, (m,).

    Returns:
        The rule.
    """
    return fit_pooled(SoftObjective(objective, prior, sharpness(evidence)), evidence, margins=margins)


def measure_margin(evidence: HeldOutScores, goal: SoftObjective, rule: Candidate) -> tuple[np.ndarray, np.ndarray]:
    """Return one standard error of every constraint under a rule, and the largest margin that makes sense.

    Args:
        evidence: labels of the fit and unlabeled rows.
        goal: the objective.
        rule: that solves it.

    Returns:
        Standard errors, 0 for payoffs that are no constraint, (m,), and the largest margins, (m,).
    """
    rows = WeightedRows.pool(evidence)
    rates = hard_rates(rows, rule.decide(rows.scores))
    errors = goal.measure_errors(rates, _worth(evidence))
    perfect = make_unchecked(torch.eye(evidence.classes, dtype=torch.float64), goal.prior)
    return errors, LARGEST_PART * np.maximum(goal.objective.payoff(perfect).numpy(), 0)


def make_path(evidence: HeldOutScores, objective: Objective, prior: np.ndarray) -> list[PathRule]:
    """Return at most 17 rules from cautious to bold.

    Rules that decide alike are one, and a rule that is bolder than another without a higher value is left out.

    Args:
        evidence: of the labels of the fit and of unlabeled rows.
        objective: bound to the classes.
        prior: the deployment prior, (K,).

    Returns:
        The rules, the most cautious first.
    """
    evidence = evidence.thin(MOST_ROWS)
    goal = SoftObjective(objective, prior, sharpness(evidence))
    rules = []
    decisions_before: list[np.ndarray] = []
    boldest = fit_tightened(evidence, objective, prior, np.zeros(len(goal.margins)))
    errors, room = measure_margin(evidence, goal, boldest)
    for margin in MARGINS:
        candidate = boldest
        if margin > 0:
            candidate = fit_tightened(evidence, objective, prior, np.minimum(margin * errors, room))
        labeled_decisions = candidate.decide(evidence.scores)
        soft_decisions = candidate.decide(evidence.soft_scores)
        decisions = np.concatenate([labeled_decisions, soft_decisions])
        if any(np.array_equal(decisions, earlier_decisions) for earlier_decisions in decisions_before):
            continue
        decisions_before.append(decisions)
        estimate = estimate_rates(evidence, labeled_decisions, soft_decisions, prior)
        rules.append(_measure(candidate, goal, estimate, _worth(evidence)))
    rules_by_caution = sorted(rules, key=lambda rule: -rule.caution)
    path: list[PathRule] = []
    for rule in rules_by_caution:
        if not path or rule.value > path[-1].value:
            path.append(rule)
    return path


def count_passing(path: Sequence[PathRule], measure_p: Callable[[PathRule], float], delta: float) -> int:
    """Return how many rules pass in a row, from the cautious end on.

    Args:
        path: from cautious to bold.
        measure_p: returns the largest p-value of a rule's bounds.
        delta: 1 - confidence.
    """
    return next((place for place, rule in enumerate(path) if measure_p(rule) > delta), len(path))


def _measure(candidate: Candidate, goal: SoftObjective, estimate: RateEstimate, worth: np.ndarray) -> PathRule:
    objective = goal.objective
    confusion = estimate.confusion
    slack = objective.slack(confusion).numpy()
    errors = goal.measure_errors(confusion.rates.numpy(), worth)[goal.constraints]
    # A bound that is met without any spread in the labels is no surer than one label's worth.
    caution = float((slack / np.maximum(errors, 1 / worth.sum())).min())
    return PathRule(candidate, estimate, caution, float(goal.stated.value(confusion)))


def _worth(evidence: HeldOutScores) -> np.ndarray:
    """How many labels every class's rates are worth, (K,)."""
    return np.maximum(1.0, evidence.counts + np.minimum(UNLABELED_WORTH, evidence.soft_posterior.sum(0)))
