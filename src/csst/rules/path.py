"""Rules from cautious to bold: the sentence solved with every bound tightened by fewer and fewer standard errors.

The path is fixed by the labels of the fit and the unlabeled rows, before a label that certifies is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from csst.estimation.class_rates import RateEstimate, count_unlabeled_worth, estimate_rates
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.confusion import make_unchecked
from csst.maths.objectives import Objective
from csst.rules.bias_search import WeightedRows
from csst.rules.candidates import Candidate, fit_pooled, hard_rates, soften

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
        caution: standard errors by which the bound that is nearest to being missed is met.
        value: estimated value of the objective.
    """

    candidate: Candidate
    estimate: RateEstimate
    caution: float
    value: float


def make_path(evidence: HeldOutScores, objective: Objective, prior: np.ndarray) -> list[PathRule]:
    """Return at most 17 rules from cautious to bold.

    Rules that decide alike are one, and a rule that is bolder than another without a higher value is left out.

    Args:
        evidence: scores of the labels of the fit and of unlabeled rows.
        objective: bound to the classes.
        prior: the deployment prior, (K,).

    Returns:
        The rules, the most cautious first.
    """
    evidence = evidence.thin(MOST_ROWS)
    goal = soften(objective, prior, evidence)
    rows = WeightedRows.pool(evidence)
    # How many labels the rates of each class are worth.
    worth = np.maximum(1.0, evidence.counts + count_unlabeled_worth(evidence))
    boldest_rule = fit_pooled(goal, evidence, margins=np.zeros(len(goal.margins)))
    errors = goal.measure_errors(hard_rates(rows, boldest_rule.decide(rows.scores)), worth)
    perfect = make_unchecked(torch.eye(evidence.classes, dtype=torch.float64), goal.prior)
    room = LARGEST_PART * np.maximum(goal.objective.payoff(perfect).numpy(), 0)
    rules = []
    decisions_before: list[np.ndarray] = []
    for margin in MARGINS:
        candidate = boldest_rule
        if margin > 0:
            candidate = fit_pooled(goal, evidence, margins=np.minimum(margin * errors, room))
        labeled_decisions = candidate.decide(evidence.scores)
        soft_decisions = candidate.decide(evidence.soft_scores)
        decisions = np.concatenate([labeled_decisions, soft_decisions])
        if any(np.array_equal(decisions, earlier_decisions) for earlier_decisions in decisions_before):
            continue
        decisions_before.append(decisions)
        estimate = estimate_rates(evidence, labeled_decisions, soft_decisions, prior)
        confusion = estimate.confusion
        errors_of_rule = goal.measure_errors(confusion.rates.numpy(), worth)[goal.constraints]
        # A bound that is met without any spread in the labels is no surer than one label's worth.
        distances = goal.objective.slack(confusion).numpy() / np.maximum(errors_of_rule, 1 / worth.sum())
        rules.append(PathRule(candidate, estimate, float(distances.min()), float(goal.stated.value(confusion))))
    path: list[PathRule] = []
    for rule in sorted(rules, key=lambda rule: -rule.caution):
        if not path or rule.value > path[-1].value:
            path.append(rule)
    return path
