"""Tables (arrays, data frames, sparse matrices) as rows of numbers, with columns of numbers and of categories.

A category becomes its index in the list of categories of the training data; a new category becomes -1, which a model
treats as none of them. Corrupting a column then means the same for both kinds of columns.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from csst.errors import InputError

MOST_CATEGORIES = 1000
#: rows from which on a column may be taken for an ID
FEWEST_ROWS = 20
#: categories per row from which on a column is taken for an ID
OWN_CATEGORY = 0.9
#: rows in float64 at once
CHUNK = 8192


@dataclass(frozen=True)
class Columns:
    """The columns of a training table: their names, if there are any, and the categories by column index."""

    names: tuple[str, ...] | None
    categories: dict[int, tuple[Any, ...]]
    width: int

    @property
    def sizes(self) -> list[int]:
        """Number of categories per column, 0 for numbers."""
        return [len(self.categories.get(index, ())) for index in range(self.width)]


def learn_columns(table: Any) -> Columns:
    """Return the columns of a frame or array; texts, booleans and categorical types are categories."""
    if not is_frame(table):
        return Columns(None, {}, int(table.shape[1]))
    names = tuple(str(name) for name in table.columns)
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise InputError(f"columns must have different names; found {duplicates[:5]} more than once: rename them")
    categories_by_index = {}
    for index, name in enumerate(names):
        categories = _categories(column_of(table, index), name, is_categorical(table, index))
        if categories is not None:
            categories_by_index[index] = categories
    return Columns(names, categories_by_index, len(names))


def encode(table: Any, columns: Columns, what: str = "X") -> np.ndarray:
    """Return the table as float32 rows; raise an error for NaN, infinity or other columns than in training."""
    if not is_frame(table):
        if columns.categories:
            raise InputError(f"the training data was a frame with categories; {what} must be a frame with its columns")
        return _finite(_numbers(np.asarray(table)), columns, what)
    names = tuple(str(name) for name in table.columns)
    if columns.names is not None and names != columns.names:
        lost_names = sorted(set(columns.names) - set(names))
        new_names = sorted(set(names) - set(columns.names))
        raise InputError(
            f"{what} must have the columns of the training data, in their order; missing {lost_names[:5]}, "
            f"not known {new_names[:5]}"
        )
    rows = np.empty((len(table), len(names)), dtype=np.float32)
    for index, name in enumerate(names):
        values = column_of(table, index)
        if index in columns.categories:
            codes = {category: code for code, category in enumerate(columns.categories[index])}
            rows[:, index] = [codes.get(_key(value), -1) for value in values.tolist()]
        else:
            try:
                rows[:, index] = _numbers(values)
            except (TypeError, ValueError) as error:
                raise InputError(f"column {name!r} of {what} held numbers in training, and now {error}") from None
    return _finite(rows, columns, what)


def is_frame(table: Any) -> bool:
    """Return whether a table is a pandas or polars frame, without importing either."""
    return type(table).__module__.split(".")[0] in ("pandas", "polars") and hasattr(table, "columns")


def column_of(frame: Any, index: int) -> np.ndarray:
    """Return the values of a column."""
    return np.asarray(_take_column(frame, index).to_numpy())


def is_categorical(frame: Any, index: int) -> bool:
    """Return whether a column has a categorical type; its categories may be numbers."""
    return str(_take_column(frame, index).dtype).startswith(("category", "Categorical", "Enum"))


def _take_column(frame: Any, index: int) -> Any:
    return frame.iloc[:, index] if hasattr(frame, "iloc") else frame[:, index]


def _categories(values: np.ndarray, name: str, is_declared: bool) -> tuple[Any, ...] | None:
    """Return the sorted categories of a column; None for a column of numbers."""
    if values.dtype.kind in "iuf" and not is_declared:
        return None
    if values.dtype.kind not in "iufbOUST":
        raise InputError(f"column {name!r} must hold numbers or categories; found {values.dtype}: convert it first")
    try:
        categories = {_key(value) for value in values.tolist()}
    except TypeError:
        raise InputError(f"column {name!r} must hold numbers or categories; found lists or other objects") from None
    time_types = [
        type(value).__name__ for value in categories if isinstance(value, date | time | timedelta | np.datetime64)
    ]
    if time_types:
        raise InputError(f"column {name!r} must hold numbers or categories; found {time_types[0]}: convert it first")
    are_numbers = [isinstance(value, Real | Decimal) and not isinstance(value, bool) for value in categories - {None}]
    if values.dtype.kind == "O" and not is_declared and are_numbers and all(are_numbers):
        return None  # numbers in a column of objects
    if len(set(map(str, categories))) < len(categories):
        raise InputError(f"column {name!r} mixes types, such as 1 and '1': make it all numbers or all texts")
    if len(categories) > MOST_CATEGORIES:
        raise InputError(
            f"column {name!r} has {len(categories)} categories, more than {MOST_CATEGORIES}: drop it, group them, or "
            "give texts to an encoder"
        )
    if len(values) >= FEWEST_ROWS and len(categories) >= OWN_CATEGORY * len(values):
        warnings.warn(
            f"column {name!r} has {len(categories)} categories in {len(values)} rows, so that nearly every row has its "
            "own, from which nothing can be learned: drop it if it is an ID or a name, or group its values",
            stacklevel=2,
        )
    return tuple(sorted(categories, key=lambda value: (value is not None, str(type(value)), str(value))))


def _key(value: Any) -> Any:
    """Return the category of a value; all missing values are one category, None."""
    return None if is_missing(value) else value


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or pandas' NA or NaT, which compare differently."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _numbers(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "O":
        values = np.array([np.nan if is_missing(value) else value for value in values.tolist()])
    with np.errstate(over="ignore"):  # too large for float32 is infinity, which is refused with its place
        return values.astype(np.float32)


def _finite(rows: np.ndarray, columns: Columns, what: str) -> np.ndarray:
    if rows.ndim != 2 or rows.shape[1] != columns.width:
        raise InputError(f"{what} must have {columns.width} features; found shape {rows.shape}")
    with np.errstate(invalid="ignore"):
        total = rows.sum(dtype=np.float64)
    if not np.isfinite(total):  # the sum needs less memory than a mask, which is made only for the error
        is_bad = ~np.isfinite(rows)
        row, column = (int(indices[0]) for indices in is_bad.nonzero())
        name = columns.names[column] if columns.names is not None else column
        raise InputError(
            f"{what} contains NaN or infinity in {int(is_bad.any(1).sum())} rows, the first in row {row}, column "
            f"{name}: drop or impute them (numbers beyond 3.4e38 are infinite here)"
        )
    return rows


def is_sparse(values: Any) -> bool:
    return hasattr(values, "tocsr")


def statistics(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and standard deviation of each column, (D,) each, without a float64 copy of all rows."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=not is_sparse(rows))
    source = rows.tocsr() if is_sparse(rows) else rows
    for start in range(0, source.shape[0], CHUNK):
        scaler.partial_fit(source[start : start + CHUNK].astype(np.float64))
    return scaler.mean_, np.sqrt(scaler.var_)
