"""The class balance of unlabeled rows, by EM on calibrated scores (Saerens, Latinne and Decaestecker, 2002)."""

from __future__ import annotations

import numpy as np

#: rounds of EM; the fractions are within a thousandth after far fewer
ROUNDS = 50
#: EM ends when no fraction moves by more than this
CLOSE = 1e-5


def estimate_prior(
    scores: np.ndarray,
    start: np.ndarray,
    *,
    rounds: int = ROUNDS,
    pseudo_rows: float | None = None,
    row_weights: np.ndarray | None = None,
    begin: np.ndarray | None = None,
) -> np.ndarray:
    """Return the class prior under which calibrated scores explain the rows best.

        Q_ik ∝ pi_k exp(s_ik);    pi <- (sum_i Q_i + K start) / (N + K)

    Args:
        scores: s = T z + a, (N, K).
        start: the class fractions of the labeled rows, towards which K rows' worth of the estimate is drawn, (K,).
        rounds: of EM.
        pseudo_rows: how many rows the start is worth; K if None.
        row_weights: how often each row counts, for a bootstrap.
        begin: where EM begins; the start if None.
    """
    count, classes = scores.shape
    start_rows = classes if pseudo_rows is None else pseudo_rows
    likelihood = np.exp(scores - scores.max(1, keepdims=True)) if count else scores
    weights = np.ones(count) if row_weights is None else row_weights
    total = float(weights.sum()) + start_rows
    prior = start if begin is None else begin
    for _ in range(rounds):
        mass = prior * (likelihood.T @ (weights / np.maximum(likelihood @ prior, 1e-300)))
        new_prior = (mass + start_rows * start) / total
        if np.abs(new_prior - prior).max() < CLOSE:
            return new_prior
        prior = new_prior
    return prior
