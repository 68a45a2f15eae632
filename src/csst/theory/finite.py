"""Finite spaces, where every set can be visited and every term of the theory is exact.

A space has n points, the classes' distributions P_i on them, and B(x) as a row of a boolean matrix. Classifiers are
vectors of n predictions. Meant for checking bounds and for building intuition, not for data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from csst.errors import InputError
from csst.theory.errors import check_weights
from csst.theory.expansion import StepExpansion

LARGEST = 20


@dataclass(frozen=True, eq=False)
class FiniteSpace:
    """conditionals (K, n): P_i(x), rows sum to 1. balls (n, n), bool: x' in B(x); no ball is empty."""

    conditionals: np.ndarray
    balls: np.ndarray

    def __post_init__(self) -> None:
        given, balls = np.asarray(self.conditionals, float), np.asarray(self.balls, bool)
        if given.ndim != 2 or (given < 0).any() or (np.abs(given.sum(1) - 1) > 1e-9).any():
            raise InputError("conditionals must be distributions P_i over the points, one row per class")
        if balls.shape != (given.shape[1],) * 2 or not balls.any(1).all():
            raise InputError(f"balls must be a boolean matrix over the {given.shape[1]} points without empty rows")
        object.__setattr__(self, "conditionals", given)
        object.__setattr__(self, "balls", balls)

    @property
    def neighbors(self) -> np.ndarray:
        """(n, n): whether B(x) and B(x') meet."""
        return (self.balls.astype(int) @ self.balls.T.astype(int)) > 0

    def distribution(self, weights: Any) -> np.ndarray:
        """P_w(x) = sum_ij w_ij P_i(x) / |w|_1."""
        rows = check_weights(weights, len(self.conditionals)).sum(1).numpy()
        return rows @ self.conditionals / rows.sum()

    def error(self, predictions: Any, weights: Any) -> float:
        """err_w(F) = sum_ij w_ij P_i(F != j)."""
        matrix = check_weights(weights, len(self.conditionals)).numpy()
        cost = matrix.sum(1)[:, None] - matrix[:, np.asarray(predictions)]
        return float((self.conditionals * cost).sum())

    def disagreement(self, predictions: Any, others: Any, weights: Any) -> float:
        """L_w(F, F') = sum_ij w_ij P_i(F != F')."""
        return self._weight(np.asarray(predictions) != np.asarray(others), weights)

    def inconsistent(self, predictions: Any) -> np.ndarray:
        """The complement of S_B(F): points x with a point of B(x) where F differs from F(x)."""
        F = np.asarray(predictions)
        return (self.balls & (F[None, :] != F[:, None])).any(1)

    def consistency(self, predictions: Any, weights: Any) -> float:
        """R_{B,w}(F) = sum_ij w_ij P_i(F is not constant on B(x))."""
        return self._weight(self.inconsistent(predictions), weights)

    def expansion(self, weights: Any) -> StepExpansion:
        """The largest non-increasing c with which P_w expands."""
        return exact_expansion(self.distribution(weights), self.neighbors)

    def _weight(self, event: np.ndarray, weights: Any) -> float:
        rows = check_weights(weights, len(self.conditionals)).sum(1).numpy()
        return float(rows @ self.conditionals @ event)


def exact_expansion(masses: Any, neighbors: Any) -> StepExpansion:
    """The largest non-increasing c with Q(N(S)) >= c(Q(S)) Q(S), by visiting all 2^n sets. At most 20 points."""
    mass, near = np.asarray(masses, float), np.asarray(neighbors, bool)
    points = len(mass)
    if points > LARGEST:
        raise InputError(
            f"all sets can be visited for at most {LARGEST} points; found {points}: use empirical_expansion"
        )
    near = near | np.eye(points, dtype=bool)
    sizes, around = np.zeros(1), np.zeros(1, dtype=np.int64)  # a set is the number whose bits are its points
    for point in range(points):
        bits = int(sum(1 << int(other) for other in np.flatnonzero(near[point])))
        sizes, around = np.append(sizes, sizes + mass[point]), np.append(around, around | bits)
    return StepExpansion.of_sets(sizes, sizes[around])
