"""Tables of texts: CSV, TSV, JSON Lines and Parquet files, and Hugging Face `datasets`, as columns of plain values."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from csst.data.delimiters import find_delimiter
from csst.errors import InputError, nearest
from csst.hub import first_line, import_extra, load_from_hub, read_datasets_folder

Columns = dict[str, list[Any]]
HUGGING_FACE = "hf:"
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
UNLABELED = ("", "-1", "-1.0", "nan", "null")  # not "none", which is a class of many data sets


def read_table(path: str, split: str = "train") -> Columns:
    """Read the columns of a .csv, .tsv, .jsonl or .parquet file, or of a split of Hugging Face `datasets`.

    `hf:NAME_OR_FOLDER` is a data set of the hub, a folder written by `save_to_disk`, or a folder of data files.
    """
    file = Path(path).expanduser()
    if path.startswith(HUGGING_FACE) or file.is_dir():
        columns = _read_datasets(path.removeprefix(HUGGING_FACE), split)
    else:
        columns = _read_file(path, file)
    if not columns or not len(next(iter(columns.values()))):
        raise InputError(f"{path} holds no rows")
    return columns


def _read_file(path: str, file: Path) -> Columns:
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
        raise InputError(f"{path} cannot be read: {first_line(error)}") from None


def column(table: Columns, name: str, path: str) -> list[Any]:
    """Return a column, or raise an error that suggests the nearest name."""
    if name not in table:
        hint = nearest(name, table) or f"; its columns: {', '.join(map(str, table))}"
        raise InputError(f"{path} has no column {name!r}{hint}")
    return table[name]


def texts_of(table: Columns, name: str, path: str) -> list[str]:
    """Return a column of texts; raise an error that names a row without a text."""
    values = column(table, name, path)
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


def labels_of(values: Sequence[Any]) -> list[str | None]:
    """Return labels as words, None for unlabeled: blank, -1, NaN, null."""
    labels: list[str | None] = []
    for row, value in enumerate(values):
        if not (value is None or isinstance(value, str | int | float)):
            raise InputError(f"a label must be a word or a number; row {row} has a {type(value).__name__}")
        word = _word(value)
        labels.append(None if word.lower() in UNLABELED else word)
    return labels


def class_names_of(words: Sequence[str | None]) -> tuple[str, ...]:
    """Return the classes that occur, sorted as numbers if all are numbers, else alphabetically."""
    names = {word for word in words if word is not None}
    if all(_is_number(name) for name in names):
        return tuple(sorted(names, key=lambda name: (float(name), name)))
    return tuple(sorted(names))


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


def _read_csv(path: Path) -> Columns:
    csv.field_size_limit(2**31 - 1)
    with path.open(newline="", encoding="utf-8-sig") as file:
        delimiter = find_delimiter(file.readline(), path.suffix)
        file.seek(0)
        rows = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            head = next(rows, [])
            duplicates = sorted({name for name in head if head.count(name) > 1})
            if duplicates:
                raise InputError(f"{path} has two columns named {duplicates[0]!r}")
            columns: Columns = {name: [] for name in head}
            for row in rows:
                if not row:
                    continue
                if len(row) != len(head):
                    raise InputError(
                        f"line {rows.line_num} of {path} has {len(row)} fields, but the first line names {len(head)} "
                        f"columns: a text with {SEPARATORS[delimiter]} needs quotes"
                    )
                for name, value in zip(head, row, strict=True):
                    columns[name].append(value)
        except csv.Error as error:
            raise InputError(
                f"line {rows.line_num} of {path} is not CSV ({error}): a quote inside quotes is written twice"
            ) from None
    return columns


def _read_jsonl(path: Path) -> Columns:
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


def _read_parquet(path: Path) -> Columns:
    return import_extra("pyarrow.parquet", str(path)).read_table(path).to_pydict()


def _read_datasets(name: str, split: str) -> Columns:
    datasets = import_extra("datasets", f"hf:{name}")
    folder = Path(name).expanduser()
    dataset = _read_folder(datasets, folder, split) if folder.is_dir() else _read_hub(datasets, name, split)
    columns = {key: list(dataset[key]) for key in dataset.column_names}
    for key, feature in dataset.features.items():
        if isinstance(feature, datasets.ClassLabel):
            columns[key] = [None if value is None or value < 0 else feature.int2str(value) for value in columns[key]]
    return columns


def _read_hub(datasets: Any, name: str, split: str) -> Any:
    def load(is_local: bool) -> Any:
        was_offline = datasets.config.HF_HUB_OFFLINE
        datasets.config.HF_HUB_OFFLINE = was_offline or is_local
        try:
            return datasets.load_dataset(name, split=split)
        finally:
            datasets.config.HF_HUB_OFFLINE = was_offline

    return load_from_hub(name, load, "a data set")


def _read_folder(datasets: Any, folder: Path, split: str) -> Any:
    dataset = read_datasets_folder(datasets, folder)
    if isinstance(dataset, datasets.DatasetDict):
        if split not in dataset:
            raise InputError(f"{folder} has no split {split!r}; it has {', '.join(dataset)}")
        return dataset[split]
    return dataset


_READERS = {".csv": _read_csv, ".tsv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
