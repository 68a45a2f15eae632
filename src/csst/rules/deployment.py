"""The class prior under which an objective is measured, and whether any classifier could meet it there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from csst.errors import InputError
from csst.estimation.held_out_scores import HeldOutScores, read_prior
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.possible import refuse_impossible


def read_deployment_prior(prior: Any, evidence: HeldOutScores) -> np.ndarray:
    """Return the class prior (K,) that a user names.

    Names are "labels" or "validation", "train" or "labeled", "unlabeled" and "uniform"; numbers may be a text such as
    "0.9, 0.1".
    """
    unlabeled = evidence.unlabeled_prior if is_unlabeled(prior) and evidence.has_unlabeled else None
    return name_prior(prior, evidence.fractions, evidence.labeled_prior, unlabeled)


def name_prior(prior: Any, judged: np.ndarray, learned: np.ndarray, unlabeled: np.ndarray | None) -> np.ndarray:
    """Return the prior of a name, given fractions (K,) of labels that judge, labels learned from, unlabeled rows."""
    priors = {"labels": judged, "train": learned, "validation": judged, "labeled": learned}
    if is_unlabeled(prior):
        if unlabeled is None:
            raise InputError("deployment_prior 'unlabeled' needs unlabeled rows; there are none: pass the fractions")
        priors["unlabeled"] = unlabeled
    if isinstance(prior, str) and "," in prior:
        try:
            prior = [float(part) for part in prior.split(",")]
        except ValueError:
            raise InputError(f"deployment_prior holds one number per class; found {prior!r}") from None
    return read_prior(prior, "deployment_prior", priors, len(judged))


def is_unlabeled(prior: Any) -> bool:
    """Return whether a prior is the word for the balance of unlabeled rows."""
    return isinstance(prior, str) and prior == "unlabeled"


def refuse_contradiction(
    objective: Objective | str, learned: Any, judged: Any, class_names: Sequence[str], deployment_prior: Any = None
) -> None:
    """Raise before anything is trained if no classifier at all could meet the constraints (`csst.rules.possible`).

    Args:
        objective: a sentence, a short name or an Objective.
        learned: labels to learn from, class indices (n,), of every class.
        judged: labels that judge, class indices.
        class_names: names of all classes.
        deployment_prior: see `fit_rule`; None for the class balance of the labels that judge. That of unlabeled rows is
            not known yet, and nothing is refused.
    """
    if is_unlabeled(deployment_prior):
        return
    counts = [np.bincount(np.asarray(labels), minlength=len(class_names)) for labels in (learned, judged)]
    fractions = [count / count.sum() for count in counts]
    prior = name_prior("labels" if deployment_prior is None else deployment_prior, fractions[1], fractions[0], None)
    sentence = read_objective(objective).bind(len(class_names), class_names)
    refuse_impossible(sentence.bind_prior(torch.from_numpy(fractions[0])), prior)
