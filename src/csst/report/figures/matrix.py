"""The confusion matrix as a picture: shades of one color, which show on a light and on a dark page."""

from __future__ import annotations

from typing import Any

import numpy as np

from csst.report.figures.classes import MANY_CLASSES
from csst.report.figures.svg import ACCENT, INK, WIDTH, Drawing, draw, shorten
from csst.report.run_view import RunView

#: the largest side of a picture without numbers; more classes are averaged in blocks
SIDE = 100


def draw_confusion(run: RunView) -> Drawing:
    """Row: the truth; column: the prediction; shade: fraction of the row. Counts are written for up to 30 classes."""
    counts = np.asarray(run.deployed.confusion, float)
    rates = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    classes = len(counts)
    errors = rates - np.diag(np.diag(rates))
    truth, guess = (int(n) for n in np.unravel_index(errors.argmax(), errors.shape))
    names = [shorten(name, 14) for name in run.class_names]
    alt = f"Confusion matrix on {run.part}, {classes} classes, mean recall {np.diag(rates).mean():.2f}"
    if errors[truth, guess] > 0:
        alt += f"; most often mistaken: {names[truth]} for {names[guess]}, {errors[truth, guess]:.0%} of its examples"
    caption = f"Confusion on {run.part}: rows are the truth, columns the prediction"
    if classes > MANY_CLASSES:
        blocks = block_average(rates)
        caption += f", {-(-classes // len(blocks))} classes to a block" if len(blocks) < classes else ""
        return draw(lambda figure: _paint_blocks(figure, blocks, classes), WIDTH * 0.92, alt, caption)
    caption += ", numbers are examples"
    width = WIDTH if classes <= 12 else WIDTH * classes / 13
    return draw(lambda figure: _paint_cells(figure, counts, rates, names), width * 0.92, alt, caption, width=width)


def _paint_cells(figure: Any, counts: Any, rates: Any, names: list[str]) -> None:
    from matplotlib.patches import Rectangle

    axes = figure.add_subplot()
    for row, column in zip(*np.nonzero(counts), strict=True):
        alpha = 0.08 + 0.6 * float(rates[row, column])
        corner = (column - 0.48, row - 0.48)
        cell = axes.add_artist(Rectangle(corner, 0.96, 0.96, color=ACCENT, alpha=alpha, lw=0))
        text = axes.text(column, row, f"{counts[row, column]:.0f}", ha="center", va="center", fontsize=8.5)
        for part in (cell, text):
            part.set_in_layout(False)  # they lie inside; measuring each would be most of the time
    _frame(axes, len(counts), "")
    axes.set_xticks(range(len(names)), names, fontsize=8.5, rotation=90 if max(map(len, names)) > 2 else 0)
    axes.set_yticks(range(len(names)), names, fontsize=8.5)


def _paint_blocks(figure: Any, blocks: Any, classes: int) -> None:
    axes = figure.add_subplot()
    picture = np.zeros((*blocks.shape, 4))
    picture[..., :3] = np.array([0x2F, 0x80, 0xC8]) / 255  # a picture cannot follow CSS; this shows on both pages
    picture[..., 3] = np.sqrt(blocks.clip(0, 1))  # the root lifts rare mistakes into sight
    extent = (-0.5, classes - 0.5, classes - 0.5, -0.5)
    axes.imshow(picture, extent=extent, interpolation="nearest", resample=False)
    _frame(axes, classes, " (index of the class)")
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK)


def block_average(rates: Any, side: int = SIDE) -> Any:
    """Blocks of neighboring classes: P(predicted in block J | truth in block I), the rows of I weighing the same."""
    rates = np.asarray(rates, float)
    edges = np.linspace(0, len(rates), min(side, len(rates)) + 1).round().astype(int)[:-1]
    sums = np.add.reduceat(np.add.reduceat(rates, edges, axis=0), edges, axis=1)
    return sums / np.diff(np.append(edges, len(rates)))[:, None]


def _frame(axes: Any, size: int, unit: str) -> None:
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set_xlabel(f"predicted{unit}")
    axes.set_ylabel(f"truth{unit}")
