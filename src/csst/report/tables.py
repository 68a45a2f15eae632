"""A comparison as a table: cells for the page and the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from csst.recipes.compare import MEASURES, Line

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def plain(name: str) -> str:
    """A text that a spreadsheet will not take for a formula."""
    return "'" + name if name[:1] in FORMULAS else name


def cells(lines: Sequence[Line]) -> list[list[str]]:
    """Head and rows as the paper writes them: mean ± std over the seeds, and n."""
    several = len({line.objective for line in lines}) > 1
    worst = "min head–tail " if any(line.grouped for line in lines) else "min "
    head = ["method", *(["objective"] if several else []), "mean recall", f"{worst}recall", f"{worst}coverage"]
    rows = [[*head, "constraints", "seconds", "n"]]
    for line in lines:
        label = f"{line.label} + post-hoc" if line.finished else line.label
        numbers = [f"{line.mean(m):.3f} ± {line.std(m):.3f}" if line.n > 1 else f"{line.mean(m):.3f}" for m in MEASURES]
        seconds = f"{sum(line.seconds) / line.n:.0f}"
        rows.append([label, *([line.objective] if several else []), *numbers, met(line), seconds, str(line.n)])
    return rows


def met(line: Line) -> str:
    """Whether the constraints hold on test: yes, no, or how often."""
    if all(one is None for one in line.met):
        return "–"
    kept = sum(bool(one) for one in line.met)
    return "met" if kept == line.n else "missed" if not kept else f"met {kept} of {line.n}"


def markdown(lines: Sequence[Line]) -> str:
    rows = [[cell.replace("|", "\\|") for cell in row] for row in cells(lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]]) + "\n"


def as_csv(lines: Sequence[Line]) -> str:
    """One line per row and seed, for spreadsheets and data frames."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["method", "objective", "finished", "run", *MEASURES, "constraints_met", "seconds"])
    for line in lines:
        for at in range(line.n):
            numbers = [f"{line.values[measure][at]:.6f}" for measure in MEASURES]
            kept = "" if line.met[at] is None else str(line.met[at]).lower()
            finished = "posthoc" if line.finished else ""
            writer.writerow(
                [plain(line.label), plain(line.objective), finished, at, *numbers, kept, f"{line.seconds[at]:.1f}"]
            )
    return out.getvalue()


def as_json(lines: Sequence[Line], about: dict[str, Any]) -> str:
    found = []
    for line in lines:
        numbers = {m: {"mean": line.mean(m), "std": line.std(m), "values": line.values[m]} for m in MEASURES}
        found.append(
            {
                "method": line.label,
                "objective": line.objective,
                "finished": "posthoc" if line.finished else None,
                "n": line.n,
                **numbers,
                "constraints_met": line.met,
                "seconds": line.seconds,
            }
        )
    return json.dumps({**about, "rows": found}, indent=2)
