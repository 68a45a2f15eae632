"""A rule for another sentence, on scores that are there already."""

from __future__ import annotations

import numpy as np
import torch

from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.objectives import Objective
from csst.rules.candidates import sharpness
from csst.rules.feasibility import note_missed
from csst.rules.fit import fit_evidence
from csst.rules.frontier import fit_point
from csst.rules.possible import refuse_impossible
from csst.rules.rule import Rule
from csst.rules.soft_objective import SoftObjective


def fit_again(
    evidence: HeldOutScores, prior: np.ndarray, objective: Objective, undo: torch.Tensor | None = None
) -> tuple[Rule, tuple[str, ...]]:
    """Return the rule of a point of the frontier, or one that may give no answer, and what to be wary of.

    Args:
        evidence: what it is fitted on.
        prior: the deployment prior, (K,).
        objective: bound to the classes; bounds that no classifier can meet are refused.
        undo: see `DecisionRule`.
    """
    refuse_impossible(objective, prior)
    if objective.abstains:
        fitted = fit_evidence(evidence, objective, prior, undo)
        return fitted.rule, fitted.notes
    point = fit_point(evidence, prior, objective, undo)
    return point.rule, note_missed(SoftObjective(objective, prior, sharpness(evidence)), point.estimate)
