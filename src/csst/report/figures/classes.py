"""Figures with one row per class: recall with the labeled counts, coverage with its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from csst.report.bounds import CoverageBound
from csst.report.figures.svg import ACCENT, FAINT, INK, RUNS, Drawing, Key, draw, shorten, sort_classes
from csst.report.run_view import RunView
from csst.training.evaluation import constraints_met

#: more classes than this are drawn as a profile
MANY_CLASSES = 30
#: the classes of a profile are averaged in this many groups of neighbors
GROUPS = 100
#: the largest number of points of a line over many classes
MOST_POINTS = 300


def draw_recall(run: RunView) -> Drawing:
    """Draw the recall of every class as deployed; pale, behind it, without the decision rule."""
    classes = len(run.class_names)
    quantity = f"{run.part} recall" if run.is_complete else "validation recall so far"
    recall = run.deployed.recall
    lowest_name = shorten(run.class_names[run.deployed.lowest_class], 30)
    lowest = f"{min(recall):.2f} (class {lowest_name})"
    alt = f"{quantity} of every class: {shorten(run.name, 60)} from {lowest} to {max(recall):.2f}"
    if classes > MANY_CLASSES:
        return _draw_profile(run, quantity.removesuffix(" so far"), alt)
    title = "Recall of every class"
    if run.class_counts:
        title += "; labeled examples in brackets"
    keys = []
    if run.adjusted:
        keys += [Key("■", RUNS[0], "with the decision rule"), Key("■", FAINT, "as trained, without it")]
    if run.deployed.recall_intervals:
        keys.append(Key("line", INK, f"simultaneous {run.deployed.level:.0%} confidence intervals"))
    return draw(lambda figure: _paint_rows(figure, run), 0.75 + 0.25 * classes, alt, title, keys)


def _paint_rows(figure: Any, run: RunView) -> None:
    axes = figure.add_subplot()
    places = np.arange(len(run.class_names))
    thickness = 0.74
    if run.adjusted:  # pale and wider, behind the bars of the deployed model
        axes.barh(places, run.without_rule.recall, 0.86, color=FAINT, alpha=0.6)
        thickness = 0.46
    axes.barh(places, run.deployed.recall, thickness, color=RUNS[0])
    for place, value in zip(places, run.deployed.recall, strict=True):
        axes.text(1.02, place, f"{value:.2f}", va="center", fontsize=9)
    for place, interval in zip(places, run.deployed.recall_intervals, strict=False):
        axes.plot(interval, [place, place], color=INK, lw=1, solid_capstyle="butt")
    _label_rows(axes, run.class_names, run.class_counts, f"{run.part} recall")
    axes.set_xlim(0, 1.02)


def _draw_profile(run: RunView, ylabel: str, alt: str) -> Drawing:
    """Draw many classes, ordered by labeled examples: their recall above, the labeled counts below."""
    counts = run.class_counts
    classes = len(run.class_names)
    groups = np.array_split(np.array(sort_classes(counts, classes)), min(GROUPS, classes))
    places = np.cumsum([len(group) for group in groups]) - np.array([(len(group) + 1) / 2 for group in groups])
    recall = np.asarray(run.deployed.recall, float)
    parts = [recall[group] for group in groups]

    def paint(figure: Any) -> None:
        top = bottom = figure.add_subplot(4, 1, (1, 3)) if counts else figure.add_subplot()
        low = [part.min() for part in parts]
        high = [part.max() for part in parts]
        top.fill_between(places, low, high, color=RUNS[0], alpha=0.25, lw=0)
        top.plot(places, [part.mean() for part in parts], color=RUNS[0])
        top.set_ylim(0, 1.02)
        top.set_ylabel(ylabel)
        if counts:
            bottom = figure.add_subplot(4, 1, 4, sharex=top)
            top.tick_params(labelbottom=False)
            bottom.plot(places, [np.asarray(counts)[group].mean() for group in groups], color=INK)
            bottom.set_yscale("log")
            bottom.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            bottom.yaxis.set_minor_formatter(lambda value, _: "")
            bottom.set_ylabel("labeled")
        figure.align_ylabels()
        bottom.set_xlabel("classes, from most to fewest labeled" if counts else "classes")

    size = -(-classes // len(groups))
    keys = []
    if size > 1:
        keys = [Key("line", RUNS[0], f"mean of {size} neighbors"), Key("band", RUNS[0], "lowest to highest of them")]
    return draw(paint, 3.4, alt, f"Recall of the {classes} classes", keys)


def draw_coverage(run: RunView, bounds: Sequence[CoverageBound]) -> Drawing:
    """Draw the fraction of examples predicted as each class (or group), against the bounds of the objective."""
    coverage = run.deployed.coverage
    misses = sum(constraints_met(bound.slack(coverage)) is False for bound in bounds)
    verdict = f"{misses} of {len(bounds)} miss the bound" if misses else "all meet the bound"
    part = run.part if run.is_complete else "validation, so far"
    alt = f"Coverage on {part} against the bound of '{run.objective}': {verdict}"
    has_rows = len(bounds) <= MANY_CLASSES
    places = np.arange(len(bounds))
    if not has_rows:
        places = np.linspace(0, len(bounds) - 1, min(len(bounds), MOST_POINTS)).round().astype(int)
        bounds = sorted(bounds, key=lambda bound: bound.measure(coverage))
        bounds = [bounds[int(n)] for n in places]
    values = [bound.measure(coverage) for bound in bounds]

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        sides = np.array([(bound.low, bound.high) for bound in bounds], dtype=float).T
        if has_rows:
            axes.barh(places, values, 0.74, color=ACCENT)
            for side in sides:
                axes.vlines(side, places - 0.45, places + 0.45, color=INK, lw=1.6)
            _label_rows(axes, [bound.label for bound in bounds], None, f"coverage on {part}")
            axes.set_xlim(0, None)
        else:
            axes.plot(places, values, color=ACCENT)
            for side in sides:
                axes.plot(places, side, color=INK, lw=1.2, ls="--")
            axes.set_xlabel("classes, from least to most covered")
            axes.set_ylabel(f"coverage on {part}")
            axes.set_ylim(0, None)

    keys = (
        Key("■" if has_rows else "line", ACCENT, "fraction of the predictions"),
        Key("▎" if has_rows else "dash", INK, "bound"),
    )
    height = 0.75 + 0.25 * len(bounds) if has_rows else 2.8
    return draw(paint, height, alt, f"Coverage against its bound: {verdict}", keys)


def _label_rows(axes: Any, names: Sequence[str], counts: Sequence[int] | None, xlabel: str) -> None:
    labels = [shorten(name, 22) for name in names]
    if counts is not None:
        labels = [f"{shorten(name, 18)} ({count:,})" for name, count in zip(names, counts, strict=True)]
    axes.set_yticks(range(len(names)), labels)
    axes.set_xlabel(xlabel)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=5)
    axes.spines["left"].set_color(FAINT)
