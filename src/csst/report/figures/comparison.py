"""Figures of a comparison: all its rows in each, mean ± std over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np

from csst.comparison.summary import VALUE, ComparisonRow
from csst.report.figures.svg import FAINT, INK, RUNS, Drawing, Key, RunStyle, begin_at_zero, draw, run_style, shorten

#: fill of a marker as trained and with each rule, and its character in a legend
FILLS = {
    "": ("full", "●"),
    "rule": ("none", "○"),
    "closed form": ("left", "◐"),
    "calibrated": ("top", "◓"),
    "pooled": ("bottom", "◒"),
}
#: the mark of a row that meets the constraints neither as trained nor with a rule
MISSES = Key("†", INK, "misses the constraints")
Styles = dict[str, RunStyle]


class Axis(NamedTuple):
    """A quantity on an axis: its name, and its value in every run of a row."""

    label: str
    read: Callable[[ComparisonRow], list[float]]


class Mark(NamedTuple):
    """A row or run in two quantities, (seeds,) each, as trained (`rule` "") or with a rule."""

    label: str
    rule: str
    x: list[float]
    y: list[float]


class Curve(NamedTuple):
    """Pseudo-labels of a row or run over the steps: fraction used, and its accuracy, (seeds, steps); nan if unknown."""

    label: str
    steps: list[int]
    used: Any
    accuracy: Any


def assign_styles(table: Sequence[ComparisonRow]) -> Styles:
    """Return a color and a marker for every row's label, the same in all figures whatever the order of the table."""
    labels = sorted({line.row.label for line in table})
    return {label: run_style(n) for n, label in enumerate(labels)}


def find_axes(table: Sequence[ComparisonRow]) -> tuple[Axis, Axis]:
    """Return the objective's value, and the quantity traded against it: constraints, mean recall, or min recall."""
    value = Axis("objective value", lambda line: line.values(VALUE))
    if any(result.slack for line in table for result in line.results):
        slack = Axis("slack of the tightest constraint", lambda line: [min(result.slack) for result in line.results])
        return value, slack
    measure = "min_recall" if is_value(table, "mean_recall") else "mean_recall"
    return value, Axis(name_measure(table, measure), lambda line: line.values(measure))


def is_value(table: Sequence[ComparisonRow], measure: str) -> bool:
    """Return whether a measure equals the objective's value in all rows."""
    return all(np.allclose(line.values(measure), line.values(VALUE), atol=1e-9) for line in table)


def name_measure(table: Sequence[ComparisonRow], measure: str) -> str:
    """Return the name of a measure for a label."""
    words = measure.replace("_", " ")
    return words.replace("min ", "min head–tail ") if table[0].is_grouped else words


def draw_values(table: Sequence[ComparisonRow], styles: Styles) -> Drawing:
    """Draw the value of the objective in every row, the best at the top; a dagger marks missed constraints."""
    ranking = sorted(table, key=lambda line: line.rank[1])
    labels = list(dict.fromkeys(line.row.label for line in ranking))
    feasible_labels = {line.row.label for line in table if line.rank[0] == 0}
    ticks = [shorten(label, 26) + ("" if label in feasible_labels else MISSES.symbol) for label in labels]
    part = table[0].part
    offsets = _spread_rules(table)

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        for line in table:
            place = labels.index(line.row.label) + offsets[line.rule]
            _mark(axes, ([line.mean(VALUE)], [place]), ([line.std(VALUE)], None), styles[line.row.label], line.rule)
        axes.set_yticks(range(len(labels)), ticks)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0, pad=6)  # room for a mark at 0
        begin_at_zero(axes, "x", [line.mean(VALUE) for line in table])
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel(f"objective value on {part}")

    row = table[0]
    alt = f"Value of '{row.row.objective}' on {part}, {len(table)} rows; best {row.name} with {row.mean(VALUE):.3f}"
    height = 0.8 + (0.2 + 0.08 * len(offsets)) * len(labels)
    keys = _make_rule_keys([line.rule for line in table])
    if len(feasible_labels) < len(labels):
        keys.append(MISSES)
    return draw(paint, height, alt, "Objective value, best first, ± std over seeds", keys)


