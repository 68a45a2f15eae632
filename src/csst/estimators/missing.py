"""Missing numbers of a frame: the median takes their place, and a column beside says where it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from csst.data.tabular.tables import Columns, column_of, is_missing


@dataclass(frozen=True)
class MissingNumbers:
    """What stands for a missing number in every column of numbers.

    Args:
        medians: by the column's name.
        flagged: columns that had missing numbers in training, each of which gets an indicator column.
    """

    medians: dict[str, float]
    flagged: tuple[str, ...]

    @classmethod
    def learn(cls, frame: Any, columns: Columns) -> MissingNumbers:
        """The medians of a frame's columns of numbers, and which of them miss some."""
        assert columns.names is not None
        medians, flagged = {}, []
        for at, name in enumerate(columns.names):
            if at in columns.categories:
                continue
            values = read_numbers(column_of(frame, at))
            is_absent = np.isnan(values)
            medians[name] = 0.0 if is_absent.all() else float(np.median(values[~is_absent]))
            if is_absent.any():
                flagged.append(name)
        return cls(medians, tuple(flagged))

    def fill(self, frame: Any) -> Any:
        """The frame without missing numbers, and with an indicator for every flagged column; the rest as it is."""
        names = [str(name) for name in frame.columns]
        filled, indicators = {}, {}
        for name, median in self.medians.items():
            if name not in names:
                continue
            place = names.index(name)
            values = column_of(frame, place)
            try:
                numbers = read_numbers(values)
            except (TypeError, ValueError):
                continue  # no numbers any more, which gets a sentence where it is encoded
            is_absent = np.isnan(numbers)
            if is_absent.any():
                filled[frame.columns[place]] = np.where(is_absent, median, numbers)
            if name in self.flagged:
                indicators[f"{name} is missing"] = is_absent.astype(np.float32)
        return add_columns(frame, {**filled, **indicators})


def read_numbers(values: np.ndarray) -> np.ndarray:
    """A column as float64, NaN where a value is missing."""
    if values.dtype.kind == "O":
        values = np.array([np.nan if is_missing(value) else value for value in values.tolist()])
    return values.astype(np.float64)


def add_columns(frame: Any, columns: dict[Any, np.ndarray]) -> Any:
    """A pandas or polars frame with these columns set."""
    if not columns:
        return frame
    if hasattr(frame, "iloc"):
        changed = frame.copy(deep=False)
        for name, values in columns.items():
            changed[name] = values
        return changed
    series = type(frame[:, 0])
    return frame.with_columns([series(name, values) for name, values in columns.items()])
