"""Gaussian classes P_i = N(tau_i, I/d) with balls of radius r: errors and consistency in closed form.

The best classifier for diagonal weights is argmax_i w_i P_i(x). Between two classes its boundary is a hyperplane, at

    b_ij = |tau_i - tau_j| / 2 + (log w_i - log w_j) / (d |tau_i - tau_j|)      from tau_i towards tau_j

and it moves away from the class with the larger weight (paper, Fig. 2; appendix "Proofs", Example 3 [r_gopt_bound],
whose proof prints the last term with a factor 2 too much).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from csst.errors import InputError

#: file types of the figure
FORMATS = (".svg", ".png", ".pdf")


class Bayes(NamedTuple):
    """Weighted error and consistency of the best classifier for the weights.

    Args:
        error: err_w.
        consistency: R_{B,w}.
    """

    error: float
    consistency: float


def boundary(separation: float, weight: float, other_weight: float, d: float) -> float:
    """Return the distance from the center of class i to its best boundary with class j. Paper, Sec. 3.1, Fig. 2.

        b_ij = separation / 2 + log(w_i / w_j) / (d separation)

    Args:
        separation: |tau_i - tau_j|, the distance of the centers.
        weight: w_i.
        other_weight: w_j.
        d: the dimension; each class has covariance I/d.

    Returns:
        b_ij.
    """
    if not (separation > 0 and weight > 0 and other_weight > 0 and d > 0):
        raise InputError(
            f"needed: separation > 0, weights > 0 and d > 0; found {separation}, weights {weight} and {other_weight}, "
            f"d = {d}"
        )
    return separation / 2 + float(np.log(weight / other_weight)) / (d * separation)


def two_gaussians(separation: float, weights: tuple[float, float], d: float, r: float) -> Bayes:
    """Return err_w and R_{B,w} of the best classifier for two classes, exactly.

    A point is inconsistent if it lies within r of the boundary. Paper, appendix "Proofs", Example 3 [r_gopt_bound].

    Args:
        separation: the distance of the centers.
        weights: w_1 and w_2.
        d: the dimension; each class has covariance I/d.
        r: the radius of the balls B(x).

    Returns:
        Error and consistency.
    """
    error = 0.0
    consistency = 0.0
    for weight, other_weight in (weights, weights[::-1]):
        b = boundary(separation, weight, other_weight, d)
        error += weight * float(ndtr(-np.sqrt(d) * b))
        consistency += weight * float(ndtr(np.sqrt(d) * (b + r)) - ndtr(np.sqrt(d) * (b - r)))
    return Bayes(error, consistency)


def bayes_bounds(centers: Any, weights: Any, d: float, r: float) -> Bayes:
    """Return upper bounds of err_w and R_{B,w} of the best classifier for K classes.

        err_w <= sum_i w_i sum_{j != i} Phi(-sqrt(d) b_ij),   R_{B,w} <= the same with b_ij - r

    They vanish like a power of 1/d if centers are sqrt(log d / d) apart and no weight is d times another.
    Paper, appendix "Proofs", Example 3 [r_gopt_bound].

    Args:
        centers: tau_i, (K, any dimension).
        weights: w_i, (K,), positive.
        d: the dimension; each class has covariance I/d.
        r: the radius of the balls B(x).

    Returns:
        The bounds of error and consistency.
    """
    tau = np.atleast_2d(np.asarray(centers, float))
    w = np.asarray(weights, float)
    if len(tau) != len(w):
        raise InputError(f"each center needs one weight; found {len(tau)} centers and {len(w)} weights")
    error = 0.0
    consistency = 0.0
    for i in range(len(tau)):
        for j in range(len(tau)):
            if i != j:
                b = boundary(float(np.linalg.norm(tau[i] - tau[j])), float(w[i]), float(w[j]), d)
                error += float(w[i] * ndtr(-np.sqrt(d) * b))
                consistency += float(w[i] * ndtr(-np.sqrt(d) * (b - r)))
    return Bayes(error, consistency)


def boundary_figure(path: str, separation: float, weights: tuple[float, float], d: float, r: float) -> None:
    """Draw disjoint and Gaussian classes, with equal weights and with these. Paper, Sec. 3.1, Fig. 2.

    The weights move the boundary only where classes overlap. Curves are w_i P_i(x) along the line through the two
    centers; the vertical line is the best boundary, and the best classifier is not consistent in the band of width
    2 r around it.

    Args:
        path: the file to write; ends with .svg, .png or .pdf.
        separation: the distance of the centers.
        weights: w_1 and w_2.
        d: the dimension; each class has covariance I/d.
        r: the radius of the balls B(x).
    """
    if Path(path).suffix not in FORMATS:
        raise InputError(f"a figure is a file that ends with {', '.join(FORMATS)}; found {path!r}")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    sigma = 1 / np.sqrt(d)
    x = np.linspace(-4 * sigma, separation + 4 * sigma, 801)
    figure = Figure(figsize=(9, 5), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    equal_weights = (sum(weights) / 2, sum(weights) / 2)
    for column, (w1, w2) in enumerate((equal_weights, weights)):
        for row, kind in enumerate(("disjoint", "overlapping")):
            axes = panels[row][column]
            axes.plot(x, w1 * _compute_density(x, 0.0, sigma, separation, kind), color="#4a6fa5", label="w1 P1")
            axes.plot(x, w2 * _compute_density(x, separation, sigma, separation, kind), color="#b3412f", label="w2 P2")
            b = separation / 2 if kind == "disjoint" else boundary(separation, w1, w2, d)
            axes.axvline(b, color="#3a7d44", lw=2, label="best boundary")
            axes.axvspan(b - r, b + r, color="#3a7d44", alpha=0.15, lw=0)
            axes.set_title(f"{kind} classes, w1 : w2 = {w1:g} : {w2:g}", fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_yticks([])
    panels[0][0].legend(fontsize=8, frameon=False)
    try:
        figure.savefig(path)
    except OSError as error:
        raise InputError(f"the figure cannot be written to {path}: {error}") from None


def _compute_density(x: np.ndarray, center: float, sigma: float, separation: float, kind: str) -> np.ndarray:
    if kind == "overlapping":
        return np.exp(-((x - center) ** 2) / (2 * sigma**2)) / (sigma * np.sqrt(2 * np.pi))
    reach = 0.4 * separation  # bumps that end before the middle
    inside = np.abs(x - center) < reach
    return np.where(inside, (1 + np.cos(np.pi * (x - center) / reach)) / (2 * reach), 0.0)
