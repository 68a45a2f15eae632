"""Columns of numbers far from 0 that differ by little, such as Unix time: float32 rounds their differences away."""

from __future__ import annotations

import warnings

import numpy as np

#: the relative distance of neighbors in float32
STEP = 2.0**-23
#: a step that is larger than this part of a column's deviation is too coarse
COARSE = 1e-3
#: columns that a warning names
NAMED = 10


def find_coarse_columns(rows: np.ndarray) -> list[int]:
    """Return the columns of rows (N, D) that lose differences as float32: steps are coarse beside their deviation."""
    if rows.ndim != 2 or not rows.size or rows.dtype.kind not in "iuf" or rows.dtype.itemsize < 4:
        return []
    if rows.dtype == np.float32:
        return []
    with np.errstate(all="ignore"):  # rows that are not finite are refused later
        reach = np.maximum(rows.max(0), -rows.min(0).astype(np.float64))
        deviation = rows.std(0, dtype=np.float64)
        candidates = np.flatnonzero((deviation > 0) & (STEP * reach > COARSE * deviation))
        return [k for k in candidates.tolist() if (rows[:, k].astype(np.float32) != rows[:, k]).any()]


def find_offset(numbers: np.ndarray) -> float:
    """Return what to subtract from numbers (N,) before they become float32: their median if they need it, else 0."""
    return float(np.median(numbers)) if find_coarse_columns(numbers[:, None]) else 0.0


def warn_about_coarse_columns(rows: np.ndarray, what: str) -> None:
    """Warn of columns of an array that lose differences as float32; an array has no place for an offset."""
    places = find_coarse_columns(rows)
    if not places:
        return
    first = rows[:, places[0]].astype(np.float64)
    more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
    warnings.warn(
        f"columns {', '.join(map(str, places[:NAMED]))}{more} of {what} lose differences when they become float32: "
        f"column {places[0]} lies around {np.median(first):.9g} with a deviation of {first.std():.3g}. Subtract a "
        "number near the mean, the same from new rows, or pass a table with column names, where that is done",
        stacklevel=6,
    )
