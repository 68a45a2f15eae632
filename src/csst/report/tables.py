"""A comparison as a table: cells for the page and the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from csst.runs.compare import MEASURES, ComparisonRow

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def plain(name: str) -> str:
    """A text that a spreadsheet will not take for a formula."""
    return "'" + name if name[:1] in FORMULAS else name


def cells(lines: Sequence[ComparisonRow]) -> list[list[str]]:
    """Head and rows as the paper writes them: mean ± std over the seeds, and n."""
    several = len({line.objective for line in lines}) > 1
    kinds = {line.grouped for line in lines}
    worst = "min " if kinds == {False} else "min head–tail " if kinds == {True} else "min (head–tail where asked) "
    head = ["method", *(["objective"] if several else []), "mean recall", f"{worst}recall", f"{worst}coverage"]
    used = any(line.used for line in lines)
    rows = [[*head, "constraints", *(["used"] if used else []), "seconds", "n"]]
    for line in lines:
        numbers = [f"{line.mean(m):.3f} ± {line.std(m):.3f}" if line.n > 1 else f"{line.mean(m):.3f}" for m in MEASURES]
        fraction = [f"{sum(line.used) / len(line.used):.0%}" if line.used else "–"] if used else []
        seconds = f"{sum(line.seconds) / line.n:.0f}"
        rows.append(
            [line.name, *([line.objective] if several else []), *numbers, met(line), *fraction, seconds, str(line.n)]
        )
    return rows


def met(line: ComparisonRow) -> str:
    """Whether the constraints hold: yes, no, or how often."""
    if all(verdict is None for verdict in line.met):
        return "–"
    kept = sum(bool(verdict) for verdict in line.met)
    return "met" if kept == line.n else "missed" if not kept else f"met {kept} of {line.n}"


def markdown(lines: Sequence[ComparisonRow]) -> str:
    rows = [[cell.replace("|", "\\|") for cell in row] for row in cells(lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]]) + "\n"


def as_csv(lines: Sequence[ComparisonRow]) -> str:
    """One line per row and seed, for spreadsheets and data frames."""
    out = io.StringIO()
    writer = csv.writer(out)
    head = ["method", "objective", "adjusted", "measured_on", "run", *MEASURES, "constraints_met", "used", "seconds"]
    writer.writerow(head)
    for line in lines:
        for seed in range(line.n):
            numbers = [f"{line.values[measure][seed]:.6f}" for measure in MEASURES]
            kept = "" if line.met[seed] is None else str(line.met[seed]).lower()
            adjusted = "rule" if line.is_adjusted else ""
            used = f"{line.used[seed]:.6f}" if line.used else ""
            name = [plain(line.label), plain(line.objective), adjusted, line.part, seed]
            writer.writerow([*name, *numbers, kept, used, f"{line.seconds[seed]:.1f}"])
    return out.getvalue()


def as_json(lines: Sequence[ComparisonRow], about: dict[str, Any]) -> str:
    rows = []
    for line in lines:
        numbers = {m: {"mean": line.mean(m), "std": line.std(m), "values": line.values[m]} for m in MEASURES}
        rows.append(
            {
                "method": line.label,
                "objective": line.objective,
                "adjusted": line.is_adjusted,
                "measured_on": line.part,
                "n": line.n,
                **numbers,
                "objective_value": line.values["objective_value"],
                "constraints_met": line.met,
                "constraints_missed_by": line.missed,
                "used": line.used,
                "seconds": line.seconds,
            }
        )
    return json.dumps({**about, "rows": rows}, indent=2)
