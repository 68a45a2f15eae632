"""The confusion matrix as a picture: shades of one colour, which show on a light and on a dark page."""

from __future__ import annotations

from typing import Any

import numpy as np

from csst.report.classes import MANY_CLASSES
from csst.report.shown import ShownRun
from csst.report.svg import ACCENT, INK, WIDTH, Drawing, draw, shortened

#: the largest side of a picture without numbers; more classes are gathered in blocks
SIDE = 100


def confusion_figure(run: ShownRun) -> Drawing:
    """Row: the truth; column: the prediction; shade: share of the row. Counts are written for up to 30 classes."""
    counts = np.asarray(run.metrics[run.part]["confusion"], float)
    rates = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    classes = len(counts)
    off = rates - np.diag(np.diag(rates))
    truth, guess = (int(n) for n in np.unravel_index(off.argmax(), off.shape))
    names = [shortened(name, 14) for name in run.class_names]
    alt = f"Confusion matrix on {run.part}, {classes} classes, mean recall {np.diag(rates).mean():.2f}"
    if off[truth, guess] > 0:
        alt += f"; most often mistaken: {names[truth]} for {names[guess]}, {off[truth, guess]:.0%} of its examples"
    if classes > MANY_CLASSES:
        return _compact(rates, alt, run.part)
    width = WIDTH if classes <= 12 else WIDTH * classes / 13
    caption = f"Confusion on {run.part}: rows are the truth, columns the prediction, numbers are examples"
    return draw(lambda figure: _cells(figure, counts, rates, names), width * 0.92, alt, caption, width=width)


def _cells(figure: Any, counts: Any, rates: Any, names: list[str]) -> None:
    from matplotlib.patches import Rectangle

    axes = figure.add_subplot()
    size = len(counts)
    for row, column in zip(*np.nonzero(counts), strict=True):
        share = float(rates[row, column])
        box = (column - 0.48, row - 0.48)
        cell = axes.add_artist(Rectangle(box, 0.96, 0.96, color=ACCENT, alpha=0.08 + 0.6 * share, lw=0))
        text = axes.text(column, row, f"{counts[row, column]:.0f}", ha="center", va="center", fontsize=8.5)
        for part in (cell, text):
            part.set_in_layout(False)  # they lie inside; measuring each would be most of the time
    _frame(axes, size)
    steep = max(map(len, names)) > 2
    axes.set_xticks(range(size), names, fontsize=8.5, rotation=90 if steep else 0)
    axes.set_yticks(range(size), names, fontsize=8.5)
    axes.set_xlabel("predicted")
    axes.set_ylabel("truth")


def _compact(rates: Any, alt: str, part: str) -> Drawing:
    blocks = gathered(rates)
    size = len(rates)
    merged = f", {-(-size // len(blocks))} classes to a block" if len(blocks) < size else ""

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        picture = np.zeros((*blocks.shape, 4))
        picture[..., :3] = np.array([0x2F, 0x80, 0xC8]) / 255  # a picture cannot follow CSS; this shows on both pages
        picture[..., 3] = np.sqrt(blocks.clip(0, 1))  # the root lifts rare mistakes into sight
        place = (-0.5, size - 0.5, size - 0.5, -0.5)
        axes.imshow(picture, extent=place, interpolation="nearest", resample=False)
        _frame(axes, size)
        axes.set_xlabel("predicted (index of the class)")
        axes.set_ylabel("truth (index of the class)")
        for spine in axes.spines.values():
            spine.set(visible=True, color=INK)

    return draw(paint, WIDTH * 0.92, alt, f"Confusion on {part}: rows are the truth, columns the prediction{merged}")


def gathered(rates: Any, side: int = SIDE) -> Any:
    """Blocks of neighbouring classes: P(predicted in block J | truth in block I), the rows of I weighing the same."""
    rates = np.asarray(rates, float)
    edges = np.linspace(0, len(rates), min(side, len(rates)) + 1).round().astype(int)[:-1]
    sums = np.add.reduceat(np.add.reduceat(rates, edges, axis=0), edges, axis=1)
    return sums / np.diff(np.append(edges, len(rates)))[:, None]


def _frame(axes: Any, size: int) -> None:
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.grid(False)
    axes.tick_params(length=0)
