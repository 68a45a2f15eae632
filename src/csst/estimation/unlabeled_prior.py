"""The class balance of unlabeled rows as far as it is known.

Calibrated probabilities h(x) have a mean m_k on the labeled rows of every class k, and a mean u on the unlabeled rows.
Where classes look alike in both, only the balance differs:

    u = sum_k pi_u,k m_k + noise,     cov(noise) <= S(u) / N + sum_k pi_u,k^2 S(m_k) / n_k,    S(m) = diag(m) - m m^T

(Lipton, Wang and Smola, 2018; S(m) bounds the covariance of any distribution over h with mean m). How far the balance
may be from the labels', pi_u = pi_L + N(0, L + s^2 (I - 1/K)), is what makes u most likely, and pi_u then is the
posterior mean: where noise explains the difference, s = 0 and the labels' balance stays; a class that is known badly
moves less. L is 0 where pi_L itself is meant, and S(pi_L) / n where n labels are a sample of what pi_u is asked of.

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
#: the smallest class fraction
SMALLEST = 1e-6
#: rows' worth of a class's mean and spread that the model's own expectation has
PSEUDO_ROWS = 5.0


@dataclass(frozen=True, eq=False)
class BalanceEstimate:
    """The class balance of unlabeled rows.

    Args:
        prior: pi_u, (K,), positive.
        covariance: covariance of its error, (K, K); 0 where the labels' balance is kept.
        variance: s^2, how far it may be from the labels' balance.
    """

    prior: np.ndarray
    covariance: np.ndarray
    variance: float

    @property
    def error(self) -> np.ndarray:
        """Standard error of every fraction, (K,)."""
        return np.sqrt(np.diag(self.covariance).clip(min=0))


def draw_balances(prior: np.ndarray, covariance: np.ndarray, number: int, seed: int = 0) -> np.ndarray:
    """Draw balances as they may truly be.

    Args:
        prior: the estimate, (K,).
        covariance: covariance of its error, (K, K).
        number: how many.
        seed: seed of the draws.

    Returns:
        Class fractions, positive and of sum 1, (number, K).
    """
    rng = np.random.default_rng(seed)
    draws = rng.multivariate_normal(prior, covariance, size=number, method="eigh").clip(min=SMALLEST)
    return draws / draws.sum(1, keepdims=True)


def estimate_balance(evidence: HeldOutScores) -> BalanceEstimate:
    """Return the class balance of the unlabeled rows, or of the labels if there are none."""
    labeled = evidence.labeled_prior
    classes = evidence.classes
    if not evidence.has_unlabeled:
        return BalanceEstimate(labeled, np.zeros((classes, classes)), 0.0)
    labeled_probs = softmax(evidence.calibration.apply(evidence.scores), axis=1)
    unlabeled_probs = softmax(evidence.calibration.apply(evidence.unlabeled_scores), axis=1)
    size = evidence.counts + 1  # one row more, the mean of all: no class is known exactly
    means = (np.eye(classes)[evidence.labels].T @ labeled_probs + labeled_probs.mean(0)) / size[:, None]
    target = unlabeled_probs.mean(0)
    estimate = BalanceEstimate(labeled, np.zeros((classes, classes)), 0.0)
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


def solve_balance(
    means: np.ndarray,
    target: np.ndarray,
    noise: np.ndarray,
    labeled: np.ndarray,
    label_noise: np.ndarray | None = None,
) -> BalanceEstimate:
    """Return the posterior mean of pi_u in u = M^T pi_u + noise, pi_u = pi_L + N(0, L + s^2 (I - 1/K)), s likeliest.

    A class's mean may be negative by chance; the mean of its positive part is taken instead.

    Args:
        means: M, a row for every class, (K, K).
        target: u, (K,).
        noise: its covariance, (K, K).
        labeled: pi_L, (K,).
        label_noise: L, (K, K); None for 0.
    """
    classes = len(labeled)
    columns = slice(0, classes - 1)  # probabilities sum to 1: the last says nothing new
    tangent = np.eye(classes) - 1 / classes
    if label_noise is None:
        label_noise = np.zeros((classes, classes))
    total_noise = noise + means.T @ label_noise @ means
    root = cholesky(total_noise[columns, columns] + 1e-12 * np.eye(classes - 1), lower=True)
    design = solve_triangular(root, means.T[columns], lower=True)  # in units of the noise
    residual = solve_triangular(root, (target - labeled @ means)[columns], lower=True)
    values, vectors = eigh(design @ tangent @ design.T)
    coordinates = vectors.T @ residual
    values = values.clip(min=0)

    def deviance(size: float) -> float:
        return float((np.log(size * values + 1) + coordinates**2 / (size * values + 1)).sum())

    place = int(np.argmin([deviance(size) for size in VARIANCES]))
    variance = 0.0
    if place > 0:
        ends = (VARIANCES[place - 1], VARIANCES[min(place + 1, len(VARIANCES) - 1)])
        variance = float(minimize_scalar(deviance, bounds=ends, method="bounded", options={"xatol": 1e-9}).x)
    elif not label_noise.any():
        return BalanceEstimate(labeled, np.zeros((classes, classes)), 0.0)
    before = label_noise + variance * tangent
    spread = before @ design.T @ vectors
    shrinkage = variance * values + 1
    mean = labeled + spread @ (coordinates / shrinkage)
    covariance = before - (spread / shrinkage) @ spread.T
    error = np.sqrt(np.maximum(np.diag(covariance), 1e-16))
    positive = mean * norm.cdf(mean / error) + error * norm.pdf(mean / error)
    return BalanceEstimate(positive / positive.sum(), covariance, variance)


def measure_posteriors(
    evidence: HeldOutScores, labeled_posteriors: np.ndarray, new_posteriors: np.ndarray, prior: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return m_k, (K, K), and the covariance of the noise, (K, K), without the bound S.

    The model itself helps out classes with few labels: what it expects of other rows of the class counts as some rows.

    Args:
        evidence: the labels of the rows.
        labeled_posteriors: h of labeled rows, (n, K).
        new_posteriors: h of rows without labels, (N, K).
        prior: their balance, (K,).
    """
    expected_means = new_posteriors.T @ new_posteriors / np.maximum(new_posteriors.sum(0), 1e-300)[:, None]
    sums = np.eye(evidence.classes)[evidence.labels].T @ labeled_posteriors
    means = (sums + PSEUDO_ROWS * expected_means) / (evidence.counts + PSEUDO_ROWS)[:, None]
    # sum_k pi_k^2 S_k / n_k, S_k = (sum of squares of the labels + PSEUDO_ROWS S(m_k)) / degrees of freedom
    degrees = evidence.counts - 1 + PSEUDO_ROWS
    weights = prior**2 / degrees**2
    deviations = labeled_posteriors - means[evidence.labels]
    of_labels = deviations.T @ (weights[evidence.labels][:, None] * deviations)
    of_bounds = PSEUDO_ROWS * (np.diag(weights @ means) - means.T @ (weights[:, None] * means))
    noise = np.cov(new_posteriors.T, bias=True) / len(new_posteriors)
    return means, noise + of_labels + of_bounds


