"""Tables of a comparison: cells for the page and the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from csst.comparison.summary import LOWEST, MEASURES, VALUE, ComparisonRow

#: characters with which a formula of a spreadsheet begins
FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def quote_formula(text: str) -> str:
    """Return text that a spreadsheet does not take for a formula."""
    return "'" + text if text[:1] in FORMULAS else text


def cells(table: Sequence[ComparisonRow], columns: Sequence[str] = ()) -> list[list[str]]:
    """Return head and rows as the paper writes them: mean ± std over the seeds.

    Args:
        table: the rows.
        columns: their names, in this order; none for all that carry information.

    Returns:
        The cells, the first row being the head.
    """
    minimum = _name_minimum(table)
    formats: dict[str, Callable[[ComparisonRow], str]] = {
        "method": lambda line: line.name,
        "objective": lambda line: line.row.objective,
        "objective value": lambda line: format_spread(line, VALUE),
        "mean recall": lambda line: format_spread(line, "mean_recall"),
        f"{minimum} recall": lambda line: format_spread(line, "min_recall"),
        "5 lowest recalls": lambda line: format_spread(line, LOWEST) if line.has_many_classes else "–",
        f"{minimum} coverage": lambda line: format_spread(line, "min_coverage"),
        "constraints": describe_constraints,
        "used": lambda line: "–" if line.used is None else f"{line.used:.0%}",
        "seconds": lambda line: f"{line.seconds:.1f}" if line.seconds < 99.95 else f"{line.seconds:,.0f}",
        "n": lambda line: str(line.n),
        "hardware": lambda line: line.hardware,
    }
    names = list(columns) or [name for name in formats if _is_informative(name, map(formats[name], table))]
    return [names, *([formats[name](line) for name in names] for line in table)]


def _name_minimum(table: Sequence[ComparisonRow]) -> str:
    """Return what the columns of the lowest recall and coverage are the minimum of."""
    kinds = {line.is_grouped for line in table}
    if kinds == {False}:
        return "min"
    return "min head–tail" if kinds == {True} else "min (head–tail where asked)"


def _is_informative(name: str, column: Iterable[str]) -> bool:
    """Return whether a column is not empty and, if its value can stand in the caption, not the same in all rows."""
    values = set(column)
    if name in ("objective", "n", "hardware"):
        return len(values) > 1
    return name not in ("used", "constraints", "5 lowest recalls") or values != {"–"}


def format_spread(line: ComparisonRow, measure: str) -> str:
    """Return mean ± std over the seeds."""
    mean = f"{line.mean(measure):.3f}"
    return f"{mean} ± {line.std(measure):.3f}" if line.n > 1 else mean


def describe_constraints(line: ComparisonRow) -> str:
    """Return whether the constraints hold: met, missed, or in how many seeds."""
    verdicts = [result.is_met for result in line.results]
    if all(verdict is None for verdict in verdicts):
        return "–"
    count = sum(bool(verdict) for verdict in verdicts)
    if count == line.n:
        return "met"
    return f"met {count} of {line.n}" if count else "missed"


def describe_hardware(table: Sequence[ComparisonRow]) -> str:
    """Return the hardware of all rows; nothing if it differs, as the table then has a column for it."""
    names = {line.hardware for line in table}
    return f"Hardware: {names.pop()}." if len(names) == 1 and "" not in names else ""


def describe_runs(table: Sequence[ComparisonRow]) -> str:
    """Return the number of seeds and the hardware, as sentences."""
    seeds = sorted({line.n for line in table})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    spread = "One seed." if seeds == [1] else f"Mean ± std over {count} seeds."
    return f"{spread} {describe_hardware(table)}".strip()


def split_objectives(table: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    """Return the rows of each objective."""
    objectives = dict.fromkeys(line.row.objective for line in table)
    return {name: [line for line in table if line.row.objective == name] for name in objectives}


def markdown(table: Sequence[ComparisonRow]) -> str:
    """Return a Markdown table for each objective, and below them seeds and hardware."""
    texts = []
    parts = split_objectives(table)
    for objective, lines in parts.items():
        rows = [[cell.replace("|", "\\|") for cell in row] for row in cells(lines)]
        text_lines = [f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]]]
        if len(parts) > 1:
            text_lines.insert(0, f"## {objective}\n")
        texts.append("\n".join(text_lines) + "\n")
    return "\n".join([*texts, f"{describe_runs(table)}\n"])


def as_csv(table: Sequence[ComparisonRow]) -> str:
    """Return one line per row and seed, for spreadsheets and data frames."""
    file = io.StringIO()
    writer = csv.writer(file)
    names = ("method", "objective", "rule", "measured_on", "seed", VALUE, *MEASURES, "constraints_met")
    writer.writerow([*names, "constraints_missed_by", "used", "seconds", "hardware"])
    for line in table:
        for result in line.results:
            writer.writerow(
                [
                    quote_formula(line.row.label),
                    quote_formula(line.row.objective),
                    line.rule,
                    line.part,
                    result.seed,
                    *(f"{result.values[measure]:.6f}" for measure in (VALUE, *MEASURES)),
                    "" if result.is_met is None else str(result.is_met).lower(),
                    "" if result.is_met is None else f"{result.missed:.6f}",
                    "" if result.used is None else f"{result.used:.6f}",
                    f"{result.seconds:.1f}",
                    quote_formula(result.hardware),
                ]
            )
    return file.getvalue()


def as_json(table: Sequence[ComparisonRow], about: dict[str, Any]) -> str:
    """Return the table with all seeds, and the content of `about`."""
    rows = []
    for line in table:
        numbers = {
            measure: {"mean": line.mean(measure), "std": line.std(measure), "values": line.values(measure)}
            for measure in (VALUE, *MEASURES, LOWEST)
        }
        rows.append(
            {
                "method": line.row.label,
                "objective": line.row.objective,
                "rule": line.rule,
                "setting": None if line.row.setting is None else line.row.setting._asdict(),
                "measured_on": line.part,
                "n": line.n,
                "seeds": [result.seed for result in line.results],
                **numbers,
                "constraints_met": [result.is_met for result in line.results],
                "constraints_missed_by": [result.missed for result in line.results],
                "used": [result.used for result in line.results],
                "seconds": [result.seconds for result in line.results],
                "hardware": [result.hardware for result in line.results],
            }
        )
    return json.dumps({**about, "rows": rows}, indent=2)
