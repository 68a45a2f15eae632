"""Mean features of new rows against those of classes, in units of their noise: see `csst.estimation.shift_test`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import nnls

#: the ridge of the kernel, in mean variances of its features
RIDGE = 0.5
#: rows' worth of S_v in S_k, and of the reference's spread in S_v: few rows do not show all directions of their noise
PSEUDO_ROWS, PSEUDO_NEW_ROWS = 10.0, 50.0


@dataclass(frozen=True, eq=False)
class Comparison:
    """Mean features of new rows against those of a reference, in units of the noise.

    Args:
        target: v - u, or v - mean_k m_k without unlabeled rows, (M,).
        directions: an orthonormal basis of the differences of the m_k, (at most K - 1, M).
        covariance: of the noise, (M, M).
        whitening: W, which takes features to units of the noise, (M, M).
        balance: d or pi by least squares, (K,).
    """

    target: np.ndarray
    directions: np.ndarray
    covariance: np.ndarray
    whitening: np.ndarray
    balance: np.ndarray

    @classmethod
    def of_features(
        cls,
        labeled: Sequence[np.ndarray],
        unlabeled: np.ndarray | None,
        rows: np.ndarray,
        balance_change: np.ndarray | None,
        groups: Sequence[slice],
    ) -> Comparison:
        """Compare features of labeled rows by class, of unlabeled rows and of new rows, each (N, M)."""
        means = np.stack([class_features.mean(0) for class_features in labeled])
        center = means.mean(0)
        pool = np.concatenate(labeled) if unlabeled is None else unlabeled
        total = (len(rows) * measure_spread(rows) + PSEUDO_NEW_ROWS * measure_spread(pool)) / (
            len(rows) + PSEUDO_NEW_ROWS
        )
        covariance = total / len(rows)
        if unlabeled is None:
            target = rows.mean(0) - center
            balance = fit_simplex(means, rows.mean(0))
        else:
            target = rows.mean(0) - unlabeled.mean(0)
            covariance = covariance + measure_spread(unlabeled) / len(unlabeled)
            balance = np.linalg.lstsq((means - center).T, target, rcond=1e-8)[0]
            balance = balance - balance.mean()
        squares = balance**2
        if balance_change is not None:
            both = np.stack([squares, balance_change**2])
            squares = both.mean(0) if unlabeled is None else both.max(0)
        for square, class_features in zip(squares, labeled, strict=True):
            spread = total  # labels alone: what S_k of few rows lacks would be taken for a shift
            if unlabeled is not None:
                other_rows = len(class_features) - 1
                spread = PSEUDO_ROWS * total + other_rows * measure_spread(class_features)
                spread = spread / (other_rows + PSEUDO_ROWS)
            covariance = covariance + square * spread / len(class_features)
        whitening_matrix = make_whitening(covariance, groups)
        _, sizes, directions = np.linalg.svd((means - center) @ whitening_matrix, full_matrices=False)
        is_direction = sizes > 1e-8 * max(float(sizes[0]), 1e-12)
        noise = whitening_matrix @ covariance @ whitening_matrix
        return cls(target @ whitening_matrix, directions[is_direction], noise, whitening_matrix, balance)

    def take_out_balance(self, differences: np.ndarray) -> np.ndarray:
        """Return the part of differences (B, M) that no change of the balance explains, (B, M)."""
        return differences - (differences @ self.directions.T) @ self.directions

    def draw_noise(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """Draw differences as chance makes them, without what a change of the balance explains, (number, M)."""
        values, vectors = eigh(self.covariance)
        draws = (rng.normal(size=(number, len(values))) * np.sqrt(values.clip(min=0))) @ vectors.T
        return self.take_out_balance(draws)

    def whiten(self, differences: np.ndarray) -> np.ndarray:
        """Return differences (B, M) in units of the noise."""
        return differences @ self.whitening


def make_whitening(covariance: np.ndarray, groups: Sequence[slice]) -> np.ndarray:
    """Return the matrix that takes features to units of their noise, (M, M).

    (C + ridge)^(-1/2) for the kernel; one number for every column, so that all columns together count as one group.
    """
    matrix = np.zeros_like(covariance)
    kernel = groups[0]
    values, vectors = eigh(covariance[kernel, kernel])
    values = values.clip(min=0)
    matrix[kernel, kernel] = (vectors / np.sqrt(values + RIDGE * values.mean() + 1e-15)) @ vectors.T
    for group in groups[1:]:
        variance = np.trace(covariance[group, group]) / (group.stop - group.start)
        places = np.arange(group.start, group.stop)
        matrix[places, places] = (variance * len(groups) + 1e-12) ** -0.5
    return matrix


def measure_spread(features: np.ndarray) -> np.ndarray:
    """The covariance of features (N, M), (M, M)."""
    deviations = features - features.mean(0)
    return deviations.T @ deviations / max(1, len(features) - 1)


def fit_simplex(means: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The fractions pi >= 0, sum_k pi_k = 1, for which sum_k pi_k m_k is nearest to a target (M,); means (K, M)."""
    penalty = 1e3 * max(float(np.abs(means).max()), 1e-9)
    fractions, _ = nnls(np.vstack([means.T, np.full(len(means), penalty)]), np.append(target, penalty))
    return fractions / fractions.sum()
