"""Logistic regression on Nyström features of a Gaussian kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import log_softmax

from csst.learners.linear import fit_logistic, per_class
from csst.learners.projection import Projection

#: landmarks, a random sample of rows without regard to labels
LANDMARKS = 300
#: the inverse penalty
PENALTY = 10.0
#: eigenvalues of the landmarks' kernel below this count as this
SMALLEST_EIGENVALUE = 1e-4


@dataclass(frozen=True, eq=False)
class FittedKernel:
    """log softmax(k(x, landmarks) V + b) with k(x, l) = exp(-gamma |x - l|^2) in a projected space.

    Args:
        projection: the space.
        landmarks: points, (L, d).
        gamma: decay of the kernel.
        weights: V', (K, L).
        bias: b, (K,).
    """

    projection: Projection
    landmarks: np.ndarray
    gamma: float
    weights: np.ndarray
    bias: np.ndarray

    def log_probs(self, rows: Any) -> np.ndarray:
        similarities = compute_kernel(self.projection.apply(rows), self.landmarks, self.gamma)
        return log_softmax(similarities @ self.weights.T + self.bias, axis=1)


@dataclass(frozen=True, eq=False)
class Kernel:
    """Logistic regression with inverse penalty C on the features k(x, landmarks) K^-1/2."""

    projection: Projection
    sample: Any
    penalty: float = PENALTY
    name: str = "kernel"

    @cached_property
    def basis(self) -> tuple[np.ndarray, float, np.ndarray]:
        """Landmarks (L, d), gamma = 1 / median squared distance, and K^-1/2 (L, L)."""
        indices = np.sort(np.random.default_rng(0).permutation(self.sample.shape[0])[:LANDMARKS])
        landmarks = self.projection.apply(self.sample[indices])
        squares = compute_squares(landmarks, landmarks)
        squares_of_pairs = squares[np.triu_indices(len(landmarks), 1)]
        median = float(np.median(squares_of_pairs)) if len(squares_of_pairs) else 1.0
        gamma = 1 / max(median, 1e-12)
        values, vectors = np.linalg.eigh(np.exp(-gamma * squares))
        return landmarks, gamma, vectors / np.sqrt(np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedKernel:
        landmarks, gamma, root = self.basis
        features = compute_kernel(self.projection.apply(rows), landmarks, gamma) @ root
        model = fit_logistic(features, labels, weights, self.penalty)
        coefficients = per_class(model.coef_ @ root.T)
        return FittedKernel(self.projection, landmarks, gamma, coefficients, per_class(model.intercept_))


def compute_squares(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return squared distances, (N, M)."""
    from sklearn.metrics.pairwise import euclidean_distances

    return euclidean_distances(points, others, squared=True).astype(np.float64)


def compute_kernel(points: np.ndarray, landmarks: np.ndarray, gamma: float) -> np.ndarray:
    """Return exp(-gamma |x - l|^2), (N, L)."""
    return np.exp(-gamma * compute_squares(points, landmarks))
