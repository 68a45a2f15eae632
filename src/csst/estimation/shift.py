"""The class balance of unlabeled rows, by EM on calibrated scores (Saerens, Latinne and Decaestecker, 2002)."""

from __future__ import annotations

import numpy as np

#: rounds of EM; the fractions are within a thousandth after far fewer
ROUNDS = 50
#: EM ends when no fraction moves by more than this
CLOSE = 1e-5


def estimate_prior(scores: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the class prior under which calibrated scores explain the rows best.

        Q_ik ∝ pi_k exp(s_ik);    pi <- (sum_i Q_i + K start) / (N + K)

    Args:
        scores: s = T z + a, (N, K).
        start: the class fractions of the labeled rows, where EM begins and towards which K rows' worth of the estimate
            is drawn, (K,).
    """
    count, classes = scores.shape
    likelihood = np.exp(scores - scores.max(1, keepdims=True)) if count else scores
    prior = start
    for _ in range(ROUNDS):
        mass = prior * (likelihood.T @ (1 / np.maximum(likelihood @ prior, 1e-300)))
        new_prior = (mass + classes * start) / (count + classes)
        if np.abs(new_prior - prior).max() < CLOSE:
            return new_prior
        prior = new_prior
    return prior
