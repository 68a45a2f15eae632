"""csst recipes: list the recipes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from csst.cli.terminal import show
from csst.recipes import RECIPES


def main(argv: Sequence[str]) -> int:
    table = Table("recipe", "what", "objective", "steps")
    for name, make in RECIPES.items():
        base = make()
        table.add_row(name, (make.__doc__ or "").strip().splitlines()[0], base.objective, str(base.training.steps))
    show(table)
    return 0
