"""The paper's figure of the moving boundary: the weights move it where classes overlap, and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from csst.errors import InputError
from csst.theory.gaussians import boundary

FORMATS = (".svg", ".png", ".pdf")


def boundary_figure(path: str, separation: float, weights: tuple[float, float], d: float, r: float) -> None:
    """Draw disjoint and Gaussian classes, with equal weights and with these. Paper, Sec. 3.1, Fig. 2.

    Curves are w_i P_i(x) along the line through the two centers; the line is the best boundary, the band around it the
    points within r of it, where the best classifier is not consistent.

    Args:
        path: where the figure goes; ends with .svg, .png or .pdf.
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
    equal = (sum(weights) / 2, sum(weights) / 2)
    for column, pair in enumerate((equal, weights)):
        for row, kind in enumerate(("disjoint", "overlapping")):
            axes = panels[row][column]
            for place, weight, color, name in zip((0.0, separation), pair, ("#4a6fa5", "#b3412f"), "12", strict=True):
                axes.plot(
                    x, weight * _density(x, place, sigma, separation, kind), color=color, label=f"w{name} P{name}"
                )
            at = separation / 2 if kind == "disjoint" else boundary(separation, pair[0], pair[1], d)
            axes.axvline(at, color="#3a7d44", lw=2, label="best boundary")
            axes.axvspan(at - r, at + r, color="#3a7d44", alpha=0.15, lw=0)
            axes.set_title(f"{kind} classes, w1 : w2 = {pair[0]:g} : {pair[1]:g}", fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_yticks([])
    panels[0][0].legend(fontsize=8, frameon=False)
    try:
        figure.savefig(path)
    except OSError as error:
        raise InputError(f"the figure cannot be written to {path}: {error}") from None


def _density(x: np.ndarray, place: float, sigma: float, separation: float, kind: str) -> np.ndarray:
    if kind == "overlapping":
        return np.exp(-((x - place) ** 2) / (2 * sigma**2)) / (sigma * np.sqrt(2 * np.pi))
    reach = 0.4 * separation  # of bumps that end before the middle
    inside = np.abs(x - place) < reach
    return np.where(inside, (1 + np.cos(np.pi * (x - place) / reach)) / (2 * reach), 0.0)
