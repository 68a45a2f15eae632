"""Which rows of a pool to label next, for a fitted model (`csst.estimation.labeling` has the rule)."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax
from torch import Tensor

from csst.errors import InputError
from csst.estimation.held_out_scores import take_out
from csst.estimation.labeling import allocate_labels, rank_rows
from csst.estimation.shift import estimate_prior
from csst.fitting.fitted_model import FittedModel
from csst.rules.rule import undo_gain


def suggest_rows(fitted: FittedModel, probs: Tensor, labeled: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the rows of a pool to label next, the most useful first, (count,).

    Args:
        fitted: the model, right after fitting.
        probs: probabilities of the pool by the model, (N, K).
        labeled: number of labels of every class in the fit, (K,).
        count: number of rows.
        seed: seed of the draws.
    """
    if not 1 <= count <= len(probs):
        raise InputError(f"n must be from 1 to the {len(probs)} rows of X_pool; found {count}")
    scores = calibrate_scores(fitted, probs)
    posterior = softmax(scores + np.log(estimate_prior(scores, labeled / labeled.sum())), axis=1)
    return rank_rows(posterior, allocate_labels(fitted.expected), count, seed)


def calibrate_scores(fitted: FittedModel, probs: Tensor) -> np.ndarray:
    """Return s = T z + a, the model's calibrated log-probabilities with every class prior taken out, (N, K)."""
    if fitted.rule is not None:
        return take_out(fitted.rule.posterior(probs).numpy(), fitted.expected.confusion.prior.numpy())
    # The softmax of a network without a rule is under the gain and the class prior that it was trained under.
    details = fitted.full_details
    posterior = undo_gain(probs, details.outputs.gain.softmax_inverse).numpy()
    evidence = details.outputs.evidence(details.train_prior, fitted.class_names)
    return evidence.calibration.apply(take_out(posterior, evidence.train_prior))
