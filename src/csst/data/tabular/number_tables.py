"""The user's own table: a file with named columns of numbers, and one of labels."""

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
    """Whether a path is that of a file with named columns."""
    return Path(path).suffix.lower() in ENDINGS


def read_labeled_table(path: str, label: str) -> tuple[dict[str, Any], list[str]]:
    """The arrays x, y (-1 where a label is blank) and class_names of a table, and the names of the columns of x.

    Args:
        path: a .csv, .tsv, .jsonl or .parquet file; every column but the label's holds numbers.
        label: the name of the column of labels: words or numbers; blank, -1, NaN or null means unlabeled.

    Returns:
        Arrays under the names of an .npz file, and the columns.
    """
    table = read_table(path)
    words = labels_of(column(table, label, path))
    names = class_names_of(words)
    index = {name: number for number, name in enumerate(names)}
    y = np.array([-1 if word is None else index[word] for word in words], dtype=np.int64)
    columns = [name for name in table if name != label]
    return {"x": read_numbers(table, columns, path), "y": y, "class_names": np.array(names)}, columns


def read_number_table(path: str, columns: Sequence[str]) -> np.ndarray:
    """These columns of a table as numbers, (N, D) float32; others are ignored."""
    return read_numbers(read_table(path), columns, path)


def read_numbers(table: dict[str, list[Any]], columns: Sequence[str], path: str) -> np.ndarray:
    """Columns as float32, (N, D); a cell that is no finite number is named with its column and row."""
    if not columns:
        raise InputError(f"{path} has no column of numbers beside the labels")
    rows = []
    for name in columns:
        values = column(table, name, path)
        numbers = np.array([_as_number(value) for value in values])
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            cell = values[bad[0]]
            way_out = "fill the gaps, or use csst.CSSTClassifier on a data frame, which takes categories and gaps"
            if DECIMAL_COMMA.fullmatch(str(cell).strip()):
                way_out = f"write it with a decimal point, {str(cell).strip().replace(',', '.')}"
            raise InputError(
                f"column {name!r} of {path} must hold a number in every row; row {bad[0]} has {cell!r}: {way_out}"
            )
        rows.append(numbers)
    return np.stack(rows, 1).astype(np.float32)


def _as_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
