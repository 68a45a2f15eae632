"""Read a user's table: a file with named columns of numbers and a column of labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from csst.data.text.files import class_names_of, column, labels_of, read_table
from csst.errors import InputError

#: endings of files that hold named columns
ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet")
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


def is_table(path: str) -> bool:
    """Return whether a path belongs to a file with named columns, by its ending."""
    return Path(path).suffix.lower() in ENDINGS


def read_labeled_table(path: str, label: str) -> tuple[dict[str, Any], list[str]]:
    """Return the arrays x, y (-1 for a blank label) and class_names of a table, and the names of the columns of x.

    Args:
        path: a .csv, .tsv, .jsonl or .parquet file; all columns but the labels hold numbers.
        label: the column of labels, words or numbers; blank, -1, NaN or null means unlabeled.

    Returns:
        Arrays under the names of an .npz file, and the names of the columns.
    """
    table = read_table(path)
    words = labels_of(column(table, label, path))
    names = class_names_of(words)
    index = {name: number for number, name in enumerate(names)}
    y = np.array([-1 if word is None else index[word] for word in words], dtype=np.int64)
    columns = [name for name in table if name != label]
    return {"x": read_numbers(table, columns, path), "y": y, "class_names": np.array(names)}, columns


def read_number_table(path: str, columns: Sequence[str]) -> np.ndarray:
    """Read some columns of a table as numbers, (N, D) float32."""
    return read_numbers(read_table(path), columns, path)


def read_numbers(table: dict[str, list[Any]], columns: Sequence[str], path: str) -> np.ndarray:
    """Return columns as float32, (N, D); raise an error that names a cell without a finite number."""
    if not columns:
        raise InputError(f"{path} has no column of numbers besides the labels")
    number_columns = []
    for name in columns:
        values = column(table, name, path)
        numbers = np.array([_as_number(value) for value in values])
        gaps = np.flatnonzero(~np.isfinite(numbers))
        if len(gaps):
            cell = values[gaps[0]]
            way_out = "fill the gaps, or use csst.CSSTClassifier on a data frame, which takes categories and gaps"
            if DECIMAL_COMMA.fullmatch(str(cell).strip()):
                way_out = f"write it with a decimal point, {str(cell).strip().replace(',', '.')}"
            raise InputError(
                f"column {name!r} of {path} must hold a number in every row; row {gaps[0]} has {cell!r}: {way_out}"
            )
        number_columns.append(numbers)
    return np.stack(number_columns, 1).astype(np.float32)


def _as_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
