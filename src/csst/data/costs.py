"""A table of costs from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from csst.data.tabular.files import UNNAMED
from csst.data.text.files import read_table
from csst.errors import InputError
from csst.maths.costs import CostTable


def read_costs(path: str | Path) -> CostTable:
    """Read what every prediction costs.

    The first line names the predictions, the first column the true classes; the corner may name the unit:

        EUR,ok,fraud
        ok,0,5
        fraud,200,0

    Args:
        path: a .csv or .tsv file.

    Returns:
        The costs by class name.
    """
    table = read_table(str(path))
    corner, *columns = table
    predictions = [name.strip() for name in columns]
    truths = [str(name).strip() for name in table[corner]]
    if sorted(predictions) != sorted(truths):
        raise InputError(
            f"the first line of {path} names the classes {predictions[:10]}, its first column {truths[:10]}: name the "
            "same classes in both"
        )
    order = [columns[predictions.index(name)] for name in truths]
    rows = [tuple(_read_number(table[name][row], name, path) for name in order) for row in range(len(truths))]
    unit = "" if corner == UNNAMED.format(0) else corner.strip()
    return CostTable(tuple(rows), tuple(truths), unit)


def _read_number(text: Any, column: str, path: str | Path) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        raise InputError(f"column {column!r} of {path} holds {text!r}, and a cost is a number") from None
