"""Figures of the trade-off: the runs against each other, and what decision rules make of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from csst.report.figures.comparison import Mark, draw_marks
from csst.report.figures.svg import ACCENT, RUNS, Drawing, Key, begin_at_zero, draw, run_style
from csst.report.run_view import RunView

#: the largest number of points of a frontier
MOST_POINTS = 300
_HOLLOW = {"fillstyle": "none", "markeredgewidth": 1.5}


def draw_tradeoff(runs: Sequence[RunView]) -> Drawing:
    """Draw mean against min recall of every complete run: filled as trained, hollow with the decision rule."""
    marks = []
    for run in runs:
        marks.append(Mark(run.name, "", [run.without_rule.mean_recall], [run.without_rule.min_recall]))
        if run.adjusted:
            marks.append(Mark(run.name, "rule", [run.adjusted.mean_recall], [run.adjusted.min_recall]))
    best_run = max(runs, key=lambda run: run.deployed.min_recall)
    alt = (
        f"Mean recall against min recall on {runs[0].part} of {len(runs)} runs; highest min recall "
        f"{best_run.deployed.min_recall:.2f}: {best_run.name}"
    )
    styles = {run.name: run_style(n) for n, run in enumerate(runs)}
    axis_labels = (f"mean recall on {runs[0].part}", "min recall")
    return draw_marks(marks, styles, axis_labels, alt, "Mean against min recall: the upper right is best")


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
