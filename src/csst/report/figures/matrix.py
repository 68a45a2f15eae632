"""Tables as pictures in shades of one color, which show on light and dark pages: confusion, and recall of every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from csst.report.figures.classes import MANY_CLASSES
from csst.report.figures.svg import ACCENT, INK, RUNS, WIDTH, Drawing, Key, draw, shorten, sort_classes
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
        blocks = average_blocks(rates[:, :classes])
        if len(blocks) < classes:
            caption += f", {-(-classes // len(blocks))} classes to a block"
        return draw(lambda figure: _paint_blocks(figure, blocks, classes), WIDTH * 0.92, alt, caption)
    caption += ", numbers are examples"
    width = WIDTH if classes <= 12 else WIDTH * classes / 13

    def paint(figure: Any) -> None:
        axes = _paint_numbers(figure, np.where(counts, counts, np.nan), rates, names[:classes], names)
        axes.set_aspect("equal")
        axes.set_xlabel("predicted")
        axes.set_ylabel("truth")

    return draw(paint, width * 0.92, alt, caption, width=width)


def _paint_blocks(figure: Any, blocks: Any, classes: int) -> None:
    axes = figure.add_subplot()
    opacity = np.sqrt(blocks.clip(0, 1))  # the root makes rare mistakes visible
    paint_shades(axes, opacity, (classes, classes), "equal")
    axes.grid(False)
    axes.tick_params(length=0)
    axes.set_xlabel("predicted (index of the class)")
    axes.set_ylabel("truth (index of the class)")
    for spine in axes.spines.values():
        spine.set(visible=True, color=INK)


def _paint_numbers(figure: Any, numbers: Any, shares: Any, rows: list[str], columns: list[str]) -> Any:
    """Paint a table of whole numbers, darker for larger shares, nan for an empty cell; return its axes."""
    from matplotlib.patches import Rectangle

    axes = figure.add_subplot()
    for row, column in np.argwhere(np.isfinite(numbers)):
        alpha = 0.08 + 0.6 * float(shares[row, column])
        corner = (column - 0.48, row - 0.47)
        rectangle = axes.add_artist(Rectangle(corner, 0.96, 0.94, color=ACCENT, alpha=alpha, lw=0))
        label = axes.text(column, row, f"{numbers[row, column]:.0f}", ha="center", va="center", fontsize=8.5)
        for artist in (rectangle, label):
            artist.set_in_layout(False)  # both lie inside the axes, and measuring each would take most of the time
    rotation = 90 if max(map(len, columns)) > 2 else 0
    axes.set_xticks(range(len(columns)), columns, fontsize=8.5, rotation=rotation)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    _label_rows(axes, rows)
    return axes


def paint_shades(axes: Any, opacity: Any, size: tuple[int, int], aspect: str) -> None:
    """Paint opacities (rows, columns) as shades of one color, over `size` rows and columns of the axes."""
    picture = np.zeros((*opacity.shape, 4))
    picture[..., :3] = np.array([0x2F, 0x80, 0xC8]) / 255  # a picture cannot follow CSS; this shows on both pages
    picture[..., 3] = opacity
    extent = (-0.5, size[1] - 0.5, size[0] - 0.5, -0.5)
    axes.imshow(picture, extent=extent, aspect=aspect, interpolation="nearest", resample=False)


def average_blocks(rates: Any, side: int = SIDE) -> Any:
    """Average blocks of neighboring classes: P(prediction in block J | truth in block I), all rows of I alike."""
    rates = np.asarray(rates, float)
    edges = np.linspace(0, len(rates), min(side, len(rates)) + 1).round().astype(int)[:-1]
    sums = np.add.reduceat(np.add.reduceat(rates, edges, axis=0), edges, axis=1)
    return sums / np.diff(np.append(edges, len(rates)))[:, None]


def draw_class_counts(
    labeled: Sequence[int], unlabeled: Sequence[float] | None, class_names: Sequence[str], suffix: str
) -> Drawing:
    """Draw the examples of every class, labeled and unlabeled, from most to fewest labels, as in Fig. 3 of the paper.

    Args:
        labeled: labeled examples of each class, (K,).
        unlabeled: unlabeled examples of each class, (K,); None if unknown.
        class_names: the names of the classes.
        suffix: how the unlabeled counts are known, for the legend.
    """
    order = sort_classes(labeled, len(labeled))
    series = [("labeled", np.asarray(labeled, float)[order], RUNS[0])]
    if unlabeled is not None:
        series.append((f"unlabeled{suffix}", np.asarray(unlabeled, float)[order], RUNS[1]))
    is_many = len(order) > MANY_CLASSES

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        places = np.arange(len(order))
        for n, (_, counts, color) in enumerate(series):
            if is_many:
                axes.plot(places, counts, color=color)
                axes.fill_between(places, 0, counts, color=color, alpha=0.2, lw=0)
            else:
                axes.bar(places + (n - (len(series) - 1) / 2) * 0.4, counts, 0.38, color=color)
        axes.set_ylim(0, None)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_ylabel("examples")
        axes.grid(False, axis="x")
        if is_many:
            axes.set_xlabel("classes, from most to fewest labeled")
        else:
            names = [shorten(class_names[c], 14) for c in order]
            rotation = 90 if max(map(len, names)) * len(names) > 50 else 0
            axes.set_xticks(places, names, rotation=rotation)

    ratio = max(labeled) / max(1, min(labeled))
    alt = f"Examples of every class: labeled from {max(labeled):,} to {min(labeled):,}"
    keys = [Key("band" if is_many else "■", color, name) for name, _, color in series]
    return draw(paint, 2.9, alt, f"Class distribution: the labeled data's imbalance is {ratio:.3g}", keys)


def draw_recall_table(
    rows: Mapping[str, Sequence[float]], class_names: Sequence[str], counts: Sequence[int] | None
) -> Drawing:
    """Draw the recall of every class in every row as shades; up to 30 classes in percent, too.

    Args:
        rows: the recalls of the classes, (K,), by the name of the row.
        class_names: K names.
        counts: labeled examples of every class, (K,); None if unknown.
    """
    order = sort_classes(counts, len(class_names))
    recall = np.array(list(rows.values()), float)[:, order]
    row, column = (int(n) for n in np.unravel_index(recall.argmin(), recall.shape))
    alt = (
        f"Recall of {len(order)} classes in {len(rows)} rows; lowest {recall[row, column]:.2f}: class "
        f"{shorten(class_names[order[column]], 30)} in {shorten(list(rows)[row], 60)}"
    )
    caption = "Recall of every class" + (", from most to fewest labeled" if counts else "")
    labels = [shorten(name, 26) for name in rows]
    height = 0.7 + 0.24 * len(rows)
    if len(order) > MANY_CLASSES:
        groups = np.array_split(np.arange(len(order)), min(SIDE, len(order)))
        blocks = np.stack([recall[:, group].mean(1) for group in groups], 1)
        return draw(lambda figure: _paint_shades(figure, blocks, labels, len(order)), height, alt, caption)
    names = [shorten(class_names[c], 10) for c in order]
    width = WIDTH if len(order) <= 11 else 2.0 + 0.28 * len(order)
    caption += ", %"
    height += 0.07 * max(map(len, names))  # they stand upright below the cells
    return draw(
        lambda figure: _paint_numbers(figure, 100 * recall, recall, labels, names), height, alt, caption, width=width
    )


def _paint_shades(figure: Any, blocks: Any, labels: list[str], classes: int) -> None:
    axes = figure.add_subplot()
    paint_shades(axes, blocks.clip(0, 1), (len(labels), classes), "auto")
    axes.set_xlabel("classes")
    _label_rows(axes, labels)


def _label_rows(axes: Any, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), labels, fontsize=8.5)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
