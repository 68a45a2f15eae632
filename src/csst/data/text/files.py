"""Tables of texts: CSV, TSV, JSON Lines and Parquet files, and Hugging Face `datasets`, as columns of plain values."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from csst.data.huggingface import HUGGING_FACE, load_datasets
from csst.data.tabular.columns import as_text
from csst.data.tabular.files import read_chunks
from csst.errors import InputError, nearest

Columns = dict[str, list[Any]]
UNLABELED = ("", "-1", "-1.0", "nan", "null")  # not "none", which is a class of many data sets
#: names of classes that are more likely to mean that a row has no label, if no row is without one
LIKELY_GAPS = ("na", "n/a", "<na>", "#na", "#n/a", "?", "-", "missing", "unlabeled", "unlabelled")


def read_table(path: str, split: str = "train") -> Columns:
    """Read the columns of a .csv, .tsv, .jsonl or .parquet file, or of a split of Hugging Face `datasets`.

    `hf:NAME_OR_FOLDER` is a data set of the hub, a folder written by `save_to_disk`, or a folder of data files.
    """
    file = Path(path).expanduser()
    if path.startswith(HUGGING_FACE) or file.is_dir():
        columns = _read_datasets(path.removeprefix(HUGGING_FACE), split)
    else:
        columns = _read_file(path)
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{path} holds no rows")
    return columns


def _read_file(path: str) -> Columns:
    columns: Columns = {}
    count = 0
    for chunk in read_chunks(path):
        size = len(next(iter(chunk.values()), ()))
        for name in {**columns, **chunk}:
            values = list(chunk.get(name, [None] * size))  # a line of a .jsonl file need not have every name
            columns.setdefault(name, [None] * count).extend(values)
        count += size
    return columns


def find_column(table: Columns, name: str, path: str) -> list[Any]:
    """Return a column, or raise an error that suggests the nearest name."""
    require_column(name, table, path)
    return table[name]


def require_column(name: str, names: Collection[str], path: str, way_out: str = "") -> None:
    """Raise an error if a column is not in a table, with the nearest name and a way out."""
    if name in names:
        return
    name_list = ", ".join(list(map(str, names))[:20]) + (", …" if len(names) > 20 else "")
    hint = nearest(name, names) or f"; its columns: {name_list}"
    raise InputError(f"{path} has no column {name!r}{hint}{way_out}")


def read_texts(table: Columns, name: str, path: str) -> list[str]:
    """Return a column of texts; raise an error that names a row without a text."""
    values = find_column(table, name, path)
    rows = [row for row, value in enumerate(values) if not isinstance(value, str)]
    if rows:
        kind = type(values[rows[0]]).__name__
        raise InputError(
            f"column {name!r} of {path} must hold texts; {len(rows)} rows do not, the first of them row {rows[0]} "
            f"({kind})"
        )
    for row, value in enumerate(values):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise InputError(f"row {row} of column {name!r} of {path} holds half of a character (a lone surrogate)")
    return values


def read_label_words(values: Sequence[Any]) -> list[str | None]:
    """Return labels as words, None for unlabeled: blank, -1, NaN, null."""
    labels: list[str | None] = []
    for row, value in enumerate(values):
        if not (value is None or isinstance(value, str | int | float)):
            raise InputError(f"a label must be a word or a number; row {row} has a {type(value).__name__}")
        word = (as_text(value) or "").strip()
        labels.append(None if word.lower() in UNLABELED else word)
    return labels


def warn_about_gaps(words: Sequence[str | None], path: str) -> None:
    """Warn of a class named like a gap, such as the NA that R writes, in a file in which every row has a label."""
    if None in words:
        return
    for name in sorted({word for word in words if word is not None and word.lower() in LIKELY_GAPS}):
        warnings.warn(
            f"{words.count(name):,} rows of {path} have the label {name!r}, which counts as a class: if they have no "
            "label, leave it blank",
            stacklevel=2,
        )


def drop_point(word: str) -> str:
    """Return 5 for 5.0, and any other word as it is."""
    return word.removesuffix(".0") if word.removesuffix(".0").removeprefix("-").isdigit() else word


def sort_class_names(words: Sequence[str | None]) -> tuple[str, ...]:
    """Return the classes that occur, sorted as numbers if all are numbers, else alphabetically.

    Of 5 and 5.0, which are one class, only the former is named.
    """
    names = {word for word in words if word is not None}
    names -= {name for name in names if drop_point(name) != name and drop_point(name) in names}
    if all(_is_number(name) for name in names):
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    return tuple(sorted(names))


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _read_datasets(name: str, split: str) -> Columns:
    dataset = load_datasets(name, split)
    if isinstance(dataset, dict):
        if split not in dataset:
            raise InputError(f"{name} has no split {split!r}; it has {', '.join(dataset)}")
        dataset = dataset[split]
    columns = {key: list(dataset[key]) for key in dataset.column_names}
    for key, feature in dataset.features.items():
        if type(feature).__name__ == "ClassLabel":
            columns[key] = [None if value is None or value < 0 else feature.int2str(value) for value in columns[key]]
    return columns
