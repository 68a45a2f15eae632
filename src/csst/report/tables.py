"""A comparison as a table: cells for the page and the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from csst.runs.outcomes import LOWEST, MEASURES, VALUE, ComparisonRow

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def plain(name: str) -> str:
    """A text that a spreadsheet will not take for a formula."""
    return "'" + name if name[:1] in FORMULAS else name


def cells(table: Sequence[ComparisonRow], columns: Sequence[str] = ()) -> list[list[str]]:
    """Head and rows as the paper writes them: mean ± std over the seeds.

    Args:
        table: the rows.
        columns: which, in this order; none for all that say something.

    Returns:
        The cells, the first row being the head.
    """
    kinds = {line.is_grouped for line in table}
    worst = "min" if kinds == {False} else "min head–tail" if kinds == {True} else "min (head–tail where asked)"
    known: dict[str, Callable[[ComparisonRow], str]] = {
        "method": lambda line: line.name,
        "objective": lambda line: line.row.objective,
        "objective value": lambda line: format_spread(line, VALUE),
        "mean recall": lambda line: format_spread(line, "mean_recall"),
        f"{worst} recall": lambda line: format_spread(line, "min_recall"),
        "5 lowest recalls": lambda line: format_spread(line, LOWEST) if line.has_many_classes else "–",
        f"{worst} coverage": lambda line: format_spread(line, "min_coverage"),
        "constraints": describe_constraints,
        "used": lambda line: "–" if line.used is None else f"{line.used:.0%}",
        "seconds": lambda line: f"{line.seconds:.1f}" if line.seconds < 99.95 else f"{line.seconds:,.0f}",
        "n": lambda line: str(line.n),
        "hardware": lambda line: line.hardware,
    }
    shown = list(columns) or [name for name in known if _says_something(name, known[name], table)]
    return [shown, *([known[name](line) for name in shown] for line in table)]


def _says_something(name: str, cell: Callable[[ComparisonRow], str], table: Sequence[ComparisonRow]) -> bool:
    """What is the same in all rows is for the caption: the objective, how many seeds, the hardware."""
    distinct = {cell(line) for line in table}
    if name in ("objective", "n", "hardware"):
        return len(distinct) > 1
    return name not in ("used", "constraints", "5 lowest recalls") or distinct != {"–"}


def format_spread(line: ComparisonRow, measure: str) -> str:
    """Mean ± std over the seeds."""
    mean = f"{line.mean(measure):.3f}"
    return f"{mean} ± {line.std(measure):.3f}" if line.n > 1 else mean


def describe_constraints(line: ComparisonRow) -> str:
    """Whether they hold: met, missed, or how often."""
    verdicts = [result.is_met for result in line.results]
    if all(verdict is None for verdict in verdicts):
        return "–"
    kept = sum(bool(verdict) for verdict in verdicts)
    return "met" if kept == line.n else "missed" if not kept else f"met {kept} of {line.n}"


def describe_hardware(table: Sequence[ComparisonRow]) -> str:
    """What all rows ran on; nothing where the table has a column for it."""
    names = {line.hardware for line in table}
    return f"Hardware: {names.pop()}." if len(names) == 1 and "" not in names else ""


def describe_runs(table: Sequence[ComparisonRow]) -> str:
    """Over how many seeds the numbers are, and what they ran on."""
    seeds = sorted({line.n for line in table})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    spread = "One seed." if seeds == [1] else f"Mean ± std over {count} seeds."
    return f"{spread} {describe_hardware(table)}".strip()


def split_objectives(table: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    """The rows of each objective."""
    objectives = dict.fromkeys(line.row.objective for line in table)
    return {name: [line for line in table if line.row.objective == name] for name in objectives}


def markdown(table: Sequence[ComparisonRow]) -> str:
    """A table for each objective, and below them what they ran on."""
    texts = []
    parts = split_objectives(table)
    for objective, lines in parts.items():
        rows = [[cell.replace("|", "\\|") for cell in row] for row in cells(lines)]
        shown = [f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]]]
        texts.append("\n".join([*([f"## {objective}\n"] if len(parts) > 1 else []), *shown]) + "\n")
    return "\n".join([*texts, f"{describe_runs(table)}\n"])


def as_csv(table: Sequence[ComparisonRow]) -> str:
    """One line per row and seed, for spreadsheets and data frames."""
    out = io.StringIO()
    writer = csv.writer(out)
    names = ("method", "objective", "rule", "measured_on", "seed", VALUE, *MEASURES, "constraints_met")
    writer.writerow([*names, "constraints_missed_by", "used", "seconds", "hardware"])
    for line in table:
        for result in line.results:
            numbers = [f"{result.values[measure]:.6f}" for measure in (VALUE, *MEASURES)]
            kept = "" if result.is_met is None else str(result.is_met).lower()
            missed = "" if result.is_met is None else f"{result.missed:.6f}"
            used = "" if result.used is None else f"{result.used:.6f}"
            about = [plain(line.row.label), plain(line.row.objective), line.rule, line.part, result.seed]
            seconds, hardware = f"{result.seconds:.1f}", plain(result.hardware)
            writer.writerow([*about, *numbers, kept, missed, used, seconds, hardware])
    return out.getvalue()


def as_json(table: Sequence[ComparisonRow], about: dict[str, Any]) -> str:
    """The table with all seeds, and what `about` says of it."""
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
