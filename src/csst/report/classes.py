"""Figures with one row per class: recall with the labeled count beside it, coverage against its bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from csst.report.goals import Covered
from csst.report.shown import ShownRun
from csst.report.svg import ACCENT, FAINT, INK, RUNS, Drawing, Key, draw, look, shortened
from csst.training.evaluation import constraints_met

#: more classes than this are drawn as a profile, more runs than this as dots instead of bars
MANY_CLASSES, MANY_RUNS = 30, 4
#: runs in one figure at most
TOGETHER = 12
#: classes of a profile are averaged in this many groups of neighbours
GROUPS = 100


def recall_figure(runs: Sequence[ShownRun]) -> Drawing:
    """The recall of every class in each run, all of the same classes; of the first 12 runs if there are more."""
    first, count = runs[0], len(runs)
    runs = runs[:TOGETHER]
    where = f"{first.part} recall" if first.finished else "validation recall so far"
    alt = f"{where} of every class: " + "; ".join(_worst(run) for run in runs[:3]) + ("; and more" if count > 3 else "")
    few = len(first.class_names) <= MANY_CLASSES
    title = "Recall of every class" if few else f"Recall of the {len(first.class_names)} classes"
    title += f" in the first {TOGETHER} of {count} runs" if count > TOGETHER else ""
    if not few:
        return _profile(runs, where, alt, title)
    bars = len(runs) <= MANY_RUNS
    keys = tuple(Key("■" if bars else look(n)[2], look(n)[0], shortened(run.name, 60)) for n, run in enumerate(runs))
    if count == 1:
        keys = (Key("■", RUNS[0], "as trained"), Key("○", INK, "after post-hoc adjustment")) if first.finish else ()
        if first.intervals.get("recall"):
            keys += (Key("line", INK, f"{first.intervals['level']:.0%} confidence, of all classes together"),)
    height = 0.75 + len(first.class_names) * (0.25 if count == 1 or not bars else 0.1 + 0.11 * len(runs))
    title += "; labeled examples in brackets" if first.counts else ""
    return draw(lambda figure: _rows(figure, runs, bars), height, alt, title, keys)


def _rows(figure: Any, runs: Sequence[ShownRun], bars: bool) -> None:
    axes = figure.add_subplot()
    first, count = runs[0], len(runs[0].class_names)
    places = np.arange(count)
    thick = 0.8 / len(runs)
    for n, run in enumerate(runs):
        recall, (colour, shape, _) = run.result["recall"], look(n)
        if bars:
            at = places + (n - (len(runs) - 1) / 2) * thick
            axes.barh(at, recall, thick * 0.92, color=colour)
        else:
            axes.plot(recall, places, shape, color=colour, markersize=6, alpha=0.85, markeredgewidth=0)
    if len(runs) == 1:
        for place, value in zip(places, first.result["recall"], strict=True):
            axes.text(1.02, place, f"{value:.2f}", va="center", fontsize=9)
        for place, interval in zip(places, first.intervals.get("recall") or (), strict=False):
            axes.plot([interval["low"], interval["high"]], [place, place], color=INK, lw=1, solid_capstyle="butt")
        if first.finish:
            axes.plot(first.finish["recall"], places, "o", color=INK, markersize=5, fillstyle="none")
    axes.set_yticks(places, _names(first.class_names, first.counts))
    _finish_rows(axes, count, f"{first.part} recall")
    axes.set_xlim(0, 1.02)


def _profile(runs: Sequence[ShownRun], where: str, alt: str, title: str) -> Drawing:
    """Many classes, ordered by labeled examples: their recall above, the labeled counts below."""
    first = runs[0]
    classes = len(first.class_names)
    order = sorted(range(classes), key=lambda c: (-first.counts[c] if first.counts else 0, c))
    groups = np.array_split(np.array(order), min(GROUPS, classes))
    places = np.cumsum([len(g) for g in groups]) - np.array([(len(g) + 1) / 2 for g in groups])
    dashed = len(RUNS)

    def paint(figure: Any) -> None:
        rows = [figure.add_subplot(4, 1, (1, 3))] if first.counts else [figure.add_subplot()]
        for n, run in enumerate(runs):
            recall = np.asarray(run.result["recall"], float)
            parts = [recall[g] for g in groups]
            if len(runs) == 1:
                low, high = ([f(p) for p in parts] for f in (np.min, np.max))
                rows[0].fill_between(places, low, high, color=RUNS[n], alpha=0.25, lw=0)
            rows[0].plot(places, [p.mean() for p in parts], color=look(n)[0], ls="-" if n < dashed else "--")
        rows[0].set_ylim(0, 1.02)
        rows[0].set_ylabel(where.removesuffix(" so far"))
        if first.counts:
            rows.append(figure.add_subplot(4, 1, 4, sharex=rows[0]))
            rows[0].tick_params(labelbottom=False)
            rows[1].plot(places, [np.asarray(first.counts)[g].mean() for g in groups], color=INK)
            rows[1].set_yscale("log")
            rows[1].yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            rows[1].yaxis.set_minor_formatter(lambda value, _: "")
            rows[1].set_ylabel("labeled")
        figure.align_ylabels()
        rows[-1].set_xlabel("classes, from most to fewest labeled" if first.counts else "classes")

    keys = tuple(
        Key("line" if n < dashed else "dash", look(n)[0], shortened(run.name, 60)) for n, run in enumerate(runs)
    )
    size = -(-classes // len(groups))
    if len(runs) == 1:
        keys = (Key("line", RUNS[0], f"mean of {size} neighbours"), Key("band", RUNS[0], "lowest to highest of them"))
    return draw(paint, 3.4, alt, title, keys if len(runs) > 1 or size > 1 else ())


def coverage_figure(run: ShownRun, covered: Sequence[Covered]) -> Drawing:
    """The share of examples predicted as each class (or group), against the bounds that the objective sets."""
    coverage = run.result["coverage"]
    values = [part.value(coverage) for part in covered]
    missed = [
        part.label
        for part, value in zip(covered, values, strict=True)
        if constraints_met(
            [*([] if part.low is None else [value - part.low]), *([] if part.high is None else [part.high - value])]
        )
        is False
    ]
    found = f"{len(missed)} of {len(covered)} miss the bound" if missed else "all keep the bound"
    where = run.part if run.finished else "validation, so far"
    alt = f"Coverage on {where} against the bound of '{run.objective}': {found}"
    few = len(covered) <= MANY_CLASSES
    if not few:
        order = sorted(range(len(covered)), key=lambda n: values[n])
        covered, values = [covered[n] for n in order], [values[n] for n in order]

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        places = np.arange(len(covered))
        edge = 0.45 if few else 0.5
        if few:
            axes.barh(places, values, 0.74, color=ACCENT)
            for side in ("low", "high"):
                for place, part in zip(places, covered, strict=True):
                    bound = getattr(part, side)
                    if bound is not None:
                        axes.plot([bound, bound], [place - edge, place + edge], color=INK, lw=1.6)
            axes.set_yticks(places, _names([part.label for part in covered], None))
            _finish_rows(axes, len(covered), f"coverage on {where}")
            axes.set_xlim(0, None)
        else:
            axes.plot(*_thinned(places, values), color=ACCENT)
            for side in ("low", "high"):
                bounds = [np.nan if getattr(p, side) is None else getattr(p, side) for p in covered]
                axes.plot(*_thinned(places, bounds), color=INK, lw=1.2, ls="--")
            axes.set_xlabel("classes, from least to most covered")
            axes.set_ylabel(f"coverage on {where}")
            axes.set_ylim(0, None)

    keys = (Key("■" if few else "line", ACCENT, "share of the predictions"), Key("▎" if few else "dash", INK, "bound"))
    height = 0.75 + 0.25 * len(covered) if few else 2.8
    return draw(paint, height, alt, f"Coverage against its bound: {found}", keys)


def _thinned(places: Any, values: Sequence[float]) -> tuple[Any, Any]:
    chosen = np.unique(np.linspace(0, len(values) - 1, min(len(values), 300)).round().astype(int))
    return places[chosen], np.asarray(values, float)[chosen]


def _finish_rows(axes: Any, count: int, label: str) -> None:
    axes.set_xlabel(label)
    axes.set_ylim(count - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=5)
    axes.spines["left"].set_color(FAINT)


def _names(names: Sequence[str], counts: Sequence[int] | None) -> list[str]:
    if counts is None:
        return [shortened(name, 22) for name in names]
    return [f"{shortened(name, 18)} ({count:,})" for name, count in zip(names, counts, strict=True)]


def _worst(run: ShownRun) -> str:
    recall = run.result["recall"]
    low, high = min(recall), max(recall)
    name = shortened(run.class_names[recall.index(low)], 30)
    return f"{shortened(run.name, 60)} from {low:.2f} (class {name}) to {high:.2f}"
