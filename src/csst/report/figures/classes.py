"""Figures with one row per class: recall with the labeled counts, coverage with its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from csst.report.bounds import CoverageBound
from csst.report.figures.svg import ACCENT, FAINT, INK, RUNS, Drawing, Key, draw, run_style, shorten, sort_classes
from csst.report.run_view import RunView
from csst.training.evaluation import constraints_met

#: more classes than this are drawn as a profile
MANY_CLASSES = 30
#: more runs than this are drawn as dots instead of bars
MANY_RUNS = 4
#: the largest number of runs in one figure
MOST_RUNS = 12
#: the classes of a profile are averaged in this many groups of neighbors
GROUPS = 100
#: the largest number of points of a line over many classes
MOST_POINTS = 300


def draw_recall(runs: Sequence[RunView]) -> Drawing:
    """Draw the recall of every class in each run as deployed, of the first 12 runs; all have the same classes."""
    count = len(runs)
    runs = runs[:MOST_RUNS]
    run = runs[0]
    classes = len(run.class_names)
    quantity = f"{run.part} recall" if run.is_complete else "validation recall so far"
    ranges = "; ".join(_describe_range(run) for run in runs[:3]) + ("; and more" if count > 3 else "")
    alt = f"{quantity} of every class: {ranges}"
    has_rows = classes <= MANY_CLASSES
    title = "Recall of every class" if has_rows else f"Recall of the {classes} classes"
    if count > MOST_RUNS:
        title += f" in the first {MOST_RUNS} of {count} runs"
    if not has_rows:
        return _draw_profile(runs, quantity.removesuffix(" so far"), alt, title)
    if run.class_counts:
        title += "; labeled examples in brackets"
    has_bars = len(runs) <= MANY_RUNS
    row_height = 0.25 if count == 1 or not has_bars else 0.1 + 0.11 * len(runs)
    keys = _make_rule_keys(run)
    if count > 1:
        keys = [run_style(n).as_key(run.name, "■" if has_bars else "") for n, run in enumerate(runs)]
    return draw(lambda figure: _paint_rows(figure, runs, has_bars), 0.75 + classes * row_height, alt, title, keys)


def _make_rule_keys(run: RunView) -> list[Key]:
    """Return the legend of a single run: the decision rule and the intervals, if it has them."""
    keys = []
    if run.adjusted:
        keys += [Key("■", RUNS[0], "with the decision rule"), Key("■", FAINT, "as trained, without it")]
    if run.deployed.recall_intervals:
        keys.append(Key("line", INK, f"simultaneous {run.deployed.level:.0%} confidence intervals"))
    return keys


def _paint_rows(figure: Any, runs: Sequence[RunView], has_bars: bool) -> None:
    axes = figure.add_subplot()
    places = np.arange(len(runs[0].class_names))
    thickness = 0.8 / len(runs)
    if len(runs) == 1 and runs[0].adjusted:  # pale and wider, behind the bars of the deployed model
        axes.barh(places, runs[0].without_rule.recall, 0.86, color=FAINT, alpha=0.6)
        thickness = 0.5
    for n, run in enumerate(runs):
        color, marker, _ = run_style(n)
        if has_bars:
            offset = (n - (len(runs) - 1) / 2) * thickness
            axes.barh(places + offset, run.deployed.recall, thickness * 0.92, color=color)
        else:
            axes.plot(run.deployed.recall, places, marker, color=color, markersize=6, alpha=0.85, markeredgewidth=0)
    run = runs[0]
    if len(runs) == 1:
        for place, value in zip(places, run.deployed.recall, strict=True):
            axes.text(1.02, place, f"{value:.2f}", va="center", fontsize=9)
        for place, interval in zip(places, run.deployed.recall_intervals, strict=False):
            axes.plot(interval, [place, place], color=INK, lw=1, solid_capstyle="butt")
    _label_rows(axes, run.class_names, run.class_counts, f"{run.part} recall")
    axes.set_xlim(0, 1.02)


def _draw_profile(runs: Sequence[RunView], ylabel: str, alt: str, title: str) -> Drawing:
    """Draw many classes, ordered by labeled examples: their recall above, the labeled counts below."""
    counts = runs[0].class_counts
    classes = len(runs[0].class_names)
    groups = np.array_split(np.array(sort_classes(counts, classes)), min(GROUPS, classes))
    places = np.cumsum([len(group) for group in groups]) - np.array([(len(group) + 1) / 2 for group in groups])

    def paint(figure: Any) -> None:
        top = bottom = figure.add_subplot(4, 1, (1, 3)) if counts else figure.add_subplot()
        for n, run in enumerate(runs):
            recall = np.asarray(run.deployed.recall, float)
            parts = [recall[group] for group in groups]
            if len(runs) == 1:
                low = [part.min() for part in parts]
                high = [part.max() for part in parts]
                top.fill_between(places, low, high, color=RUNS[n], alpha=0.25, lw=0)
            style = {"color": run_style(n).color, "ls": "--" if _is_dashed(n) else "-"}
            top.plot(places, [part.mean() for part in parts], **style)
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
    if len(runs) > 1:
        keys = [run_style(n).as_key(run.name, "dash" if _is_dashed(n) else "line") for n, run in enumerate(runs)]
    elif size > 1:
        keys = [Key("line", RUNS[0], f"mean of {size} neighbors"), Key("band", RUNS[0], "lowest to highest of them")]
    return draw(paint, 3.4, alt, title, keys)


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


def _is_dashed(n: int) -> bool:
    """Return whether a run is drawn dashed, because its color is that of an earlier one."""
    return n >= len(RUNS)


def _describe_range(run: RunView) -> str:
    recall = run.deployed.recall
    name = shorten(run.class_names[run.deployed.lowest_class], 30)
    return f"{shorten(run.name, 60)} from {min(recall):.2f} (class {name}) to {max(recall):.2f}"
