"""Use of the columns of a table in words: for a terminal, a page, and the card of an exported model."""

from __future__ import annotations

import json
from typing import Any

from csst.data.tabular.columns import Column, Columns, as_text

#: categories of a column that are named
SHOWN = 5


def tabulate_columns(columns: Columns) -> list[list[str]]:
    """Return a row for each column: its name, what is made of it, missing values, and what to know about it."""
    rows = [["column", "used as", "missing", "note"]]
    for column in columns.parts:
        gap_percent = f"{100 * column.gaps:.1f} %" if column.gaps else ""
        rows.append([column.name, describe_use(column), gap_percent, "; ".join(column.notes)])
    return rows


def describe_use(column: Column) -> str:
    """Return what is made of a column, as a phrase."""
    if column.kind == "category":
        words = [as_text(category) for category in column.categories if category is not None]
        word_list = ", ".join(str(word) for word in words[:SHOWN]) + (", …" if len(words) > SHOWN else "")
        return f"{len(words)} {'category' if len(words) == 1 else 'categories'}: {word_list}" if words else "categories"
    if column.kind == "date":
        return f"date ({column.style}): days since 1970, {', '.join(column.date_parts)}"
    if column.kind == "number" and column.has_gaps:
        return f"number; missing: {column.median:g}, flagged"
    return str(column.kind)


def describe_encoding(columns: Columns) -> str:
    """Return what has to be done to raw rows before the exported graph, in words."""
    words = "none: standardization is part of the graph"
    for index, column in enumerate(columns.inputs):
        if column.kind == "category":
            places = as_json(column.categories)
            words += f"; column {index} holds the place, from 0, in {places}, and -1 for anything else"
        elif column.kind == "date":
            words += f"; column {index} holds the days of {as_json(column.name)} since 1970-01-01"
        if column.has_gaps:
            words += (
                f"; a missing number of {as_json(column.name)} is replaced by {column.median:.9g}, "
                "and the column that says so is 1 there and 0 elsewhere"
            )
        if column.offset:
            words += f"; then {column.offset!r} is subtracted from column {index} in float64, before it becomes float32"
        if column.kind == "date":
            words += f"; further columns hold its month and weekday (Monday) from 0{', its hour' * column.has_times}"
    return words


def as_json(values: Any) -> str:
    """Return a name or a list of categories as JSON."""
    return json.dumps(values, ensure_ascii=False, default=str)
