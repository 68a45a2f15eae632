"""Figures of the trade-off: the runs against each other, and what post-hoc rules make of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from csst.report.shown import ShownRun
from csst.report.svg import ACCENT, FAINT, INK, RUNS, Drawing, Key, draw, look, shortened

#: points of a frontier, runs in the figure, and runs in its legend, at most
POINTS, DRAWN, LOOKS = 300, 300, 24


def tradeoff_figure(runs: Sequence[ShownRun]) -> Drawing:
    """Mean against min recall of every finished run: filled as trained, hollow after post-hoc adjustment."""
    runs = [run for run in runs if run.finished][:DRAWN]
    finished = [run for run in runs if run.finish]
    best = max(runs, key=lambda run: run.result["min_recall"])
    alt = (
        f"Mean recall against min recall on {runs[0].part} of {len(runs)} runs; highest min recall "
        f"{best.result['min_recall']:.2f}: {best.name}"
    )

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        for n, run in enumerate(runs):
            style = {"color": look(n)[0], "marker": look(n)[1], "markersize": 8, "ls": "none"}
            axes.plot([run.result["mean_recall"]], [run.result["min_recall"]], **style)
            if run.finish:
                x, y = ([part[key] for part in (run.result, run.finish)] for key in ("mean_recall", "min_recall"))
                axes.plot(x, y, color=FAINT, lw=1, zorder=1)
                axes.plot(x[1:], y[1:], **style, fillstyle="none", markeredgewidth=1.5)
        axes.margins(0.12)
        axes.locator_params(nbins=6)
        axes.set_xlabel(f"mean recall on {runs[0].part}")
        axes.set_ylabel("min recall")

    keys = [Key(look(n)[2], look(n)[0], shortened(run.name, 60)) for n, run in enumerate(runs[:LOOKS])]
    if len(runs) > LOOKS:
        keys.append(Key("…", INK, f"and {len(runs) - LOOKS} more, which look like these again"))
    if finished:
        keys.append(Key("○", INK, "hollow: after post-hoc adjustment"))
    title = "Mean against min recall: the upper right is best"
    return draw(paint, 3.4, alt, title, tuple(keys))


def frontier_figure(run: ShownRun) -> Drawing | None:
    """What post-hoc rules reach from this one training on validation: mean against min recall and min coverage.

    The frontier is measured on the examples its rules were fitted on, so the model whose rules they are, the last one,
    is drawn as it is on validation too.
    """
    posthoc = run.metrics.get("adjusted") or {}
    keys = ("mean_recall", "min_recall", "min_coverage")
    given = [point for point in posthoc.get("frontier") or [] if all(point.get(key) is not None for key in keys)]
    points = sorted(tuple(float(point[key]) for key in keys) for point in given)
    if not points:
        return None
    points = points[:: -(-len(points) // POINTS)]
    mean, low, coverage = zip(*points, strict=True)
    own = (posthoc.get("unadjusted") or run.metrics).get("validation")
    finish = posthoc.get("validation")

    def paint(figure: Any) -> None:
        rows = figure.subplots(2, 1, sharex=True)
        for axes, values, name in zip(rows, (low, coverage), keys[1:], strict=True):
            style = {"ls": "none", "marker": "s", "color": RUNS[1], "markersize": 7}
            axes.plot(mean, values, "o", color=ACCENT, markersize=4)
            if own:
                axes.plot([own["mean_recall"]], [own[name]], **style)
            if finish:
                axes.plot([finish["mean_recall"]], [finish[name]], **style, fillstyle="none", markeredgewidth=1.5)
            axes.set_ylabel(name.replace("_", " "))
            axes.margins(0.08)
        rows[1].set_xlabel("mean recall on validation")

    shown = [Key("●", ACCENT, "post-hoc rules")]
    shown += (
        [Key("■", RUNS[1], "the last model without a rule" if "unadjusted" in posthoc else "as trained")] if own else []
    )
    shown += [Key("□", RUNS[1], "its post-hoc adjustment, cross-fitted")] if finish else []
    alt = (
        f"Frontier of post-hoc rules: mean recall from {mean[0]:.2f} to {mean[-1]:.2f}, min recall up to "
        f"{max(low):.2f}, min coverage up to {max(coverage):.3f}"
    )
    title = "What post-hoc rules reach from this training, on the validation examples they are fitted on"
    return draw(paint, 4.2, alt, title, tuple(shown))
