"""Tables: arrays, data frames and sparse matrices as rows of numbers, columns of numbers and of categories alike.

A category becomes its number in the list of those met in training; one that was never met becomes -1, which the
model sees as none of them. Corrupting a column then means the same for both kinds.
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
#: from so many rows on a column is taken for an ID where this fraction of them has a category of its own
FEWEST_ROWS = 20
OWN_CATEGORY = 0.9
CHUNK = 8192  # rows in float64 at once


@dataclass(frozen=True)
class Columns:
    """What was learned about the columns of a table: names, where there are any, and categories."""

    names: tuple[str, ...] | None
    categories: dict[int, tuple[Any, ...]]
    width: int

    @property
    def sizes(self) -> list[int]:
        """Number of categories per column, 0 for numbers."""
        return [len(self.categories.get(at, ())) for at in range(self.width)]


def learn_columns(table: Any) -> Columns:
    """The columns of a frame or array; texts, booleans and categorical types are categories."""
    if is_frame(table):
        names = tuple(str(name) for name in table.columns)
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InputError(f"columns must have different names; found {repeated[:5]} more than once: rename them")
        categories = {
            at: _categories(column_of(table, at), names[at], is_categorical(table, at)) for at in range(len(names))
        }
        return Columns(names, {at: known for at, known in categories.items() if known is not None}, len(names))
    return Columns(None, {}, int(table.shape[1]))


def encode(table: Any, columns: Columns, what: str = "X") -> np.ndarray:
    """The table as float32 rows, categories as numbers; refuses NaN, infinity and other columns than in training."""
    if not is_frame(table):
        if columns.categories:
            raise InputError(f"the training data was a frame with categories; {what} must be a frame with its columns")
        return _finite(_numbers(np.asarray(table)), columns, what)
    names = tuple(str(name) for name in table.columns)
    if columns.names is not None and names != columns.names:
        missing, extra = sorted(set(columns.names) - set(names)), sorted(set(names) - set(columns.names))
        raise InputError(
            f"{what} must have the columns of the training data, in their order; missing {missing[:5]}, "
            f"not known {extra[:5]}"
        )
    rows = np.empty((len(table), len(names)), dtype=np.float32)
    for at, name in enumerate(names):
        values = column_of(table, at)
        if at in columns.categories:
            number = {category: place for place, category in enumerate(columns.categories[at])}
            rows[:, at] = [number.get(_key(value), -1) for value in values.tolist()]
        else:
            try:
                rows[:, at] = _numbers(values)
            except (TypeError, ValueError) as error:
                raise InputError(f"column {name!r} of {what} held numbers in training, and now {error}") from None
    return _finite(rows, columns, what)


def is_frame(table: Any) -> bool:
    """A pandas or polars frame, without importing either."""
    return type(table).__module__.split(".")[0] in ("pandas", "polars") and hasattr(table, "columns")


def column_of(frame: Any, at: int) -> np.ndarray:
    column = frame.iloc[:, at] if hasattr(frame, "iloc") else frame[:, at]
    return np.asarray(column.to_numpy())


def is_categorical(frame: Any, at: int) -> bool:
    """Whether a column was declared to hold categories, be they numbers."""
    column = frame.iloc[:, at] if hasattr(frame, "iloc") else frame[:, at]
    return str(column.dtype).startswith(("category", "Categorical", "Enum"))


def _categories(values: np.ndarray, name: str, is_declared: bool) -> tuple[Any, ...] | None:
    if values.dtype.kind in "iuf" and not is_declared:
        return None
    if values.dtype.kind not in "iufbOUST":
        raise InputError(f"column {name!r} must hold numbers or categories; found {values.dtype}: convert it first")
    try:
        distinct = {_key(value) for value in values.tolist()}
    except TypeError:
        raise InputError(f"column {name!r} must hold numbers or categories; found lists or other objects") from None
    times = [type(value).__name__ for value in distinct if isinstance(value, date | time | timedelta | np.datetime64)]
    if times:
        raise InputError(f"column {name!r} must hold numbers or categories; found {times[0]}: convert it first")
    numbers = [isinstance(value, Real | Decimal) and not isinstance(value, bool) for value in distinct - {None}]
    if values.dtype.kind == "O" and not is_declared and numbers and all(numbers):
        return None  # numbers in a column of objects
    if len(set(map(str, distinct))) < len(distinct):
        raise InputError(f"column {name!r} mixes types, such as 1 and '1': make it all numbers or all texts")
    if len(distinct) > MOST_CATEGORIES:
        raise InputError(
            f"column {name!r} has {len(distinct)} categories, more than {MOST_CATEGORIES}: drop it, group them, or "
            "give texts to an encoder"
        )
    if len(values) >= FEWEST_ROWS and len(distinct) >= OWN_CATEGORY * len(values):
        warnings.warn(
            f"column {name!r} has {len(distinct)} categories in {len(values)} rows, so that nearly every row has its "
            "own, from which nothing can be learned: drop it if it is an ID or a name, or group its values",
            stacklevel=2,
        )
    return tuple(sorted(distinct, key=lambda value: (value is not None, str(type(value)), str(value))))


def _key(value: Any) -> Any:
    """A category; all ways to say that a value is missing are one category of their own."""
    return None if is_missing(value) else value


def is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA and NaT; none of them can be compared in the same way."""
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
    if not np.isfinite(total):  # a matrix of truth values is made only where there is something to say
        bad = ~np.isfinite(rows)
        row, at = (int(i[0]) for i in bad.nonzero())
        name = columns.names[at] if columns.names is not None else at
        raise InputError(
            f"{what} contains NaN or infinity in {int(bad.any(1).sum())} rows, the first in row {row}, column {name}: "
            "drop or impute them (numbers beyond 3.4e38 are infinite here)"
        )
    return rows


def is_sparse(values: Any) -> bool:
    return hasattr(values, "tocsr")


def statistics(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every column, (D,) each, without a copy of the whole in float64."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=not is_sparse(rows))
    source = rows.tocsr() if is_sparse(rows) else rows
    for start in range(0, source.shape[0], CHUNK):
        scaler.partial_fit(source[start : start + CHUNK].astype(np.float64))
    return scaler.mean_, np.sqrt(scaler.var_)
