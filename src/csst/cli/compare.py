"""csst compare RECIPE --methods ... --objectives ... --seeds N: methods side by side, on the same splits."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from csst.cli.arguments import Parser, recipe_and_rest
from csst.cli.tables import show
from csst.errors import InputError
from csst.recipes import Recipe
from csst.recipes.compare import Line, Outcome, compare, lines, parallel
from csst.recipes.rows import PRESETS, Row, preset, rows
from csst.report import comparison_page
from csst.report.tables import as_csv, as_json, cells, markdown
from csst.runs import Run


def parser_of(name: str, base: Recipe) -> Parser:
    parser = Parser(
        prog=f"csst compare {name}",
        usage="csst compare RECIPE [--methods A,B] [--objectives 'X;Y'] [--preset P] [--seeds N] [--out DIR]",
        description="Train methods side by side on the same splits, each also finished by post-hoc adjustment. "
        "Finished runs in --out are not repeated. Every setting of the recipe is an argument, for all methods.",
        allow_abbrev=False,
    )
    parser.add_argument("--methods", type=str, default="", help="names with commas; default erm,la,csl,fixmatch,csst")
    parser.add_argument("--objectives", type=str, default="", help="one or more, with ';' between; default --objective")
    parser.add_argument("--preset", type=str, default="", help=f"a table of the paper: {', '.join(PRESETS)}")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 .. N-1")
    parser.add_argument("--jobs", type=int, default=0, help="runs at once; default what the cores allow")
    parser.add_argument("--no_posthoc", action="store_true", help="leave post-hoc adjustment out")
    parser.add_argument("--out", type=str, default="", help="folder of the runs; default runs/compare-RECIPE")
    return parser


def main(words: Sequence[str]) -> int:
    base, found = recipe_and_rest(words, parser_of)
    chosen = chosen_rows(base, found)
    if found.seeds < 1 or found.jobs < 0:
        raise InputError(f"--seeds must be at least 1 and --jobs at least 0; found {found.seeds} and {found.jobs}")
    out = Path(found.out or f"runs/compare-{base.name}".replace(":", "_"))
    jobs = found.jobs or parallel(base)
    print(f"{len(chosen) * found.seeds} runs, {jobs} at once, in {out}", file=sys.stderr, flush=True)
    finish = "none" if found.no_posthoc else "posthoc"
    outcomes = compare(base, chosen, range(found.seeds), out, jobs, finish, Clock())
    table = lines(outcomes)
    said = sentence(table)
    write(out, base, outcomes, table, said)
    shown = cells(table)
    terminal = Table(*shown[0], title=f"{base.name}, test set, mean ± std over {found.seeds} seeds")
    for row in shown[1:]:
        terminal.add_row(*row)
    show(terminal)
    print(f"{said} Tables and report: {out}/compare.md, .csv, .json, .html")
    return 0


def chosen_rows(base: Recipe, found: Any) -> list[Row]:
    if found.preset:
        if found.methods or found.objectives:
            raise InputError("--preset names methods and objectives itself: leave out --methods and --objectives")
        return preset(found.preset, base)
    methods = [word.strip() for word in (found.methods or "erm,la,csl,fixmatch,csst").split(",") if word.strip()]
    objectives = [word.strip() for word in (found.objectives or base.objective).split(";") if word.strip()]
    return rows(methods, objectives)


class Clock:
    """Says which run is done and about how long the rest will take."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()

    def __call__(self, name: str, finished: int, of: int) -> None:
        left = (time.perf_counter() - self.begun) / finished * (of - finished)
        print(f"{finished}/{of} {name}  about {left:.0f} s left", file=sys.stderr, flush=True)


def sentence(table: Sequence[Line]) -> str:
    """Which row is best on the worst class of test, for each objective, and by how much."""
    said = []
    for objective in dict.fromkeys(line.objective for line in table):
        those = sorted((line for line in table if line.objective == objective), key=lambda x: -x.mean("min_recall"))
        best = those[0]
        text = f"For '{objective}', {name(best)} recalls the worst class best ({best.mean('min_recall'):.3f}"
        if len(those) > 1:
            text += f"; next {name(those[1])}, {those[1].mean('min_recall'):.3f}"
        said.append(f"{text}).")
    return " ".join(said)


def name(line: Line) -> str:
    return f"{line.label} + post-hoc" if line.finished else line.label


def write(out: Path, base: Recipe, outcomes: Sequence[Outcome], table: Sequence[Line], said: str) -> None:
    folder = Run(out)
    seconds = sum(s for line in table if not line.finished for s in line.seconds)
    about = {"recipe": base.name, "settings": base.as_dict(), "training_seconds": seconds}
    folder.write("compare.json", as_json(table, about))
    folder.write("compare.csv", as_csv(table))
    folder.write("compare.md", f"# {base.name}\n\n{said}\n\n{markdown(table)}")
    runs = {}
    for outcome in outcomes:
        label = (
            outcome.row.label
            if len({o.row.objective for o in outcomes}) == 1
            else f"{outcome.row.label}, {outcome.row.objective}"
        )
        first = outcome.metrics[0]
        runs[label] = {
            "metrics": first,
            "journal": Run(outcome.folders[0]).journal(),
            "labels": list(first["multipliers"]),
        }
    folder.write("compare.html", comparison_page(f"Comparison on {base.name}", said, cells(table), runs))
