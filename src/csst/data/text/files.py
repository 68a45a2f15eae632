"""Tables of texts: CSV, TSV, JSON Lines and Parquet files, and Hugging Face `datasets`, as columns of plain values."""

from __future__ import annotations

import csv
import importlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from csst.data.text.hub import hub_dataset
from csst.errors import InputError, nearest

Columns = dict[str, list[Any]]
HUGGING_FACE = "hf:"
UNLABELED = ("", "-1", "-1.0", "nan", "null")  # not "none", which is a class of many data sets


def read_table(path: str, split: str = "train") -> Columns:
    """The columns of a file by its ending (.csv, .tsv, .jsonl, .parquet), or of a split of Hugging Face `datasets`.

    `hf:NAME_OR_FOLDER` is a data set of the hub or a folder written by `save_to_disk`.
    """
    file = Path(path).expanduser()
    if path.startswith(HUGGING_FACE) or file.is_dir():
        columns = _hugging_face(path.removeprefix(HUGGING_FACE), split)
    else:
        columns = _from_file(path, file)
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{path} holds no rows")
    return columns


def _from_file(path: str, file: Path) -> Columns:
    if not file.is_file():
        raise InputError(f"there is no file {path!r}")
    ending = file.suffix.lower()
    if ending not in _READERS:
        raise InputError(f"{path}: a table of texts is a {', '.join(_READERS)} file; found the ending {ending!r}")
    try:
        return _READERS[ending](file)
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def column(table: Columns, name: str, path: str) -> list[Any]:
    if name not in table:
        hint = nearest(name, table) or f"; its columns: {', '.join(map(str, table))}"
        raise InputError(f"{path} has no column {name!r}{hint}")
    return table[name]


def texts_of(table: Columns, name: str, path: str) -> list[str]:
    """A column of texts; anything that is not a text is an error that says where."""
    values = column(table, name, path)
    wrong = [row for row, value in enumerate(values) if not isinstance(value, str)]
    if wrong:
        found = type(values[wrong[0]]).__name__
        raise InputError(
            f"column {name!r} of {path} must hold texts; {len(wrong)} rows do not, the first of them row {wrong[0]} "
            f"({found})"
        )
    for row, value in enumerate(values):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise InputError(f"row {row} of column {name!r} of {path} holds half of a character (a lone surrogate)")
    return values


def labels_of(values: Sequence[Any]) -> list[str | None]:
    """Labels as words, None where unlabeled: blank, -1, NaN, null."""
    for row, value in enumerate(values):
        if not (value is None or isinstance(value, str | int | float)):
            raise InputError(f"a label must be a word or a number; row {row} has a {type(value).__name__}")
    return [None if (word := _word(value)).lower() in UNLABELED else word for value in values]


def class_names_of(words: Sequence[str | None]) -> tuple[str, ...]:
    """The classes that occur, numbers in the order of numbers, everything else in alphabetical order."""
    found = {word for word in words if word is not None}
    if all(_is_number(word) for word in found):
        return tuple(sorted(found, key=lambda word: (float(word), word)))
    return tuple(sorted(found))


def _word(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # what a column of integers with blanks becomes in Parquet
    return str(value).strip()


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _csv(path: Path) -> Columns:
    csv.field_size_limit(2**31 - 1)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        try:
            head = next(rows, [])
            twice = sorted({name for name in head if head.count(name) > 1})
            if twice:
                raise InputError(f"{path} has two columns of the name {twice[0]!r}")
            columns: Columns = {name: [] for name in head}
            for row in rows:
                if not row:
                    continue
                if len(row) != len(head):
                    raise InputError(
                        f"line {rows.line_num} of {path} has {len(row)} fields, but the first line names {len(head)} "
                        "columns: texts with commas need quotes"
                    )
                for name, value in zip(head, row, strict=True):
                    columns[name].append(value)
        except csv.Error as error:
            raise InputError(
                f"line {rows.line_num} of {path} is not CSV ({error}): a quote inside quotes is written twice"
            ) from None
    return columns


def _jsonl(path: Path) -> Columns:
    columns: Columns = {}
    count = 0
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise InputError(f"line {number} of {path} is not JSON: {error}") from None
            if not isinstance(record, dict):
                raise InputError(f"line {number} of {path} must be an object; found {type(record).__name__}")
            for name, value in record.items():
                columns.setdefault(name, [None] * count).append(value)
            count += 1
            for values in columns.values():
                if len(values) < count:
                    values.append(None)
    return columns


def _parquet(path: Path) -> Columns:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(f"{path} needs the package pyarrow ({error}): pip install csst-learn[hf]") from None
    return parquet.read_table(path).to_pydict()


def _hugging_face(name: str, split: str) -> Columns:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise InputError(f"hf:{name} needs the package datasets ({error}): pip install csst-learn[hf]") from None
    folder = Path(name).expanduser()
    stored = _from_disk(datasets, folder, split) if folder.is_dir() else hub_dataset(datasets, name, split)
    columns = {key: list(stored[key]) for key in stored.column_names}
    for key, feature in stored.features.items():
        if isinstance(feature, datasets.ClassLabel):
            columns[key] = [None if value is None or value < 0 else feature.int2str(value) for value in columns[key]]
    return columns


def _from_disk(datasets: Any, folder: Path, split: str) -> Any:
    try:
        stored = datasets.load_from_disk(str(folder))
    except Exception as error:  # of any kind, where a file is missing, empty or damaged
        raise InputError(
            f"{folder} is not a folder of rows that datasets' save_to_disk wrote: {type(error).__name__}"
        ) from None
    if isinstance(stored, datasets.DatasetDict):
        if split not in stored:
            raise InputError(f"{folder} has no split {split!r}; it has {', '.join(stored)}")
        return stored[split]
    return stored


_READERS = {".csv": _csv, ".tsv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
