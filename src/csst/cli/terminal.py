"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from csst.data.tabular.column_words import tabulate_columns
from csst.data.tabular.columns import Columns
from csst.maths.language.words import is_minimized
from csst.report.result import read_parts
from csst.report.run_tables import RESULT_COLUMNS, format_result
from csst.training.progress import plain_console

#: columns of a table that are shown
MOST_COLUMNS = 60


def make_metrics_table(metrics: dict[str, Any]) -> Table:
    """Return a table of the metrics of a run on validation and test, with and without the decision rule."""
    method = metrics["method"]
    rows = [["method", "measured on", *RESULT_COLUMNS]]
    for name, numbers in ((method, metrics), ("+ rule", metrics.get("adjusted", {}))):
        results = read_parts(numbers, is_minimized(metrics["objective"]))
        rows += [[name, part, *format_result(result)] for part, result in results.items()]
    return make_table(rows, f"{method} for '{metrics['objective']}'")


def make_columns_table(columns: Columns) -> Table:
    """Return a table of what is done with each column of the training data; of many columns, those with notes first."""
    head, *rows = tabulate_columns(columns)
    title = f"{len(rows)} columns"
    if len(rows) > MOST_COLUMNS:
        rows = sorted(rows, key=lambda row: not row[-1])[:MOST_COLUMNS]
        title += f", of which {MOST_COLUMNS} are shown; columns.json in the run has all"
    return make_table([head, *rows], title)


def make_table(rows: Sequence[Sequence[str]], title: str = "", caption: str = "") -> Table:
    """Return rows as a table of the terminal; the first names the columns."""
    table = Table(*rows[0], title=title or None, caption=caption or None)
    for row in rows[1:]:
        table.add_row(*row)
    return table


def show(table: Table) -> None:
    """Print a table, as wide as the terminal."""
    plain_console(width=None if Console().is_terminal else 110).print(table)
