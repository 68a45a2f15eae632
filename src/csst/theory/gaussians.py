"""Gaussian classes P_i = N(tau_i, I/d) with balls of radius r: errors and consistency in closed form.

The best classifier for diagonal weights is argmax_i w_i P_i(x). Between two classes its boundary is a hyperplane, at

    b_ij = |tau_i - tau_j| / 2 + (log w_i - log w_j) / (d |tau_i - tau_j|)      from tau_i towards tau_j

and it moves away from the class with the larger weight (paper, Fig. 2; appendix "Proofs", Example 3 [r_gopt_bound],
whose proof prints the last term with a factor 2 too much).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from csst.errors import InputError


class Bayes(NamedTuple):
    """err_w and R_{B,w} of the best classifier for the weights.

    Args:
        error: err_w.
        consistency: R_{B,w}.
    """

    error: float
    consistency: float


def boundary(separation: float, weight: float, other: float, d: float) -> float:
    """How far from the center of a class towards another the best classifier changes its mind. Paper, Sec. 3.1, Fig. 2.

        b_ij = separation / 2 + log(w_i / w_j) / (d separation)

    Args:
        separation: |tau_i - tau_j|, the distance of the centers.
        weight: w_i of the class.
        other: w_j of the other class.
        d: the dimension; each class has covariance I/d.

    Returns:
        b_ij.
    """
    if not (separation > 0 and weight > 0 and other > 0 and d > 0):
        raise InputError(
            f"needed: separation > 0, weights > 0 and d > 0; found {separation}, weights {weight} and {other}, d = {d}"
        )
    return separation / 2 + float(np.log(weight / other)) / (d * separation)


def two_gaussians(separation: float, weights: tuple[float, float], d: float, r: float) -> Bayes:
    """err_w and R_{B,w} of the best classifier for two classes, exactly.

    A point is inconsistent if it lies within r of the boundary. Paper, appendix "Proofs", Example 3 [r_gopt_bound].

    Args:
        separation: the distance of the centers.
        weights: w_1 and w_2.
        d: the dimension; each class has covariance I/d.
        r: the radius of the balls B(x).

    Returns:
        Error and consistency.
    """
    error = consistency = 0.0
    for weight, other in (weights, weights[::-1]):
        b = boundary(separation, weight, other, d)
        error += weight * float(ndtr(-np.sqrt(d) * b))
        consistency += weight * float(ndtr(np.sqrt(d) * (b + r)) - ndtr(np.sqrt(d) * (b - r)))
    return Bayes(error, consistency)


def bayes_bounds(centers: Any, weights: Any, d: float, r: float) -> Bayes:
    """Upper bounds of err_w and R_{B,w} of the best classifier for K classes.

        err_w <= sum_i w_i sum_{j != i} Phi(-sqrt(d) b_ij),   R_{B,w} <= the same with b_ij - r

    They vanish like a power of 1/d where centers are sqrt(log d / d) apart and no weight is d times another.
    Paper, appendix "Proofs", Example 3 [r_gopt_bound].

    Args:
        centers: tau_i, (K, any dimension).
        weights: w_i, (K,), positive.
        d: the dimension; each class has covariance I/d.
        r: the radius of the balls B(x).

    Returns:
        The bounds of error and consistency.
    """
    places, w = np.atleast_2d(np.asarray(centers, float)), np.asarray(weights, float)
    if len(places) != len(w):
        raise InputError(f"each center needs one weight; found {len(places)} centers and {len(w)} weights")
    error = consistency = 0.0
    for i, place in enumerate(places):
        for j, other in enumerate(places):
            if i != j:
                b = boundary(float(np.linalg.norm(place - other)), float(w[i]), float(w[j]), d)
                error += float(w[i] * ndtr(-np.sqrt(d) * b))
                consistency += float(w[i] * ndtr(-np.sqrt(d) * (b - r)))
    return Bayes(error, consistency)
