"""Dates in a table: as the number of days since 1970, and as month, weekday and hour."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import numpy as np

_TIME = r"(?:[T ]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?\s*(?:Z|[+-]\d{2}:?\d{2})?)?"
#: ways to write a date, by name; each is followed by a time or not
STYLES = {
    "year-month-day": re.compile(r"\s*(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})" + _TIME + r"\s*"),
    "day.month.year": re.compile(r"\s*(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})" + _TIME + r"\s*"),
    "month/day/year": re.compile(r"\s*(?P<month>\d{1,2})[/-](?P<day>\d{1,2})[/-](?P<year>\d{4})" + _TIME + r"\s*"),
    "day/month/year": re.compile(r"\s*(?P<day>\d{1,2})[/-](?P<month>\d{1,2})[/-](?P<year>\d{4})" + _TIME + r"\s*"),
}
EPOCH = datetime(1970, 1, 1)
DAY = 86_400.0
#: parts of a date beside its number of days, each with its number of categories
PARTS = {"month": 12, "weekday": 7, "hour": 24}


def find_style(texts: Sequence[str]) -> str | None:
    """Return the way in which all texts are written as dates; None if they are no dates.

    Where month/day and day/month are both possible for all of them, it is month/day.
    """
    for style in STYLES:
        if all(parse_date(text, style) is not None for text in texts):
            return style
    return None


def parse_date(value: Any, style: str) -> datetime | None:
    """Return a cell as a date by the clock on the wall; None if it is none of this style."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    match = STYLES[style].fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    parts = {name: int(digits or 0) for name, digits in match.groupdict().items()}
    try:
        return datetime(**parts)  # type: ignore[arg-type]
    except ValueError:  # the 31st of February
        return None


def encode_dates(dates: Sequence[datetime | None]) -> dict[str, np.ndarray]:
    """Return days since 1970 (NaN for a gap), and the parts as categories counted from 0 (-1 for a gap), (N,) each."""
    days = [np.nan if moment is None else (moment - EPOCH).total_seconds() / DAY for moment in dates]
    months = [-1 if moment is None else moment.month - 1 for moment in dates]
    weekdays = [-1 if moment is None else moment.weekday() for moment in dates]
    hours = [-1 if moment is None else moment.hour for moment in dates]
    return {"days": np.array(days), "month": np.array(months), "weekday": np.array(weekdays), "hour": np.array(hours)}
