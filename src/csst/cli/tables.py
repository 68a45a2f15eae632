"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from csst.training.evaluation import constraints_met

COLUMNS = ("mean recall", "min recall", "min coverage", "objective", "constraints")


def metrics_table(runs: Sequence[dict[str, Any]], title: str) -> Table:
    """Validation and test of each run's metrics.json."""
    table = Table("method", "measured on", *COLUMNS, title=title)
    for metrics in runs:
        for name, measured in ((metrics["method"], metrics), ("+ rule", metrics.get("adjusted", {}))):
            for part in ("validation", "test"):
                if part in measured:
                    m = measured[part]
                    slack = m["constraint_slack"]
                    kept = "–" if not slack else "met" if constraints_met(slack) else f"missed by {-min(slack):.3f}"
                    numbers = [m["mean_recall"], m["min_recall"], m["min_coverage"], m["objective_value"]]
                    table.add_row(name, part, *(f"{n:.3f}" for n in numbers), kept)
    return table


def plain_console(**options: Any) -> Console:
    """A console that prints every word as it stands: [head] is no markup and :cat: no picture."""
    return Console(markup=False, emoji=False, highlight=False, **options)


def show(table: Table) -> None:
    """Print a table, as wide as the terminal."""
    plain_console(width=None if Console().is_terminal else 110).print(table)
