"""Kinds of tables (arrays, data frames, sparse matrices), the moments of their columns, and numbers far from 0.

float32 rounds away the differences of numbers far from 0 that differ by little, such as Unix time.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from csst.errors import InputError

#: rows in float64 at once
CHUNK = 8192
#: the relative distance of neighbors in float32
STEP = 2.0**-23
#: a step that is larger than this part of a column's deviation is too coarse
COARSE = 1e-3
#: columns that a warning names
NAMED = 10


def is_frame(table: Any) -> bool:
    """Return whether a table is a pandas or polars frame, without importing either."""
    return type(table).__module__.split(".")[0] in ("pandas", "polars") and hasattr(table, "columns")


def read_frame(frame: Any) -> dict[str, np.ndarray]:
    """Return the values of a frame's columns by name; raise an error for columns of the same name."""
    names = [str(name) for name in frame.columns]
    duplicates = find_repeated(names)
    if duplicates:
        raise InputError(f"columns must have different names; found {duplicates[:5]} more than once: rename them")
    return {name: np.asarray(take_column(frame, index).to_numpy()) for index, name in enumerate(names)}


def find_repeated(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def find_categorical(frame: Any) -> set[str]:
    """Return the names of the columns with a categorical type; their categories may be numbers."""
    types = [str(take_column(frame, index).dtype) for index in range(len(frame.columns))]
    is_declared = [name.startswith(("category", "Categorical", "Enum")) for name in types]
    return {str(name) for name, is_category in zip(frame.columns, is_declared, strict=True) if is_category}


def take_column(frame: Any, index: int) -> Any:
    """Return a column of a pandas or polars frame, by its index."""
    return frame.iloc[:, index] if hasattr(frame, "iloc") else frame[:, index]


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or pandas' NA or NaT, which compare differently."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def is_sparse(values: Any) -> bool:
    """Return whether values are a SciPy sparse matrix or array."""
    return hasattr(values, "tocsr")


def stack(rows: Any, other_rows: Any) -> Any:
    """Stack two blocks of rows; sparse if the first is."""
    if is_sparse(rows):
        from scipy.sparse import csr_matrix, vstack

        return vstack([rows, csr_matrix(other_rows)], format="csr")
    return np.vstack([rows, other_rows.toarray() if is_sparse(other_rows) else other_rows])


def compute_moments(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and standard deviation of each column, (D,) each, without a float64 copy of all rows."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=not is_sparse(rows))
    source = rows.tocsr() if is_sparse(rows) else rows
    for start in range(0, source.shape[0], CHUNK):
        scaler.partial_fit(source[start : start + CHUNK].astype(np.float64))
    return scaler.mean_, np.sqrt(scaler.var_)


def find_coarse_columns(rows: np.ndarray) -> list[int]:
    """Return the columns of rows (N, D) that lose differences as float32: steps are coarse beside their deviation."""
    if rows.ndim != 2 or not rows.size or rows.dtype.kind not in "iuf" or rows.dtype.itemsize < 4:
        return []
    if rows.dtype == np.float32:
        return []
    with np.errstate(all="ignore"):  # rows that are not finite are refused later
        reach = np.maximum(rows.max(0), -rows.min(0).astype(np.float64))
        deviation = rows.std(0, dtype=np.float64)
        varies = rows.max(0) > rows.min(0)  # the deviation of equal numbers may be rounding
        candidates = np.flatnonzero(varies & (STEP * reach > COARSE * deviation))
        return [k for k in candidates.tolist() if (rows[:, k].astype(np.float32) != rows[:, k]).any()]


def find_offset(numbers: np.ndarray) -> float:
    """Return what to subtract from numbers (N,) before they become float32: their median if they need it, else 0."""
    return float(np.median(numbers)) if find_coarse_columns(numbers[:, None]) else 0.0


def warn_about_coarse_columns(rows: np.ndarray, what: str) -> None:
    """Warn of columns of an array that lose differences as float32; an array has no place for an offset."""
    places = find_coarse_columns(rows)
    if not places:
        return
    column = rows[:, places[0]].astype(np.float64)
    surplus = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
    warnings.warn(
        f"columns {', '.join(map(str, places[:NAMED]))}{surplus} of {what} lose differences when they become float32: "
        f"column {places[0]} lies around {np.median(column):.9g} with a deviation of {column.std():.3g}. Subtract a "
        "number near the mean, the same from new rows, or pass a table with column names, where that is done",
        stacklevel=6,
    )