def draw_tradeoff(table: Sequence[ComparisonRow], styles: Styles) -> Drawing:
    """Draw the value of the objective against the quantity traded for it, with the spread over seeds."""
    value, price = find_axes(table)
    is_slack = "slack" in price.label
    marks = [Mark(line.row.label, line.rule, price.read(line), value.read(line)) for line in table]
    row = min(table, key=lambda line: line.rank[1])
    alt = f"{value.label} against {price.label} of {len(table)} rows; best value {row.mean(VALUE):.3f}: {row.name}"
    axis_labels = (f"{price.label} on {table[0].part}", value.label)
    return draw_marks(marks, styles, axis_labels, alt, f"Objective value against {price.label}", is_slack)


def draw_marks(
    marks: Sequence[Mark], styles: Styles, axis_labels: tuple[str, str], alt: str, title: str, is_slack: bool = False
) -> Drawing:
    """Draw marks in two quantities; the first may be a slack, which is met to the right of 0."""
    means = [(mean(mark.x), mean(mark.y)) for mark in marks]
    trained = {mark.label: point for mark, point in zip(marks, means, strict=True) if not mark.rule}

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        for mark, (x, y) in zip(marks, means, strict=True):
            if mark.rule and mark.label in trained:  # a line from the same model as trained
                start_x, start_y = trained[mark.label]
                axes.plot([start_x, x], [start_y, y], color=FAINT, lw=1, zorder=1)
            _mark(axes, ([x], [y]), (_spread(mark.x), _spread(mark.y)), styles[mark.label], mark.rule)
        if is_slack:
            axes.axvline(0, color=INK, lw=1, ls=(0, (1, 1.5)))
        axes.margins(0.1)
        # A constraint is met or missed to the right or left of 0, so that a slack needs both sides.
        if not is_slack:
            begin_at_zero(axes, "x", [x for x, _ in means])
        begin_at_zero(axes, "y", [y for _, y in means])
        axes.locator_params(nbins=6)
        axes.set_xlabel(axis_labels[0])
        axes.set_ylabel(axis_labels[1])

    labels = {mark.label for mark in marks}
    keys = [style.as_key(label) for label, style in styles.items() if label in labels]
    keys += _make_rule_keys([mark.rule for mark in marks])
    if is_slack:
        keys.append(Key("dash", INK, "constraints met to the right"))
    return draw(paint, 3.4, alt, title, keys)


def draw_settings(table: Sequence[ComparisonRow]) -> Drawing | None:
    """Draw the measures against the setting that an ablation varies, a line per method; None without such a setting."""
    table = [line for line in table if line.row.setting is not None]
    if not table:
        return None
    has_slack = any(result.slack for line in table for result in line.results)
    measures = ["mean_recall", "min_coverage" if has_slack else "min_recall"]
    if not any(is_value(table, measure) for measure in measures):
        measures.insert(0, VALUE)
    name = table[0].row.setting.name  # type: ignore[union-attr]
    methods = list(dict.fromkeys(line.row.method for line in table))
    ticks = sorted({_read_setting(line) for line in table})

    def paint(figure: Any) -> None:
        panels = figure.subplots(len(measures), 1, sharex=True)
        for axes, measure in zip(panels, measures, strict=True):
            for method, rule in dict.fromkeys((line.row.method, line.rule) for line in table):
                lines = [line for line in table if (line.row.method, line.rule) == (method, rule)]
                lines.sort(key=_read_setting)
                style = run_style(methods.index(method))
                x = [_read_setting(line) for line in lines]
                y = [line.mean(measure) for line in lines]
                axes.plot(x, y, color=style.color, ls="--" if rule else "-", lw=1.2)
                _mark(axes, (x, y), (None, [line.std(measure) for line in lines]), style, rule)
            axes.set_ylabel(name_measure(table, measure))
            axes.margins(0.06)
            begin_at_zero(axes, "y", [line.mean(measure) for line in table])
        panels[-1].set_xlabel(name)
        if ticks[0] > 0 and ticks[-1] >= 5 * ticks[0]:
            panels[-1].set_xscale("log")
            panels[-1].minorticks_off()
        panels[-1].set_xticks(ticks, [f"{value:g}" for value in ticks])

    keys = [run_style(n).as_key(method) for n, method in enumerate(methods)]
    measure = measures[0]
    row = max(table, key=lambda line: line.mean(measure))
    alt = f"{measure} against {name}, {len(ticks)} values; highest at {_read_setting(row):g}: {row.mean(measure):.3f}"
    height = 1.2 + 1.5 * len(measures)
    return draw(paint, height, alt, f"Recall against {name}", [*keys, *_make_rule_keys([line.rule for line in table])])


