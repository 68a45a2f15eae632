"""csst recipes: list the recipes."""

from __future__ import annotations

from collections.abc import Sequence

from csst.cli.terminal import make_table, show
from csst.recipes import RECIPES


def main(argv: Sequence[str]) -> int:
    rows = [["recipe", "what", "objective", "steps"]]
    for name, make in RECIPES.items():
        base = make()
        rows.append([name, (make.__doc__ or "").strip().splitlines()[0], base.objective, str(base.training.steps)])
    show(make_table(rows))
    return 0
