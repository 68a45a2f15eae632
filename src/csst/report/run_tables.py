"""Runs in the cells of tables, the first row being the head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from csst.report.figures.svg import shorten
from csst.report.result import Result
from csst.report.run_view import RunView

COLUMNS = ["run", "measured on", "mean recall", "min recall", "min coverage", "objective", "constraints", "seconds"]


def tabulate_runs(runs: Sequence[RunView]) -> list[list[str]]:
    """The numbers of every run as deployed and, with a rule, without it; of a single run on validation too.

    Columns that say nothing, or the same of all runs, are left out, and of a single run the lowest recall, which the
    sentence above says.
    """
    rows = [COLUMNS]
    for run in runs:
        name = shorten(run.name, 120)
        if not run.is_complete:
            rows.append([name, "incomplete", *["–"] * 6])
            continue
        seconds = "–" if run.seconds is None else f"{run.seconds:,.1f}"
        parts = run.results if len(runs) == 1 else {run.part: run.result}
        if run.adjusted:
            rows.append([f"{name} + rule", run.part, *_format_result(run.adjusted), seconds])
            rows.append([f"{name}, without the rule", run.part, *_format_result(run.without_rule), "–"])
            continue
        rows += [[name, part, *_format_result(result), seconds] for part, result in parts.items()]
    columns = [column for column in zip(*rows, strict=True) if {*column[1:]} != {"–"}]
    columns = [column for column in columns if column[0] != "measured on" or len({*column[1:]}) > 1]
    columns = [column for column in columns if column[0] != "min recall" or len(runs) > 1]
    return [list(row) for row in zip(*columns, strict=True)]


def tabulate_differing_settings(runs: Sequence[RunView], limit: int = 60) -> list[list[str]]:
    """The settings that are not the same in all runs, one row each; empty where there are none."""
    flat = [_flatten(run.settings) for run in runs]
    names = sorted({name for settings in flat for name in settings})
    rows = [[name, *(shorten(settings.get(name, "–"), 60) for settings in flat)] for name in names]
    rows = [row for row in rows if len({*row[1:]}) > 1]
    return [["setting", *(shorten(run.name, 60) for run in runs)], *rows[:limit]] if rows else []


def describe_constraints(result: Result) -> str:
    """met, missed by …, or – without constraints."""
    if result.is_feasible is None:
        return "–"
    return "met" if result.is_feasible else f"missed by {format_number(-min(result.constraint_slack))}"


def format_number(value: float | None) -> str:
    """Three decimals; of a small number, as coverages of many classes are, two digits."""
    if value is None or isnan(value):
        return "–"
    return f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.2g}"


def _format_result(result: Result) -> list[str]:
    values = (result.mean_recall, result.min_recall, result.min_coverage, result.objective_value)
    return [*map(format_number, values), describe_constraints(result)]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
