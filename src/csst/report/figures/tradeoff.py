"""Figures of the trade-off: the runs against each other, and what decision rules make of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from csst.report.figures.svg import ACCENT, FAINT, INK, RUNS, Drawing, Key, begin_at_zero, draw, run_style
from csst.report.run_view import RunView

#: the largest number of points of a frontier
MOST_POINTS = 300
#: the largest number of runs in a figure, and in its legend
MOST_RUNS = 300
MOST_KEYS = 24
_HOLLOW = {"fillstyle": "none", "markeredgewidth": 1.5}


def draw_tradeoff(runs: Sequence[RunView]) -> Drawing:
    """Draw mean against min recall of every complete run: filled as deployed, hollow without the decision rule."""
    runs = runs[:MOST_RUNS]
    best_run = max(runs, key=lambda run: run.deployed.min_recall)
    alt = (
        f"Mean recall against min recall on {runs[0].part} of {len(runs)} runs; highest min recall "
        f"{best_run.deployed.min_recall:.2f}: {best_run.name}"
    )

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        for n, run in enumerate(runs):
            mark = {"marker": run_style(n).marker, "markersize": 8, "ls": "none", "clip_on": False}
            style = {"color": run_style(n).color, **mark}
            axes.plot(run.deployed.mean_recall, run.deployed.min_recall, **style)
            if run.adjusted:
                x = [run.adjusted.mean_recall, run.without_rule.mean_recall]
                y = [run.adjusted.min_recall, run.without_rule.min_recall]
                axes.plot(x, y, color=FAINT, lw=1, zorder=1)
                axes.plot(x[1], y[1], **style, **_HOLLOW)
        axes.margins(0.12)
        results = [result for run in runs for result in (run.without_rule, run.deployed)]
        begin_at_zero(axes, "x", [result.mean_recall for result in results])
        begin_at_zero(axes, "y", [result.min_recall for result in results])
        axes.locator_params(nbins=6)
        axes.set_xlabel(f"mean recall on {runs[0].part}")
        axes.set_ylabel("min recall")

    keys = [run_style(n).as_key(run.name) for n, run in enumerate(runs[:MOST_KEYS])]
    if len(runs) > MOST_KEYS:
        keys.append(Key("…", INK, f"and {len(runs) - MOST_KEYS} more, in the same styles again"))
    if any(run.adjusted for run in runs):
        keys.append(Key("○", INK, "hollow: without the decision rule"))
    return draw(paint, 3.4, alt, "Mean against min recall: the upper right is best", keys)


def draw_frontier(run: RunView) -> Drawing | None:
    """Draw the metrics of decision rules for one model on validation: mean against min recall and min coverage.

    The frontier is measured on the examples that its rules were fitted on, so the model without a rule is drawn on
    validation, too. None without a frontier.
    """
    frontier = run.rule.frontier
    if not frontier:
        return None
    points = frontier[:: -(-len(frontier) // MOST_POINTS)]
    mean_recall = [point.mean_recall for point in points]
    with_rule = run.rule.results.get("validation")
    without_rule = run.rule.unadjusted.get("validation")

    def paint(figure: Any) -> None:
        rows = figure.subplots(2, 1, sharex=True)
        for axes, name in zip(rows, ("min_recall", "min_coverage"), strict=True):
            style = {"ls": "none", "marker": "s", "color": RUNS[1], "markersize": 7, "clip_on": False}
            heights = [getattr(point, name) for point in points]
            axes.plot(mean_recall, heights, "o", color=ACCENT, markersize=4, clip_on=False)
            if without_rule:
                axes.plot(without_rule.mean_recall, getattr(without_rule, name), **style)
            if with_rule:
                axes.plot(with_rule.mean_recall, getattr(with_rule, name), **style, **_HOLLOW)
            axes.set_ylabel(name.replace("_", " "))
            axes.margins(0.08)
            begin_at_zero(axes, "x", mean_recall)
            begin_at_zero(axes, "y", heights)
        rows[1].set_xlabel("mean recall on validation")

    keys = [Key("●", ACCENT, "decision rules")]
    if without_rule:
        is_trained = without_rule == run.results["validation"]
        keys.append(Key("■", RUNS[1], "as trained" if is_trained else "the last model without a rule"))
    if with_rule:
        keys.append(Key("□", RUNS[1], "its decision rule, cross-fitted"))
    alt = (
        f"Frontier of decision rules: mean recall from {mean_recall[0]:.2f} to {mean_recall[-1]:.2f}, "
        f"min recall up to {max(point.min_recall for point in points):.2f}, "
        f"min coverage up to {max(point.min_coverage for point in points):.3f}"
    )
    title = "What decision rules attain from this training, on the validation examples they are fitted on"
    return draw(paint, 4.2, alt, title, keys)
