"""Which rows are learned from, which are held out for validation, and which have no label."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from csst.data.splits import hold_out
from csst.errors import InputError
from csst.learners.fit import RowParts
from csst.sklearn.inputs import numbers_of, read_labels, stacked


def divide(
    rows: Any,
    labels: np.ndarray,
    known: np.ndarray,
    extra: Any,
    validation: Any,
    classes: np.ndarray,
    sizes: list[int],
    seed: int,
    read: Callable[[Any], Any],
) -> RowParts:
    """The parts of a fit. labels: class numbers of the known rows; extra: rows without labels; read: X → rows."""
    names, place, pair = tuple(str(name) for name in classes), np.flatnonzero(known), None
    held = np.zeros(len(labels), dtype=bool)
    if validation is None:
        pass  # every labeled row is learned from and judged out of fold
    elif isinstance(validation, str):
        raise InputError(f"validation is None, a fraction, indices or a pair (X, y); found {validation!r}")
    elif isinstance(validation, tuple):
        pair = _pair(validation, classes, read)
    elif isinstance(validation, Real):
        held[hold_out(labels, float(validation), seed, names)] = True
    else:
        held = np.isin(place, _indices(validation, place, rows.shape[0]))
    if held.any():
        pair = (rows[place[held]], labels[held])
    unlabeled = rows[np.flatnonzero(~known)]
    return RowParts(
        rows[place[~held]],
        labels[~held],
        unlabeled if extra is None else stacked(unlabeled, extra),
        pair,
        names,
        sizes,
    )


def _pair(validation: tuple, classes: np.ndarray, read: Callable[[Any], Any]) -> tuple[Any, np.ndarray]:
    if len(validation) != 2:
        raise InputError(f"validation as a tuple is a pair (X, y); found {len(validation)} parts")
    values, there = read_labels(validation[1])
    if not there.all():
        raise InputError("every validation row needs a label; some are -1, NaN or None")
    return read(validation[0]), numbers_of(values, classes, "the validation labels")


def _indices(validation: Any, place: np.ndarray, count: int) -> np.ndarray:
    index = np.asarray(validation)
    if index.dtype == bool and index.shape == (count,):
        index = np.flatnonzero(index)
    if index.ndim != 1 or index.dtype.kind not in "iu" or not len(index):
        raise InputError(f"validation is None, a fraction, indices or a pair (X, y); found {validation!r}")
    if len(np.unique(index)) < len(index) or not np.isin(index, place).all():
        raise InputError("the validation indices must name labeled rows of X, each once")
    return index
