"""Figures of a comparison with all classes: their examples, and their recall in every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from csst.report.figures.classes import MANY_CLASSES
from csst.report.figures.matrix import SIDE
from csst.report.figures.svg import ACCENT, RUNS, WIDTH, Drawing, Key, draw, shorten, sort_classes
from csst.runs.outcomes import ComparisonRow


def draw_class_counts(
    labeled: Sequence[int], unlabeled: Sequence[float] | None, class_names: Sequence[str], how: str
) -> Drawing:
    """The examples of every class, labeled and unlabeled, from most to fewest labels, as in Fig. 3 of the paper.

    Args:
        labeled: examples of each class.
        unlabeled: the same without labels, None if not known.
        class_names: in the order of the counts.
        how: whence the unlabeled counts are known, for the legend.
    """
    order = sort_classes(labeled, len(labeled))
    series = [("labeled", np.asarray(labeled, float)[order], RUNS[0])]
    if unlabeled is not None:
        series.append((f"unlabeled{how}", np.asarray(unlabeled, float)[order], RUNS[1]))
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
            turned = max(map(len, names)) * len(names) > 50
            axes.set_xticks(places, names, rotation=90 if turned else 0)

    ratio = max(labeled) / max(1, min(labeled))
    alt = f"Examples of every class: labeled from {max(labeled):,} to {min(labeled):,}"
    keys = [Key("band" if is_many else "■", color, name) for name, _, color in series]
    return draw(paint, 2.9, alt, f"Class distribution: the labeled data's imbalance is {ratio:.3g}", keys)


def draw_recall_table(table: Sequence[ComparisonRow], class_names: Sequence[str], counts: Sequence[int]) -> Drawing:
    """The recall of every class in every row, mean over the seeds, as shades; in percent for up to 30 classes."""
    order = sort_classes(counts, len(counts))
    recall = np.array([np.mean([result.recall for result in line.results], 0)[order] for line in table])
    row, column = (int(n) for n in np.unravel_index(recall.argmin(), recall.shape))
    alt = (
        f"Recall of {len(order)} classes in {len(table)} rows; lowest {recall[row, column]:.2f}: class "
        f"{shorten(class_names[order[column]], 30)} in {shorten(table[row].name, 60)}"
    )
    caption = "Recall of every class, from most to fewest labeled"
    labels = [shorten(line.name, 26) for line in table]
    height = 0.7 + 0.24 * len(table)
    if len(order) > MANY_CLASSES:
        groups = np.array_split(np.arange(len(order)), min(SIDE, len(order)))
        blocks = np.stack([recall[:, group].mean(1) for group in groups], 1)
        return draw(lambda figure: _paint_shades(figure, blocks, labels, len(order)), height, alt, caption)
    names = [shorten(class_names[c], 10) for c in order]
    width = WIDTH if len(order) <= 11 else 2.0 + 0.28 * len(order)
    caption += ", %"
    return draw(lambda figure: _paint_numbers(figure, recall, labels, names), height, alt, caption, width=width)


def _paint_numbers(figure: Any, recall: Any, labels: list[str], names: list[str]) -> None:
    from matplotlib.patches import Rectangle

    axes = figure.add_subplot()
    for (row, column), value in np.ndenumerate(recall):
        corner = (column - 0.48, row - 0.46)
        cell = axes.add_artist(Rectangle(corner, 0.96, 0.92, color=ACCENT, alpha=0.05 + 0.6 * value, lw=0))
        text = axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=8.5)
        for part in (cell, text):
            part.set_in_layout(False)  # they lie inside; measuring each would be most of the time
    turned = max(map(len, names)) > 2
    axes.set_xticks(range(len(names)), names, fontsize=8.5, rotation=90 if turned else 0)
    axes.set_xlim(-0.5, len(names) - 0.5)
    _label_rows(axes, labels)


def _paint_shades(figure: Any, blocks: Any, labels: list[str], classes: int) -> None:
    axes = figure.add_subplot()
    picture = np.zeros((*blocks.shape, 4))
    picture[..., :3] = np.array([0x2F, 0x80, 0xC8]) / 255  # a picture cannot follow CSS; this shows on both pages
    picture[..., 3] = blocks.clip(0, 1)
    extent = (-0.5, classes - 0.5, len(labels) - 0.5, -0.5)
    axes.imshow(picture, extent=extent, aspect="auto", interpolation="nearest", resample=False)
    axes.set_xlabel("classes")
    _label_rows(axes, labels)


def _label_rows(axes: Any, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), labels, fontsize=8.5)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
