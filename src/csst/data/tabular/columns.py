"""The columns of a table, from a file or a data frame, as rows of numbers.

A number stays a number; a missing one becomes the median, and where training had missing ones, a further column says
where. Numbers far from 0 that differ by little are counted from their median (`csst.data.tabular.tables`). A category
becomes its index in the sorted list of categories of the training data, where missing is a category of its own; a new
category becomes -1, which a model treats as none of them. A date becomes the number of its days since 1970, with its
month, its weekday and, if there are times, its hour as categories.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from csst.data.tabular.dates import PARTS, encode_dates, parse_date
from csst.data.tabular.files import GAPS
from csst.data.tabular.tables import is_missing
from csst.errors import InputError, nearest
from csst.setting_checks import check_choices, override

Kind = Literal["number", "category", "date", "left out"]
#: words that mean a missing value in a column of numbers
NUMBER_GAPS = frozenset({gap.lower() for gap in GAPS} | {"?", "-", "--", ".", "missing", "unknown"})
#: the largest number of a median or an offset; nan is not below it either
MOST_NUMBER = sys.float_info.max


@dataclass(frozen=True)
class Column:
    """One column of a table, and what was learned about it.

    Args:
        name: name of the column.
        kind: use of the column.
        categories: all values of a column of categories, in the order of their indices; None is a missing value.
        median: the number that takes the place of a missing one.
        has_gaps: whether training had missing numbers, so that a further column says where they are.
        style: how a date is written (see `csst.data.tabular.dates`); "," for numbers with a decimal comma.
        has_times: whether dates have times.
        gaps: fraction of missing values.
        notes: facts about the column for the user, as phrases.
        offset: number subtracted from numbers, and from the days of dates, before they become float32.
    """

    name: str
    kind: Kind = "number"
    categories: tuple[Any, ...] = ()
    median: float = 0.0
    has_gaps: bool = False
    style: str = ""
    has_times: bool = False
    gaps: float = 0.0
    notes: tuple[str, ...] = ()
    offset: float = 0.0

    @property
    def date_parts(self) -> tuple[str, ...]:
        """Parts of a date that become further columns."""
        return ("month", "weekday", "hour") if self.has_times else ("month", "weekday")

    @property
    def further_sizes(self) -> dict[str, int]:
        """Number of categories of each further column that is made of this one, by its name; 0 for numbers."""
        sizes = {f"{self.name} is missing": 0} if self.has_gaps else {}
        if self.kind == "date":
            sizes |= {f"{part} of {self.name}": PARTS[part] for part in self.date_parts}
        return sizes

    @property
    def is_empty(self) -> bool:
        """Whether all values were missing in training."""
        return self.kind == "number" and self.gaps == 1.0

    @cached_property
    def codes(self) -> dict[str | None, int]:
        """Index of each category, by its text."""
        return {as_text(category): code for code, category in enumerate(self.categories)}

    def encode(self, values: np.ndarray, what: str, start: int = 0) -> list[np.ndarray]:
        """Return the numbers of this column, then the numbers of the further columns, (N,) each.

        Args:
            values: the values of new rows.
            what: the table, in words, for the error.
            start: the row of the table at which the values begin, for the error.
        """
        if self.kind == "category":
            codes = self.codes
            return [np.array([codes.get(as_text(value), -1) for value in values.tolist()], dtype=np.float32)]
        if self.kind == "date":
            return self._encode_dates(values, what, start)
        if self.is_empty:  # nothing was learned from it, whatever it holds now
            return self._fill(np.full(len(values), np.nan))
        return self._fill(self.read_numbers(values, what, start))

    def read_numbers(self, values: np.ndarray, what: str, start: int = 0) -> np.ndarray:
        """Return values as float64, NaN for a missing one; raise an error for a value that is no number."""
        if values.dtype.kind in "iufb":
            return values.astype(np.float64)
        numbers = np.empty(len(values))
        for row, value in enumerate(values.tolist()):
            number = parse_number(value, self.style)
            if number is None:
                raise InputError(
                    f"column {self.name!r} of {what} held numbers in training, and now row {start + row} has {value!r}"
                )
            numbers[row] = number
        return numbers

    def _fill(self, numbers: np.ndarray) -> list[np.ndarray]:
        is_gap = np.isnan(numbers)
        filled_numbers = np.where(is_gap, self.median, numbers) - self.offset
        return [filled_numbers, is_gap] if self.has_gaps else [filled_numbers]

    def _encode_dates(self, values: np.ndarray, what: str, start: int) -> list[np.ndarray]:
        dates = []
        for row, value in enumerate(as_moments(values)):
            moment = None if is_missing(value) else parse_date(value, self.style)
            if moment is None and not is_missing(value):
                raise InputError(
                    f"column {self.name!r} of {what} held dates ({self.style}) in training, and now row {start + row} "
                    f"has {value!r}"
                )
            dates.append(moment)
        parts = encode_dates(dates)
        return [*self._fill(parts["days"]), *(parts[name] for name in self.date_parts)]


@dataclass(frozen=True)
class Columns:
    """The columns of a training table.

    Args:
        parts: the columns in their order; empty for an array, whose columns have no names.
        array_width: the number of columns of an array.
    """

    parts: tuple[Column, ...] = ()
    array_width: int = 0

    @cached_property
    def inputs(self) -> tuple[Column, ...]:
        """The columns that are not left out."""
        return tuple(column for column in self.parts if column.kind != "left out")

    @cached_property
    def layout(self) -> tuple[tuple[str, int], ...]:
        """Name and number of categories of each encoded column: first the columns themselves, then the further ones."""
        own_places = [(column.name, len(column.categories)) for column in self.inputs]
        return (*own_places, *(entry for column in self.inputs for entry in column.further_sizes.items()))

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the encoded columns; None for an array."""
        return tuple(name for name, _ in self.layout) if self.parts else None

    @property
    def width(self) -> int:
        """The number of encoded columns."""
        return len(self.layout) if self.parts else self.array_width

    @property
    def sizes(self) -> list[int]:
        """Number of categories of each encoded column, 0 for numbers."""
        return [size for _, size in self.layout] if self.parts else [0] * self.array_width

    @property
    def categories(self) -> dict[int, tuple[Any, ...]]:
        """Categories by the index of the encoded column, without the parts of dates."""
        return {index: column.categories for index, column in enumerate(self.inputs) if column.kind == "category"}

    @cached_property
    def offsets(self) -> np.ndarray:
        """The number subtracted from each encoded column, (width,)."""
        offsets = np.zeros(self.width)
        offsets[: len(self.inputs)] = [column.offset for column in self.inputs]
        return offsets

    def without_offsets(self) -> Columns:
        """Return the columns with numbers as they are."""
        return replace(self, parts=tuple(replace(column, offset=0.0) for column in self.parts))

    @property
    def text_names(self) -> frozenset[str]:
        """Columns that must not be read from a file as numbers."""
        return frozenset(column.name for column in self.inputs if column.kind != "number")

    def encode(self, table: Mapping[str, np.ndarray], what: str = "X", start: int = 0) -> np.ndarray:
        """Return a table as float32 rows, (N, width); columns are found by name and others are ignored.

        Args:
            table: values by column name, N each.
            what: the table, in words, for errors.
            start: the row at which this part of the table begins, for errors.
        """
        self.refuse_missing(table, what)
        count = len(table[self.inputs[0].name]) if self.inputs else 0
        rows = np.empty((count, self.width), dtype=np.float32)
        next_place = len(self.inputs)
        with np.errstate(over="ignore"):  # beyond float32 is infinity, which is refused with its place
            for index, column in enumerate(self.inputs):
                numbers, *indicators = column.encode(table[column.name], what, start)
                rows[:, index] = numbers
                for values in indicators:
                    rows[:, next_place] = values
                    next_place += 1
        return self.refuse_infinite(rows, what, start)

    def refuse_missing(self, names: Mapping[str, Any], what: str) -> None:
        """Raise an error if a column of training is not in a table."""
        missing_names = [column.name for column in self.inputs if column.name not in names]
        if missing_names:
            hint = nearest(missing_names[0], names) or f"; its columns: {', '.join(map(str, list(names)[:20]))}"
            count = f" and {len(missing_names) - 1} more columns" if len(missing_names) > 1 else ""
            raise InputError(f"{what} has no column {missing_names[0]!r}{count} of the training data{hint}")

    def refuse_infinite(self, rows: np.ndarray, what: str, start: int = 0) -> np.ndarray:
        """Return rows unchanged; raise an error for another width and for NaN or infinity."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise InputError(f"{what} must have {self.width} features; found shape {rows.shape}")
        with np.errstate(invalid="ignore"):
            total = rows.sum(dtype=np.float64)
        if not np.isfinite(total):  # the sum needs less memory than a mask, which is made only for the error
            is_bad = ~np.isfinite(rows)
            row, column = (int(indices[0]) for indices in is_bad.nonzero())
            name = self.names[column] if self.names is not None else column
            table = "" if self.names is not None else ", or pass a table with column names, where gaps are filled"
            raise InputError(
                f"{what} contains NaN or infinity in {int(is_bad.any(1).sum())} rows, the first in row {start + row}, "
                f"column {name}: drop or impute them{table} (numbers beyond 3.4e38 are infinite here)"
            )
        return rows

    def as_dict(self) -> list[dict[str, Any]]:
        """Return the columns as plain values, for columns.json."""
        parts = [asdict(column) for column in self.parts]
        for column in parts:
            column["categories"] = [as_text(category) for category in column["categories"]]
            column["notes"] = list(column["notes"])
        return parts

    @classmethod
    def from_dict(cls, values: Any) -> Columns:
        """Return the columns that `as_dict` describes; raise a ValueError for anything else."""
        if not isinstance(values, list) or not values:
            raise ValueError("columns are a list")
        columns = [read_column(value) for value in values]
        if len({column.name for column in columns}) < len(columns):
            raise ValueError("two columns have the same name")
        return cls(tuple(columns))


def read_column(values: Any) -> Column:
    """Return the column that plain values describe; raise a ValueError if they describe none."""
    expected_names = vars(Column("")).keys() - {"offset"}  # earlier versions wrote no offset
    if not isinstance(values, dict) or not expected_names <= values.keys():
        raise ValueError("no description of a column")
    if not all(isinstance(values[name], list) for name in ("categories", "notes")):
        raise ValueError("no list of categories or notes")
    lists = {name: tuple(values[name]) for name in ("categories", "notes")}
    column: Column = override(Column(""), {**values, **lists})
    check_choices(column, "")
    if not all(abs(number) <= MOST_NUMBER for number in (column.median, column.offset)):
        raise ValueError("no number of a column")
    texts = [*(text for text in column.categories if text is not None), *column.notes]
    has_repeats = len(set(map(repr, column.categories))) < len(column.categories)
    if has_repeats or not all(isinstance(text, str) for text in texts):
        raise ValueError("no list of categories or notes")
    return column


def as_text(value: Any) -> str | None:
    """Return the text of a category, the same in a file and in a frame; None for a missing value."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)  # integers with gaps are floats in a frame
    return str(value)


def as_moments(values: np.ndarray) -> list[Any]:
    """Return dates of any type as Python objects; NumPy dates become datetimes."""
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]").tolist()
    return [value.to_pydatetime() if hasattr(value, "to_pydatetime") else value for value in values.tolist()]


def parse_number(value: Any, style: str = "") -> float | None:
    """Return a value as a number, NaN for a missing one; None if it is no number.

    Args:
        value: a number or a text.
        style: "," if texts have a decimal comma.
    """
    if is_missing(value) or (isinstance(value, str) and value.strip().lower() in NUMBER_GAPS):
        return float("nan")
    if isinstance(value, str) and style == ",":
        value = value.replace(".", "").replace(",", ".")
    try:
        return None if isinstance(value, str) and "_" in value else float(value)
    except (TypeError, ValueError):
        return None
