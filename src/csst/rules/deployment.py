"""The class prior under which an objective is measured, and whether any classifier could meet it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from csst.errors import InputError
from csst.estimation.class_rates import RateEstimate
from csst.estimation.held_out_scores import HeldOutScores, read_prior
from csst.estimation.unlabeled_prior import estimate_class_balance
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.possible import refuse_impossible

#: a value or slack that differs by this much between the deployment prior and the labels' balance is said
NOTED_GAP = 0.02
#: fractions below this count as this where they are compared
TINY = 1e-6


def read_deployment(prior: Any, evidence: HeldOutScores) -> tuple[np.ndarray, HeldOutScores]:
    """Return the class prior (K,) that a user names, and the evidence, which knows how sure an estimated one is.

    Names are "labels" or "validation", "train" or "labeled", "unlabeled" and "uniform"; numbers may be a text such as
    "0.9, 0.1". "unlabeled" and None are estimated from labels and unlabeled rows, None also without any of the latter.
    """
    if prior is None or (is_unlabeled(prior) and evidence.has_unlabeled):
        balance = estimate_class_balance(evidence)
        return balance.prior, replace(evidence, prior_covariance=balance.covariance)
    return name_prior(prior, evidence.fractions, evidence.labeled_prior, None), evidence


def note_balance(objective: Objective, estimate: RateEstimate, labeled: np.ndarray, names: Sequence[str]) -> str:
    """Return which class balance an objective was measured under, if that matters and is not the labels'; else "".

    Args:
        objective: bound to the classes.
        estimate: rates under the deployment prior.
        labeled: class fractions of the labels, (K,).
        names: K names.
    """
    if estimate.prior_covariance is None:
        return ""
    prior = estimate.confusion.prior.numpy()
    of_labels = estimate.with_prior(labeled).confusion
    gaps = [(objective.value(c), *objective.slack(c).tolist()) for c in (estimate.confusion, of_labels)]
    if np.abs(np.subtract(*(np.array(values, dtype=float) for values in gaps))).max() < NOTED_GAP:
        return ""
    k = int(np.abs(np.log(np.maximum(prior, TINY) / np.maximum(labeled, TINY))).argmax())
    error = float(estimate.prior_covariance[k, k] ** 0.5)
    return (
        "the objective depends on how frequent classes are, and was measured under the balance that labels and "
        f"unlabeled rows suggest: {names[k]!r} {prior[k]:.3f} ± {error:.3f}, of the labels {labeled[k]:.3f}; if you "
        "know it, give deployment_prior as numbers, or 'labeled' for the balance of the labels"
    )


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
