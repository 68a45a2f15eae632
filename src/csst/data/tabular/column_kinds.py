"""Tell what the columns of a table hold: numbers, categories, dates, or nothing that can be learned from."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from csst.data.tabular.columns import NUMBER_GAPS, Column, Columns, as_moments, as_text, parse_number
from csst.data.tabular.dates import encode_dates, find_style, parse_date
from csst.data.tabular.tables import find_offset, is_missing
from csst.errors import InputError

#: a column with more categories is left out
MOST_CATEGORIES = 1000
#: rows from which on a column may be taken for an ID
FEWEST_ROWS = 20
#: different values per row from which on a column is taken for an ID
OWN_VALUE = 0.9
#: fraction of numbers from which on words in a column are worth a note
MOSTLY = 0.5
DECIMAL_COMMA = re.compile(r"\s*[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+\s*")
WHOLE = re.compile(r"\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)\s*")


def learn_columns(table: Mapping[str, np.ndarray], declared_names: Collection[str] = ()) -> Columns:
    """Return what the columns of a table hold.

    Args:
        table: values by column name.
        declared_names: names of columns that hold categories whatever their values are.
    """
    if not table:
        raise InputError("the table has no columns besides the labels")
    return Columns(tuple(learn_column(name, values, name in declared_names) for name, values in table.items()))


def learn_column(name: str, values: np.ndarray, is_declared: bool = False) -> Column:
    """Return what one column holds; raise an error for values of types that have no meaning here.

    Numbers and dates by type are what they say. Texts are dates if all of them are; numbers if they have a decimal
    comma, or words that mean missing, and are numbers otherwise; else categories.
    """
    if values.dtype.kind in "iuf" and not is_declared:
        return learn_numbers(name, values.astype(np.float64))
    if values.dtype.kind == "M":
        return learn_dates(name, values, "year-month-day")
    if values.dtype.kind not in "iufbOUST":
        raise InputError(f"column {name!r} must hold numbers or categories; found {values.dtype}: convert it first")
    distinct = _find_distinct(name, values)
    known_values = [value for value in distinct if value is not None]
    if is_declared:
        return learn_categories(name, values, distinct)
    if known_values and all(isinstance(value, date) for value in known_values):
        return learn_dates(name, values, "year-month-day")
    if any(isinstance(value, date | time | timedelta | np.timedelta64) for value in known_values):
        kind = next(type(value).__name__ for value in known_values if isinstance(value, date | time | timedelta))
        raise InputError(f"column {name!r} must hold numbers or categories; found {kind}: convert it first")
    if not known_values or all(
        isinstance(value, Real | Decimal) and not isinstance(value, bool) for value in known_values
    ):
        return learn_numbers(name, Column(name).read_numbers(values, "the table"))
    if all(isinstance(value, str) for value in known_values):
        return learn_texts(name, values, distinct)
    return learn_categories(name, values, distinct)


def _find_distinct(name: str, values: np.ndarray) -> list[Any]:
    """Return the different values of a column, None for all missing ones."""
    try:
        return list({None if is_missing(value) else value for value in set(values.tolist())})
    except TypeError:
        raise InputError(f"column {name!r} must hold numbers or categories; found lists or other objects") from None


def learn_texts(name: str, values: np.ndarray, distinct: list[Any]) -> Column:
    """Return what a column of texts holds."""
    texts = [text for text in distinct if text is not None]
    style = find_style(texts)
    if style is not None:
        return learn_dates(name, values, style)
    words = [text for text in texts if text.strip().lower() not in NUMBER_GAPS]
    gap_words = sorted(set(texts) - set(words))
    comma = "," if words and all(DECIMAL_COMMA.fullmatch(word) or WHOLE.fullmatch(word) for word in words) else ""
    if comma and not any("," in word for word in words):
        comma = ""
    # Texts that are all plain numbers come from a frame, whose owner made them texts: they stay categories.
    if words and (comma or gap_words) and all(parse_number(word, comma) is not None for word in words):
        column = learn_numbers(name, Column(name, style=comma).read_numbers(values, "the table"), comma)
        notes = (f"{', '.join(map(repr, gap_words[:3]))} read as missing",) if gap_words else ()
        return _annotate(column, *notes, *(("decimal commas",) if comma else ()))
    column = learn_categories(name, values, distinct)
    numbers = sum(parse_number(word) is not None for word in words)
    if words and MOSTLY * len(words) <= numbers < len(words):
        word = next(word for word in words if parse_number(word) is None)
        column = _annotate(column, f"mixes numbers with words such as {word!r}")
    return column


def _annotate(column: Column, *notes: str) -> Column:
    return replace(column, notes=(*column.notes, *notes))


@np.errstate(over="ignore", invalid="ignore")  # numbers beyond float32 are refused with their place, later
def learn_numbers(name: str, numbers: np.ndarray, style: str = "") -> Column:
    """Return a column of numbers with its median and its gaps."""
    column = _measure_numbers(name, numbers)
    varies = not column.notes
    if varies and len(numbers) >= FEWEST_ROWS and _are_ids(numbers[~np.isnan(numbers)], len(numbers)):
        column = _annotate(column, "a different whole number in nearly every row: an ID?")
    if column.offset:
        column = _annotate(column, f"counted from {column.offset:.9g}")
    return replace(column, style=style)


def _measure_numbers(name: str, numbers: np.ndarray) -> Column:
    """Return a column of numbers with its median, gaps and offset, and a note if it does not vary."""
    is_gap = np.isnan(numbers)
    known_numbers = numbers[~is_gap]
    notes: tuple[str, ...] = ()
    if not len(known_numbers):
        notes = ("empty",)
    elif (known_numbers == known_numbers[0]).all() and not is_gap.any():
        notes = ("the same in every row",)
    return Column(
        name,
        "number",
        median=float(np.median(known_numbers)) if len(known_numbers) else 0.0,
        has_gaps=bool(is_gap.any()),
        gaps=float(is_gap.mean()) if len(numbers) else 0.0,
        notes=notes,
        offset=find_offset(known_numbers),
    )


def _are_ids(numbers: np.ndarray, rows: int) -> bool:
    """Return whether numbers are whole, nearly all different, and as close together as counted ones."""
    if not (np.isfinite(numbers).all() and (numbers == np.round(numbers)).all()):
        return False
    count = len(np.unique(numbers))
    span = float(numbers.max() - numbers.min())
    return count >= OWN_VALUE * rows and (span <= 10 * rows or count == rows)


def learn_dates(name: str, values: np.ndarray, style: str) -> Column:
    """Return a column of dates."""
    moments = [None if is_missing(value) else parse_date(value, style) for value in as_moments(values)]
    days = encode_dates(moments)["days"]
    column = _measure_numbers(name, days)
    known_moments = [moment for moment in moments if moment is not None]
    notes = column.notes
    if style == "month/day/year" and all(moment.day <= 12 for moment in known_moments):
        notes = (*notes, "read as month/day/year; day/month/year is possible, too")
    has_times = any(moment.hour or moment.minute or moment.second for moment in known_moments)
    return replace(column, kind="date", style=style, has_times=has_times, notes=notes)


def learn_categories(name: str, values: np.ndarray, distinct: list[Any]) -> Column:
    """Return a column of categories, sorted, a missing value first; a column of too many is left out."""
    if len(set(map(as_text, distinct))) < len(distinct):
        raise InputError(f"column {name!r} mixes types, such as 1 and '1': make it all numbers or all texts")
    rows = len(values)
    gaps = sum(map(is_missing, values.tolist())) / max(rows, 1)
    if len(distinct) > MOST_CATEGORIES:
        return Column(
            name, "left out", gaps=gaps, notes=(f"{len(distinct)} different texts, more than {MOST_CATEGORIES}",)
        )
    notes = []
    if rows >= FEWEST_ROWS and len(distinct) >= OWN_VALUE * rows:
        notes.append(f"{len(distinct)} categories in {rows} rows: an ID or a name?")
    elif len(distinct) == 1:
        notes.append("the same in every row")
    order = sorted(distinct, key=lambda value: (value is not None, str(type(value)), str(value)))
    return Column(name, "category", categories=tuple(order), gaps=gaps, notes=tuple(notes))
