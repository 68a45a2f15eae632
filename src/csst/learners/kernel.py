"""Logistic regression on Nyström features of a Gaussian kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.learners.linear import fit_logistic
from csst.learners.projection import Projection
from csst.learners.protocol import FittedLearner, apply

#: landmarks, a random sample of rows without regard to labels
LANDMARKS = 300
#: the inverse penalty
PENALTY = 10.0
#: eigenvalues of the landmarks' kernel below this count as this
SMALLEST_EIGENVALUE = 1e-4


class FittedKernel(FittedLearner):
    """log softmax(k(x, landmarks) V + b) with k(x, l) = exp(-gamma |x - l|^2) in a projected space.

    Args:
        projection: the space.
        landmarks: points, (L, d).
        gamma: decay of the kernel.
        weights: V', (K, L).
        bias: b, (K,).
    """

    projection: Projection
    landmarks: Tensor
    gamma: float
    weights: Tensor
    bias: Tensor

    def forward(self, x: Tensor) -> Tensor:
        similarities = compute_kernel(self.projection(x), self.landmarks, self.gamma)
        return torch.log_softmax(similarities @ self.weights.T + self.bias, 1)


@dataclass(frozen=True, eq=False)
class Kernel:
    """Logistic regression with inverse penalty C on the features k(x, landmarks) K^-1/2."""

    projection: Projection
    sample: Any
    penalty: float = PENALTY
    name: str = "kernel"

    @cached_property
    def basis(self) -> tuple[Tensor, float, np.ndarray]:
        """Landmarks (L, d), gamma = 1 / median squared distance, and K^-1/2 (L, L)."""
        indices = np.sort(np.random.default_rng(0).permutation(self.sample.shape[0])[:LANDMARKS])
        landmarks = torch.from_numpy(apply(self.projection, self.sample[indices]))
        squares = square_distances(landmarks, landmarks).numpy()
        squares_of_pairs = squares[np.triu_indices(len(landmarks), 1)]
        median = float(np.median(squares_of_pairs)) if len(squares_of_pairs) else 1.0
        gamma = 1 / max(median, 1e-12)
        values, vectors = np.linalg.eigh(np.exp(-gamma * squares))
        return landmarks, gamma, vectors / np.sqrt(np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T

    def fit(self, rows: Any, labels: np.ndarray, seed: int = 0) -> FittedKernel:
        landmarks, gamma, root = self.basis
        points = torch.from_numpy(apply(self.projection, rows))
        features = compute_kernel(points, landmarks, gamma).numpy() @ root
        weights, bias = fit_logistic(features, labels, self.penalty)
        return FittedKernel(
            projection=self.projection, landmarks=landmarks, gamma=gamma, weights=weights @ root.T, bias=bias
        )


def square_distances(points: Tensor, others: Tensor) -> Tensor:
    """Return |x - y|^2, (N, M), in double precision: it is a small difference of large squares."""
    x = points.double()
    y = others.double()
    squares = (x**2).sum(1, keepdim=True) + (y**2).sum(1) - 2 * x @ y.T
    return squares.clamp(min=0)


def compute_kernel(points: Tensor, landmarks: Tensor, gamma: float) -> Tensor:
    """Return exp(-gamma |x - l|^2), (N, L)."""
    return torch.exp(-gamma * square_distances(points, landmarks))
