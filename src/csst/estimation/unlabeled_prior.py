"""The class balance of unlabeled rows as far as it is known.

Calibrated probabilities h(x) have a mean m_k on the labeled rows of every class k, and a mean u on the unlabeled rows.
Where classes look alike in both, only the balance differs:

    u = sum_k pi_u,k m_k + noise,     cov(noise) <= S(u) / N + sum_k pi_u,k^2 S(m_k) / n_k,    S(m) = diag(m) - m m^T

(Lipton, Wang and Smola, 2018; S(m) bounds the covariance of any distribution over h with mean m). How far the balance
may be from the labels', pi_u = pi_L + N(0, s^2 (I - 1/K)), is what makes u most likely, and pi_u then is the posterior
mean: where noise explains the difference, s = 0 and the labels' balance stays; a class that is known badly moves less.

Unlike EM (`csst.estimation.shift`) it needs no h that is calibrated for every class, which networks with a handful of
labels of a class are not (docs/explanation/choices.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from scipy.stats import norm

from csst.estimation.held_out_scores import HeldOutScores

#: rounds in which the noise, which depends on the balance, follows it
ROUNDS = 4
#: variances s^2 among which the search begins
VARIANCES = np.append(0.0, np.geomspace(1e-6, 1.0, 31))


@dataclass(frozen=True, eq=False)
class BalanceEstimate:
    """The class balance of unlabeled rows.

    Args:
        prior: pi_u, (K,), positive.
        error: its standard error, (K,); 0 where the labels' balance is kept.
        variance: s^2, how far it may be from the labels' balance.
    """

    prior: np.ndarray
    error: np.ndarray
    variance: float


def estimate_balance(evidence: HeldOutScores) -> BalanceEstimate:
    """Return the class balance of the unlabeled rows, or of the labels if there are none."""
    labeled = evidence.labeled_prior
    classes = evidence.classes
    if not evidence.has_unlabeled:
        return BalanceEstimate(labeled, np.zeros(classes), 0.0)
    labeled_probs = softmax(evidence.calibration.apply(evidence.scores), axis=1)
    unlabeled_probs = softmax(evidence.calibration.apply(evidence.unlabeled_scores), axis=1)
    size = evidence.counts + 1  # one row more, the mean of all: no class is known exactly
    means = (np.eye(classes)[evidence.labels].T @ labeled_probs + labeled_probs.mean(0)) / size[:, None]
    target = unlabeled_probs.mean(0)
    estimate = BalanceEstimate(labeled, np.zeros(classes), 0.0)
    for _ in range(ROUNDS):
        noise = noise_bound(target, len(unlabeled_probs), means, size, estimate.prior)
        estimate = solve_balance(means, target, noise, labeled)
    return estimate


def noise_bound(target: np.ndarray, rows: int, means: np.ndarray, size: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return S(u) / N + sum_k pi_k^2 S(m_k) / n_k, (K, K).

    Args:
        target: u, (K,).
        rows: N.
        means: m_k in rows, (K, K).
        size: n_k, (K,).
        prior: pi, (K,).
    """
    of_labels = sum(w * spread_bound(mean) for w, mean in zip(prior**2 / size, means, strict=True))
    return spread_bound(target) / rows + of_labels


def spread_bound(mean: np.ndarray) -> np.ndarray:
    """Return S(m) = diag(m) - m m^T, (K, K)."""
    return np.diag(mean) - np.outer(mean, mean)


def solve_balance(means: np.ndarray, target: np.ndarray, noise: np.ndarray, labeled: np.ndarray) -> BalanceEstimate:
    """Return the posterior mean of pi_u in u = M^T pi_u + noise, pi_u = pi_L + N(0, s^2 (I - 1/K)), s the likeliest.

    A class's mean may be negative by chance; the mean of its positive part is taken instead.

    Args:
        means: M, a row for every class, (K, K).
        target: u, (K,).
        noise: its covariance, (K, K).
        labeled: pi_L, (K,).
    """
    classes = len(labeled)
    columns = slice(0, classes - 1)  # probabilities sum to 1: the last says nothing new
    tangent = np.eye(classes) - 1 / classes
    root = cholesky(noise[columns, columns] + 1e-12 * np.eye(classes - 1), lower=True)
    design = solve_triangular(root, means.T[columns], lower=True)  # in units of the noise
    residual = solve_triangular(root, (target - labeled @ means)[columns], lower=True)
    values, vectors = eigh(design @ tangent @ design.T)
    coordinates = vectors.T @ residual
    values = values.clip(min=0)

    def deviance(size: float) -> float:
        return float((np.log(size * values + 1) + coordinates**2 / (size * values + 1)).sum())

    place = int(np.argmin([deviance(size) for size in VARIANCES]))
    if place == 0:
        return BalanceEstimate(labeled, np.zeros(classes), 0.0)
    ends = (VARIANCES[place - 1], VARIANCES[min(place + 1, len(VARIANCES) - 1)])
    variance = float(minimize_scalar(deviance, bounds=ends, method="bounded", options={"xatol": 1e-9}).x)
    spread = variance * tangent @ design.T @ vectors
    shrinkage = variance * values + 1
    mean = labeled + spread @ (coordinates / shrinkage)
    error = np.sqrt(np.maximum(np.diag(variance * tangent - (spread / shrinkage) @ spread.T), 1e-16))
    positive = mean * norm.cdf(mean / error) + error * norm.pdf(mean / error)
    return BalanceEstimate(positive / positive.sum(), error, variance)