def estimate_class_balance(evidence: HeldOutScores) -> BalanceEstimate:
    """Return the class balance of the rows that labels and unlabeled rows are both drawn from.

    The fractions of n labels are a sample, which unlabeled rows correct as far as scores tell the classes apart; where
    the difference is larger than chance allows, the unlabeled rows count. Without any, the labels' fractions.
    """
    classes = evidence.classes
    size = len(evidence.labels)
    fractions = (size * evidence.labeled_prior + 0.5) / (size + 0.5 * classes)  # no class is known to be that rare
    label_noise = spread_bound(fractions) / (size + 1)
    estimate = BalanceEstimate(evidence.labeled_prior, label_noise, 0.0)
    if not evidence.has_unlabeled:
        return estimate
    labeled_scores = evidence.calibration.apply(evidence.scores)
    unlabeled_scores = evidence.calibration.apply(evidence.unlabeled_scores)
    for _ in range(ROUNDS):
        log_prior = np.log(np.maximum(estimate.prior, SMALLEST))
        labeled_posteriors = softmax(labeled_scores + log_prior, axis=1)
        posteriors = softmax(unlabeled_scores + log_prior, axis=1)
        means, noise = measure_posteriors(evidence, labeled_posteriors, posteriors, estimate.prior)
        estimate = solve_balance(means, posteriors.mean(0), noise, evidence.labeled_prior, label_noise)
    return estimate
