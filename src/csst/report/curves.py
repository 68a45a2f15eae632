"""Figures over the steps of training: multipliers, recall, coverage, what was used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from csst.report.goals import Covered
from csst.report.shown import ShownRun
from csst.report.svg import ACCENT, FAINT, INK, RUNS, Drawing, Key, draw, ranked_colours, shortened

#: up to this many lines each has its name; more become a band with the extreme ones drawn
LINES, EXTREMES = 12, 3


def multipliers_figure(run: ShownRun) -> Drawing:
    """λ over time."""
    values = _values(run, "multipliers")
    labels = run.labels if len(run.labels) == values.shape[1] else [f"λ {n}" for n in range(values.shape[1])]
    names, common = by_class(labels, run.class_names)
    counts = run.counts if common else None
    return _over_time(run, values, names, f"multiplier λ{common and ' of '}{common}", counts, largest=True)


def recall_over_time(run: ShownRun) -> Drawing:
    """Validation recall of every class over time."""
    return _over_time(run, _values(run, "recall"), run.class_names, "validation recall", run.counts, limit=1.02)


def coverage_over_time(run: ShownRun, covered: Sequence[Covered]) -> Drawing:
    """Validation coverage of every constrained class or group over time, with the bounds."""
    whole = _values(run, "coverage")
    values = np.stack([whole[:, list(part.classes)].mean(1) for part in covered], 1)
    alone = [part.classes[0] for part in covered if len(part.classes) == 1]
    counts = [run.counts[c] for c in alone] if run.counts and len(alone) == len(covered) else None
    bounds = sorted({bound for part in covered for bound in (part.low, part.high) if bound is not None})
    labels = [part.label for part in covered]
    return _over_time(run, values, labels, "validation coverage", counts, bounds=bounds)


def by_class(labels: Sequence[str], class_names: Sequence[str]) -> tuple[Sequence[str], str]:
    """Labels that differ in the class only, such as recall['cat'], as class names and recall[class]."""
    forms = {label.replace(f"['{name}']", "[class]") for label, name in zip(labels, class_names, strict=False)}
    if len(labels) == len(class_names) and len(forms) == 1 and "[class]" in (form := forms.pop()):
        return class_names, form
    return labels, ""


def used_figure(run: ShownRun) -> Drawing | None:
    """Share of pseudo-labels that were used, and of those the share that was right where the truth is known."""
    steps = [record["step"] for record in run.journal]
    used, right = (
        np.array([_number(record.get(key)) for record in run.journal], float) for key in ("used", "pseudo_accuracy")
    )
    if np.isnan(used).all():
        return None
    known = not np.isnan(right).all()

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        mark = "o" if np.isfinite(used).sum() == 1 else None
        axes.plot(steps, used, color=ACCENT, marker=mark)
        if known:
            axes.plot(steps, right, color=RUNS[1], ls="--", marker=mark)
        _steps(axes, run)
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("share")

    keys = [Key("line", ACCENT, "pseudo-labels used")]
    words = f"used at the end: {used[np.isfinite(used)][-1]:.2f}"
    if known:
        keys.append(Key("dash", RUNS[1], "of these right"))
        words += f", of these right: {right[np.isfinite(right)][-1]:.2f}"
    title = "Share of pseudo-labels used" + (", and their accuracy" if known else "; their truth is not known")
    return draw(paint, 2.7, f"{title} over the steps; {words}", title, (*keys, *_selected_key(run)))


def _over_time(
    run: ShownRun,
    values: Any,
    names: Sequence[str],
    what: str,
    counts: Sequence[int] | None,
    largest: bool = False,
    limit: float | None = None,
    bounds: Sequence[float] = (),
) -> Drawing:
    steps = [record["step"] for record in run.journal]
    last = values[-1]
    order = sorted(range(len(names)), key=lambda n: (-last[n] if largest else last[n], n))
    extreme = order[0]
    alt = (
        f"{what} over {len(names)} lines and {steps[-1]} steps; at the end the "
        f"{'largest' if largest else 'lowest'} is {shortened(names[extreme], 60)} with {last[extreme]:.3f}"
    )
    few = len(names) <= LINES
    chosen = range(len(names)) if few else order[:EXTREMES]
    colours = ranked_colours(list(counts) if counts is not None else None, len(names)) if few else list(RUNS[1:4])

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        mark = "o" if len(steps) == 1 else None
        if not few:
            low, fifth, middle, ninth, high = np.nanquantile(values, (0, 0.1, 0.5, 0.9, 1), axis=1)
            axes.fill_between(steps, low, high, color=ACCENT, alpha=0.15, lw=0)
            axes.fill_between(steps, fifth, ninth, color=ACCENT, alpha=0.25, lw=0)
            axes.plot(steps, middle, color=ACCENT, marker=mark)
        for n, at in enumerate(chosen):
            axes.plot(steps, values[:, at], color=colours[n], ls=_dashes(n) if few else "-", marker=mark)
        for bound in bounds:
            axes.axhline(bound, color=INK, lw=1, ls=(0, (1, 1.5)))
        _steps(axes, run)
        axes.set_ylabel(what.split(" of ")[0])
        axes.set_ylim(0, limit)

    keys = [
        Key("dash" if few and n % 2 else "line", colours[n], shortened(names[at], 40)) for n, at in enumerate(chosen)
    ]
    if not few:
        keys = [
            Key("band", ACCENT, f"all {len(names)}, the middle 80 % darker"),
            Key("line", ACCENT, "median"),
            *keys,
        ]
    if bounds:
        keys.append(Key("dash", INK, "bound " + " and ".join(f"{bound:.4g}" for bound in bounds[:4])))
    title = f"{what[0].upper()}{what[1:]} over the steps"
    if few and counts is not None:
        title += ", from most labeled examples (blue) to fewest (red)"
    elif not few:
        title += f"; lines: the {EXTREMES} {'largest' if largest else 'lowest'} at the end"
    return draw(paint, 2.9, alt, title, (*keys, *_selected_key(run)))


def _dashes(n: int) -> Any:
    return "-" if n % 2 == 0 else (0, (4, 1.5))


def _values(run: ShownRun, key: str) -> Any:
    return np.array([[_number(v) for v in record[key]] for record in run.journal], float)


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _steps(axes: Any, run: ShownRun) -> None:
    axes.set_xlabel("step")
    axes.grid(False, axis="x")
    if "selected_step" in run.metrics:
        axes.axvline(run.metrics["selected_step"], color=FAINT, lw=4, zorder=0)


def _selected_key(run: ShownRun) -> tuple[Key, ...]:
    return (Key("▌", FAINT, "selected model"),) if "selected_step" in run.metrics else ()
