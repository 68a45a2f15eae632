"""Rules that may give no answer, and rules that always answer, judged by rows they were not fitted on."""

from __future__ import annotations

import numpy as np

from csst.estimation.held_out_scores import HeldOutScores
from csst.rules.abstention import Abstaining, estimate_abstaining, find_abstention_bounds, fit_answering, search_rule
from csst.rules.candidates import Candidate
from csst.rules.judging import Judged, measure_errors, split_folds
from csst.rules.soft_objective import SoftObjective


def judge_abstaining(
    goal: SoftObjective, evidence: HeldOutScores, answering: Candidate, abstaining: Abstaining, seed: int
) -> list[Judged]:
    """Judge a rule that always answers and one that may abstain by rows that they were not fitted on.

    Both are judged with the margins of the goal: a rule that leaves no row out and just meets its bounds would else be
    preferred to one that meets them safely.

    Args:
        goal: the objective, with the margins by which its bounds were to be met.
        evidence: the rows that judge.
        answering: the rule that always answers.
        abstaining: the rule that may give no answer.
        seed: seed of the folds.
    """
    decisions = np.zeros((2, len(evidence.labels)), dtype=np.int64)
    for fold_rows, part in split_folds(evidence, seed):
        candidates = fit_answering(goal, part)
        decisions[0, fold_rows] = candidates[-1].decide(evidence.scores[fold_rows])
        decisions[1, fold_rows] = search_rule(goal, part, candidates).decide(evidence.scores[fold_rows])
    verdicts = []
    rules: tuple[Candidate | Abstaining, ...] = (answering, abstaining)
    for rule, decisions_of_folds in zip(rules, decisions, strict=True):
        estimate = estimate_abstaining(evidence, decisions_of_folds, rule, goal.prior.numpy())
        # Bounds on abstention, which are met to the last row or nearly, may be missed by a standard error.
        margins = np.where(find_abstention_bounds(goal), -measure_errors(goal, estimate), goal.margins)
        soft_decisions = rule.decide(evidence.soft_scores) if evidence.has_unlabeled else decisions_of_folds
        verdicts.append(Judged.read(goal, margins, estimate, decisions_of_folds, soft_decisions))
    return verdicts
