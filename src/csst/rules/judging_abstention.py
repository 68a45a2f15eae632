"""Rules that may give no answer, and rules that always answer, judged by rows they were not fitted on."""

from __future__ import annotations

import numpy as np

from csst.estimation.folds import deal_folds
from csst.estimation.held_out_scores import HeldOutScores
from csst.rules.abstention import (
    Abstaining,
    estimate_abstaining,
    find_abstention_bounds,
    fit_abstaining,
    fit_answering,
)
from csst.rules.candidates import Candidate
from csst.rules.judging import FEW_FOLDS, FOLD_SEED, FOLDS, JUDGING_ROWS, MANY_LABELS, Judged, measure_errors
from csst.rules.soft_objective import SoftObjective


def judge_rule(
    smooth: SoftObjective,
    evidence: HeldOutScores,
    decisions: np.ndarray,
    rule: Abstaining | Candidate,
    margins: np.ndarray,
) -> Judged:
    """Return what decisions on labeled rows, each by a rule fitted without it, and unlabeled rows say of a rule.

    margins: by how much the bounds were to be met, (m,). They are the same for every rule that is judged: a rule that
    leaves no row out and just meets its bounds would else be preferred to one that meets them safely.
    """
    estimate = estimate_abstaining(evidence, decisions, rule, smooth.prior.numpy())
    errors = measure_errors(smooth, estimate)
    _, clear_slack = smooth.with_margins(-errors).judge(estimate.confusion)
    # Bounds on abstention, which are met to the last row or nearly, may be missed by a standard error.
    margins = np.where(find_abstention_bounds(smooth), -errors, margins)
    value, slack = smooth.with_margins(margins).judge(estimate.confusion)
    soft_decisions = rule.decide(evidence.soft_scores) if evidence.has_unlabeled else decisions
    miss = max(0.0, -float(slack))
    clear_miss = max(0.0, -float(clear_slack))
    return Judged(decisions, soft_decisions, estimate, float(value), miss, clear_miss, False)


def judge_abstaining(
    smooth: SoftObjective,
    evidence: HeldOutScores,
    answering: Candidate,
    abstaining: Abstaining,
    margins: np.ndarray,
    seed: int,
) -> tuple[Judged, Judged]:
    """Return how a rule that always answers and one that may abstain do on rows that they were not fitted on.

    Args:
        smooth: the objective.
        evidence: scores of all rows.
        answering: the rule that always answers.
        abstaining: the rule that may give no answer.
        margins: by how much its bounds were to be met, (m,).
        seed: seed of the folds.
    """
    evidence = evidence.thin(JUDGING_ROWS)
    number = FOLDS if len(evidence.labels) < MANY_LABELS else FEW_FOLDS
    folds = deal_folds(evidence.labels, min(number, len(evidence.labels)), seed + FOLD_SEED)
    decisions = np.zeros((2, len(evidence.labels)), dtype=np.int64)
    for fold in np.unique(folds):
        fold_rows = np.flatnonzero(folds == fold)
        part = evidence.part(np.flatnonzero(folds != fold))
        candidates = fit_answering(smooth, part)
        rule, _ = fit_abstaining(smooth, part, candidates, 0.0, margins)
        decisions[0, fold_rows] = candidates[-1].decide(evidence.scores[fold_rows])
        decisions[1, fold_rows] = rule.decide(evidence.scores[fold_rows])
    return (
        judge_rule(smooth, evidence, decisions[0], answering, margins),
        judge_rule(smooth, evidence, decisions[1], abstaining, margins),
    )
