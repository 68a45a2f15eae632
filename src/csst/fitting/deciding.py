"""Other decision rules for a model that was just fitted, without fitting it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import KeptEvidence
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.rules import Frontier, fit_evidence, trace_frontier
from csst.rules.fit import bind
from csst.rules.groups import bind_groups, fit_groups
from csst.rules.possible import refuse_impossible
from csst.rules.trades import check_groups, trace_groups


def read_evidence(fitted: FittedModel) -> KeptEvidence:
    """Return what rules for a model are fitted to, right after its fit."""
    details = fitted.full_details
    prior = fitted.expected.confusion.prior.numpy()
    if details.adjusted is not None and fitted.rule is not None:
        return KeptEvidence(details.adjusted.evidence, prior)
    return KeptEvidence(details.outputs.evidence(details.train_prior, fitted.class_names), prior)


def decide(fitted: FittedModel, objective: Any, seed: int = 0, per_group: bool = False) -> FittedModel:
    """Return the same model with the decision rule for another objective, judged out of fold.

    Args:
        fitted: the model, right after fitting.
        objective: a sentence, a short name or an Objective.
        seed: seed of the folds that judge the rule.
        per_group: for a sentence about groups of rows, whether each group gets a rule of its own.
    """
    if read_objective(objective).confidence is not None:
        raise InputError("a rule fitted now has no fresh labels to be certified by: leave the confidence out")
    evidence, prior = read_evidence(fitted)
    bound = bind(objective, evidence, fitted.class_names)
    details = fitted.full_details
    groups = None if details.adjusted is None or details.adjusted.groups is None else details.adjusted.groups
    if isinstance(bound, Sentence) and bound.column is not None:
        row_groups = None if groups is None else groups.groups
        sentence = bind_groups(bound, row_groups)
        assert groups is not None
        rule = fit_groups(evidence, sentence, groups.groups, prior, seed, per_group=per_group)
    else:
        refuse_impossible(bound, prior)
        rule = fit_evidence(evidence, bound, prior, seed)
    outputs = details.adjusted_outputs or details.outputs
    new_details = replace(details, adjusted=rule, adjusted_outputs=outputs, notes=rule.notes)
    return replace(fitted, rule=rule.rule, objective=rule.objective, details=new_details)


def explore(fitted: FittedModel, objective: Any = None) -> Frontier:
    """Return what rules for this model can trade off.

    Args:
        fitted: the model, right after fitting.
        objective: a sentence whose bounds are checked; None for the objective of the fit.
    """
    evidence, prior = read_evidence(fitted)
    goal = fitted.objective if objective is None else bind(objective, evidence, fitted.class_names)
    # Rules along the frontier are estimates: no fresh labels certify them.
    goal = replace(goal, confidence=None) if isinstance(goal, Sentence) else goal
    rule = fitted.full_details.adjusted
    if rule is None or rule.groups is None:
        return trace_frontier(evidence, prior, goal)
    groups = rule.groups
    stated_goal = replace(groups.sentence, confidence=None) if objective is None else goal
    plain_goal = stated_goal.ungrouped if isinstance(stated_goal, Sentence) else stated_goal
    points = trace_groups(evidence, groups.groups, prior, groups.is_per_group, fitted.class_names)
    frontier = replace(trace_frontier(evidence, prior, plain_goal), groups=points)
    if not isinstance(stated_goal, Sentence) or stated_goal.column is None or not stated_goal.constraints:
        return frontier
    sentence = bind_groups(stated_goal, groups.groups)
    feasible, description = check_groups(evidence, groups.groups, prior, groups.is_per_group, sentence)
    return replace(frontier, feasible=feasible, sentence=description)
