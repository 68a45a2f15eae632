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
    """Draw true classes as rows, predictions as columns, fractions of a row as shades; counts for up to 30 classes."""
    counts = np.asarray(run.deployed.confusion, float)
    rates = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    classes = len(counts)
    errors = rates[:, :classes] - np.diag(np.diag(rates))
    truth, prediction = (int(n) for n in np.unravel_index(errors.argmax(), errors.shape))
    names = [shorten(name, 14) for name in run.class_names]
    alt = f"Confusion matrix on {run.part}, {classes} classes, mean recall {np.diag(rates).mean():.2f}"
    rate = errors[truth, prediction]
    if rate > 0:
        alt += f"; most often mistaken: {names[truth]} for {names[prediction]}, {rate:.0%} of its examples"
    caption = f"Confusion on {run.part}: rows are the truth, columns the prediction"
    if rates.shape[1] > classes:
        names.append("no answer")
    if classes > MANY_CLASSES:
        blocks = block_average(rates[:, :classes])
        if len(blocks) < classes:
            caption += f", {-(-classes // len(blocks))} classes to a block"
        return draw(lambda figure: _paint_blocks(figure, blocks, classes), WIDTH * 0.92, alt, caption)
    caption += ", numbers are examples"
    width = WIDTH if classes <= 12 else WIDTH * classes / 13
    return draw(lambda figure: _paint_cells(figure, counts, rates, names), width * 0.92, alt, caption, width=width)


def _paint_cells(figure: Any, counts: Any, rates: Any, names: list[str]) -> None:
    axes = figure.add_subplot()
    for row, column in zip(*np.nonzero(counts), strict=True):
        paint_cell(axes, row, column, 0.96, 0.08 + 0.6 * float(rates[row, column]), f"{counts[row, column]:.0f}")
    _frame(axes, len(counts), "")
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_xticks(range(len(names)), names, fontsize=8.5, rotation=90 if max(map(len, names)) > 2 else 0)
    axes.set_yticks(range(len(counts)), names[: len(counts)], fontsize=8.5)


def _paint_blocks(figure: Any, blocks: Any, classes: int) -> None:
    axes = figure.add_subplot()
    opacity = np.sqrt(blocks.clip(0, 1))  # the root makes rare mistakes visible
    paint_shades(axes, opacity, (classes, classes), "equal")
    _frame(axes, classes, " (index of the class)")
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK)


def paint_cell(axes: Any, row: int, column: int, height: float, alpha: float, text: str) -> None:
    """Paint one cell of a table: a rectangle with a number."""
    from matplotlib.patches import Rectangle

    corner = (column - 0.48, row - height / 2)
    rectangle = axes.add_artist(Rectangle(corner, 0.96, height, color=ACCENT, alpha=alpha, lw=0))
    label = axes.text(column, row, text, ha="center", va="center", fontsize=8.5)
    for artist in (rectangle, label):
        artist.set_in_layout(False)  # both lie inside the axes, and measuring each would take most of the time


def paint_shades(axes: Any, opacity: Any, size: tuple[int, int], aspect: str) -> None:
    """Paint opacities (rows, columns) as shades of one color, over `size` rows and columns of the axes."""
    picture = np.zeros((*opacity.shape, 4))
    picture[..., :3] = np.array([0x2F, 0x80, 0xC8]) / 255  # a picture cannot follow CSS; this shows on both pages
    picture[..., 3] = opacity
    extent = (-0.5, size[1] - 0.5, size[0] - 0.5, -0.5)
    axes.imshow(picture, extent=extent, aspect=aspect, interpolation="nearest", resample=False)


def block_average(rates: Any, side: int = SIDE) -> Any:
    """Average blocks of neighboring classes: P(prediction in block J | truth in block I), all rows of I alike."""
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
