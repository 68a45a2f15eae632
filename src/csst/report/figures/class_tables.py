"""Figures of a comparison by class: examples of every class, and its recall in every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from csst.comparison.summary import ComparisonRow
from csst.report.figures.classes import MANY_CLASSES
from csst.report.figures.matrix import SIDE, paint_cell, paint_shades
from csst.report.figures.svg import RUNS, WIDTH, Drawing, Key, draw, shorten, sort_classes


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


def draw_recall_table(table: Sequence[ComparisonRow], class_names: Sequence[str], counts: Sequence[int]) -> Drawing:
    """Draw the recall of every class in every row, mean over the seeds, as shades; up to 30 classes in percent too."""
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
    axes = figure.add_subplot()
    for (row, column), value in np.ndenumerate(recall):
        paint_cell(axes, row, column, 0.92, 0.05 + 0.6 * value, f"{100 * value:.0f}")
    rotation = 90 if max(map(len, names)) > 2 else 0
    axes.set_xticks(range(len(names)), names, fontsize=8.5, rotation=rotation)
    axes.set_xlim(-0.5, len(names) - 0.5)
    _label_rows(axes, labels)


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
