"""Other decision rules for a model that was just fitted, without fitting it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from csst.errors import InputError
from csst.estimation.held_out_scores import HeldOutScores
from csst.fitting.fitted_model import FittedModel
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.rules import Frontier, fit_evidence, trace_frontier
from csst.rules.fit import bind


def read_evidence(fitted: FittedModel) -> tuple[HeldOutScores, np.ndarray, Tensor | None]:
    """Return what rules are fitted to: the scores of labels out of fold, the deployment prior, the gain's inverse."""
    details = fitted.full_details
    prior = fitted.expected.confusion.prior.numpy()
    if details.adjusted is not None and fitted.rule is not None:
        return details.adjusted.evidence, prior, fitted.rule.undo
    evidence = details.outputs.evidence(details.train_prior, fitted.class_names)
    return evidence, prior, details.outputs.gain.softmax_inverse


def decide(fitted: FittedModel, objective: Any, seed: int = 0) -> FittedModel:
    """Return the same model with the decision rule for another objective, judged out of fold.

    Args:
        fitted: the model, right after fitting.
        objective: a sentence, a short name or an Objective.
        seed: seed of the folds that judge the rule.
    """
    if read_objective(objective).confidence is not None:
        raise InputError("a rule fitted now has no fresh labels to be certified by: leave the confidence out")
    evidence, prior, undo = read_evidence(fitted)
    bound = bind(objective, evidence, fitted.class_names)
    rule = fit_evidence(evidence, bound, prior, undo, seed)
    details = fitted.full_details
    outputs = details.adjusted_outputs or details.outputs
    new_details = replace(details, adjusted=rule, adjusted_outputs=outputs, notes=rule.notes)
    return replace(fitted, rule=rule.rule, objective=bound, details=new_details)


def explore(fitted: FittedModel, objective: Any = None) -> Frontier:
    """Return what rules for this model can trade off.

    Args:
        fitted: the model, right after fitting.
        objective: whose bounds are checked; None for that of the fit.
    """
    evidence, prior, undo = read_evidence(fitted)
    goal = fitted.objective if objective is None else bind(objective, evidence, fitted.class_names)
    # Rules along the frontier are estimates: no fresh labels certify them.
    goal = replace(goal, confidence=None) if isinstance(goal, Sentence) else goal
    return trace_frontier(evidence, prior, goal, undo)