def draw_used(curves: Sequence[Curve], styles: Styles) -> Drawing | None:
    """Draw the fraction of pseudo-labels used over the steps, and their accuracy if known; None if none were used."""
    curves = [curve for curve in curves if np.isfinite(curve.used).any()]
    if not curves:
        return None
    has_accuracy = any(np.isfinite(curve.accuracy).any() for curve in curves)
    panels = [("used", "fraction used")]
    if has_accuracy:
        panels.append(("accuracy", "of these correct"))

    def paint(figure: Any) -> None:
        rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, label) in zip(rows, panels, strict=True):
            for n, curve in enumerate(curves):
                steps, middle, spread = _average(curve.steps, getattr(curve, name))
                color = styles[curve.label].color
                line_style = "--" if n >= len(RUNS) else "-"
                axes.fill_between(steps, middle - spread, middle + spread, color=color, alpha=0.18, lw=0)
                axes.plot(steps, middle, color=color, ls=line_style, marker="o" if len(steps) == 1 else None)
            axes.set_ylim(0, 1.02)
            axes.set_ylabel(label)
            axes.grid(False, axis="x")
        rows[-1].set_xlabel("step")

    keys = [
        styles[curve.label].as_key(curve.label, "dash" if n >= len(RUNS) else "line") for n, curve in enumerate(curves)
    ]
    fractions = "; ".join(f"{curve.label} {np.nanmean(curve.used[:, -1]):.2f}" for curve in curves)
    title = "Pseudo-labels used" + (", and their accuracy" if has_accuracy else "")
    height = 4.2 if has_accuracy else 2.7
    return draw(paint, height, f"{title}; used at the end: {fractions}", title, keys)


def _average(steps: Sequence[int], values: Any) -> tuple[Any, Any, Any]:
    """Return steps, mean and std over the seeds (rows); steps without a number in any seed are left out."""
    columns = np.isfinite(values).any(0)
    numbers = values[:, columns]
    is_number = np.isfinite(numbers)
    count = is_number.sum(0)
    middle = np.where(is_number, numbers, 0.0).sum(0) / count
    squares = (np.where(is_number, numbers - middle, 0.0) ** 2).sum(0)
    return np.asarray(steps)[columns], middle, np.sqrt(squares / np.maximum(1, count - 1))


def _mark(axes: Any, places: tuple[Any, Any], spreads: tuple[Any, Any], style: RunStyle, rule: str) -> None:
    """Paint marks at x and y with error bars of these lengths in both directions, None for no bar."""
    fill = {"fillstyle": FILLS[rule][0], "markerfacecoloralt": "none", "markersize": 7, "markeredgewidth": 1.2}
    bars = {"xerr": spreads[0], "yerr": spreads[1], "elinewidth": 1, "capsize": 2}
    marks, *_ = axes.errorbar(*places, fmt=style.marker, color=style.color, **bars, **fill)
    marks.set_clip_on(False)  # a mark on the edge is drawn in full, its bars end there


def _make_rule_keys(rules: Sequence[str]) -> list[Key]:
    names = {"": "as trained", "rule": "with the decision rule"}
    keys = [Key(FILLS[rule][1], INK, names.get(rule, f"with the rule '{rule}'")) for rule in FILLS if rule in rules]
    return keys if len(keys) > 1 else []


def _spread_rules(table: Sequence[ComparisonRow]) -> dict[str, float]:
    """Return an offset for the marks of each rule, so that they do not cover each other."""
    rules = [rule for rule in FILLS if any(line.rule == rule for line in table)]
    return {rule: 0.16 * (n - (len(rules) - 1) / 2) for n, rule in enumerate(rules)}


def _read_setting(line: ComparisonRow) -> float:
    assert line.row.setting is not None
    return line.row.setting.value


def _spread(values: Sequence[float]) -> list[float] | None:
    return [stdev(values)] if len(values) > 1 else None
