"""A table of costs from a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path

from csst.errors import InputError
from csst.maths.costs import CostTable


def read_costs(path: str | Path) -> CostTable:
    """Read what every prediction costs.

    The first line names the predictions, the first column the true classes; the corner may name the unit:

        EUR,ok,fraud
        ok,0,5
        fraud,200,0

    Args:
        path: CSV file.

    Returns:
        The costs by class name.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if any(cell.strip() for cell in line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the costs cannot be read from {path}: {error}") from None
    if len(lines) < 3:
        raise InputError(f"{path} has {len(lines)} lines; costs need a line of class names and a line for every class")
    predictions = [cell.strip() for cell in lines[0][1:]]
    truths = [line[0].strip() for line in lines[1:]]
    if sorted(predictions) != sorted(truths):
        raise InputError(
            f"the first line of {path} names the classes {predictions[:10]}, its first column {truths[:10]}: name the "
            "same classes in both"
        )
    order = [predictions.index(name) for name in truths]
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(lines[0]):
            raise InputError(f"line {number} of {path} has {len(line)} cells instead of {len(lines[0])}")
        rows.append(tuple(_read_number(line[1 + column], number, path) for column in order))
    return CostTable(tuple(rows), tuple(truths), lines[0][0].strip())


def _read_number(text: str, line: int, path: str | Path) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"line {line} of {path} holds {text!r}, and a cost is a number") from None
