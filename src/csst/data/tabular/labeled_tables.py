"""Read a user's table: a file with named columns, one of which holds the labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from csst.data.tabular.column_kinds import learn_columns
from csst.data.tabular.columns import Columns
from csst.data.tabular.files import find_ending, read_arrays, read_chunks
from csst.data.tabular.leaks import note_leaks
from csst.data.text.files import class_names_of, labels_of
from csst.errors import InputError, nearest


def read_labeled_table(
    path: str, label: str, drop: Sequence[str] = (), test_path: str = "", group: str = ""
) -> tuple[dict[str, Any], Columns]:
    """Return the arrays x, y (-1 for a blank label) and class_names of a table, and what its columns hold.

    Args:
        path: a .csv, .tsv, .jsonl or .parquet file.
        label: the column of labels, words or numbers; blank, -1, NaN or null means unlabeled.
        drop: columns to leave out.
        test_path: a table with the same columns, every row of which is labeled.
        group: the column of groups of rows; "" for none.

    Returns:
        Arrays under the names of an .npz file, and the columns.
    """
    names = read_names(path)
    for name in (label, *drop, *([group] if group else [])):
        require_column(name, names, path, label)
    words = read_words(path, label)
    class_names = class_names_of(words)
    table = read_arrays(path, without=(label, *drop))
    if not table:
        raise InputError(f"{path} has no column besides the labels")
    columns = learn_columns(table)
    x = columns.encode(table, path)
    y = index_words(words, class_names, path)
    columns = note_leaks(columns, x, y)
    arrays: dict[str, Any] = {"x": x, "y": y, "class_names": np.array(class_names)}
    if test_path:
        arrays["x_test"], arrays["y_test"] = read_test_table(test_path, label, columns, class_names)
    if group:
        arrays["group"] = read_words(path, group)
        if test_path:
            require_column(group, read_names(test_path), test_path, label)
            arrays["group_test"] = read_words(test_path, group)
    return arrays, columns


def read_names(path: str) -> list[str]:
    """Return the names of the columns of a table; raise an error if it has no rows, or only one column."""
    chunk = next(read_chunks(path, rows=100), None)
    if chunk is None:
        raise InputError(f"{path} holds no rows")
    refuse_single_column(chunk, path)
    return list(chunk)


def refuse_single_column(names: Collection[str], path: str) -> None:
    """Raise an error if a text file has only one column: its delimiter is likely none that is known."""
    if len(names) == 1 and find_ending(path) in (".csv", ".tsv"):
        raise InputError(
            f"{path} has one column only, {next(iter(names))[:60]!r}: columns are separated by commas, semicolons, "
            "tabs or bars"
        )


def require_column(name: str, names: Sequence[str], path: str, label: str) -> None:
    """Raise an error if a column is not in a table, with the nearest name."""
    if name in names:
        return
    name_list = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    hint = nearest(name, names) or f"; its columns: {name_list}"
    way_out = "; name the column of the labels with --data.label" if name == label else ""
    raise InputError(f"{path} has no column {name!r}{hint}{way_out}")


def read_words(path: str, label: str) -> list[str | None]:
    """Return the labels of a table as words, None for an unlabeled row."""
    words: list[str | None] = []
    for chunk in read_chunks(path):
        values = chunk.get(label)
        words += [None] * len(next(iter(chunk.values()))) if values is None else labels_of(list(values))
    return words


def index_words(words: Sequence[str | None], class_names: Sequence[str], path: str) -> np.ndarray:
    """Return class indices, -1 for None, (N,); raise an error for a word that is no class."""
    index = {name: number for number, name in enumerate(class_names)}
    strangers = sorted({word for word in words if word is not None and word not in index})
    if strangers:
        raise InputError(
            f"{path} has labels that the model does not know: {strangers[:5]}; its classes: {list(class_names)[:20]}"
        )
    return np.array([-1 if word is None else index[word] for word in words], dtype=np.int64)


def read_test_table(
    path: str, label: str, columns: Columns, class_names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and class indices of a table with the columns of the training data; all rows need a label."""
    require_column(label, read_names(path), path, label)
    labels = index_words(read_words(path, label), class_names, path)
    if (labels < 0).any():
        raise InputError(f"every test row needs a label; {int((labels < 0).sum())} rows of {path} have none")
    return columns.encode(read_arrays(path, columns.text_names), path), labels
