"""csst compare RECIPE --methods ... --objectives ... --seeds N: methods side by side, on the same splits."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rich.table import Table

from csst.cli.arguments import Parser, recipe_and_rest
from csst.cli.tables import show
from csst.errors import InputError
from csst.recipes import Recipe
from csst.report import comparison_page
from csst.report.tables import as_csv, as_json, cells, markdown
from csst.runs.compare import ComparisonRow, Outcome, RunsFailed, compare, lines, parallel
from csst.runs.folder import Run
from csst.runs.rows import PRESETS, Row, preset, rows


def parser_of(name: str, base: Recipe) -> Parser:
    parser = Parser(
        prog=f"csst compare {name}",
        usage="csst compare RECIPE [--methods A,B] [--objectives 'X;Y'] [--preset P] [--seeds N] [--out DIR]",
        description="Train methods side by side on the same splits, each also finished by the decision rule. "
        "Finished runs in --out are not repeated. Every setting of the recipe is an argument, for all methods.",
        allow_abbrev=False,
    )
    parser.add_argument("--methods", type=str, default="", help="names with commas; default erm,la,csl,fixmatch,csst")
    parser.add_argument("--objectives", type=str, default="", help="one or more, with ';' between; default --objective")
    parser.add_argument("--preset", type=str, default="", help=f"a table of the paper: {', '.join(PRESETS)}")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 .. N-1")
    parser.add_argument("--jobs", type=int, default=0, help="runs at once; default what the cores allow")
    parser.add_argument("--no_rule", action="store_true", help="leave the decision rule out")
    parser.add_argument("--out", type=str, default="", help="folder of the runs; default runs/compare-RECIPE")
    return parser


#: what `csst train` is told for one run, and how it is said of many
INSTEAD = {"--seed": "--seeds N", "--method": "--methods", "--rule": "--no_rule to leave the decision rule out"}


def main(argv: Sequence[str]) -> int:
    options = {word.partition("=")[0] for word in argv}
    for word, instead in INSTEAD.items():
        if word in options:
            raise InputError(f"csst compare carries out many runs and has no {word}: use {instead}")
    base, args = recipe_and_rest(argv, parser_of)
    if "--objective" in options and (args.preset or args.objectives):
        raise InputError("--preset and --objectives name the objectives themselves: leave out --objective")
    chosen = chosen_rows(base, args)
    if args.seeds < 1 or args.jobs < 0:
        raise InputError(f"--seeds must be at least 1 and --jobs at least 0; found {args.seeds} and {args.jobs}")
    out = Path(args.out or f"runs/compare-{base.name}".replace(":", "_"))
    jobs = args.jobs or parallel(base)
    print(f"{len(chosen) * args.seeds} runs, {jobs} at once, in {out}", file=sys.stderr, flush=True)
    rule = "none" if args.no_rule else "fit"
    try:
        write_and_print(out, base, compare(base, chosen, range(args.seeds), out, jobs, rule, Clock()))
    except RunsFailed as error:
        if error.outcomes:
            write_and_print(out, base, error.outcomes)
        raise
    return 0


def write_and_print(out: Path, base: Recipe, outcomes: Sequence[Outcome]) -> None:
    """Write the tables and show them."""
    table = lines(outcomes)
    sentence = describe_winner(table)
    write(out, base, outcomes, table, sentence)
    shown = cells(table)
    part, most = measured_on(table), max(line.n for line in table)
    terminal = Table(*shown[0], title=f"{base.name}, {part}, mean ± std over {most} seeds")
    for row in shown[1:]:
        terminal.add_row(*row)
    show(terminal)
    print(f"{sentence} Tables and report: {out}/compare.md, .csv, .json, .html")


def measured_on(table: Sequence[ComparisonRow]) -> str:
    if all(line.part == "test" for line in table):
        return "test set"
    return "validation set, for lack of a test set (optimistic: models and rules were chosen on it)"


def chosen_rows(base: Recipe, args: Any) -> list[Row]:
    if args.preset:
        if args.methods or args.objectives:
            raise InputError("--preset names methods and objectives itself: leave out --methods and --objectives")
        return preset(args.preset, base)
    methods = [word.strip() for word in (args.methods or "erm,la,csl,fixmatch,csst").split(",") if word.strip()]
    objectives = [word.strip() for word in (args.objectives or base.objective).split(";") if word.strip()]
    return rows(methods, objectives)


class Clock:
    """Says which run is done and about how long the rest will take."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()

    def __call__(self, name: str, finished: int, of: int) -> None:
        left = (time.perf_counter() - self.begun) / finished * (of - finished)
        print(f"{finished}/{of} {name}  about {left:.0f} s left", file=sys.stderr, flush=True)


def describe_winner(table: Sequence[ComparisonRow]) -> str:
    """Which row is best for each objective: the highest value of those that miss the constraints least."""
    sentence = []
    for objective in dict.fromkeys(line.objective for line in table):
        those = sorted((line for line in table if line.objective == objective), key=rank_key)
        best, value = those[0], those[0].mean("objective_value")
        level = [line.name for line in those if rank_key(line) == rank_key(best)]
        if len(level) > 1:
            sentence.append(f"For '{objective}', {', '.join(level[:-1])} and {level[-1]} are level ({value:.3f}).")
            continue
        text = f"For '{objective}', {best.name} "
        if rank_key(best)[0] > 0:
            text += f"misses the constraints least, by {rank_key(best)[0]:.3f} on average ({value:.3f}"
        else:
            constrained = best.met[0] is not None
            text += f"{'meets the constraints and ' if constrained else ''}has the highest value ({value:.3f}"
        if len(those) > 1:
            text += f"; next {those[1].name}, {those[1].mean('objective_value'):.3f}"
            text += f", missing them by {rank_key(those[1])[0]:.3f}" if rank_key(those[1])[0] > 0 else ""
        sentence.append(f"{text}).")
    return " ".join(sentence) + f" Measured on the {measured_on(table)}."


def rank_key(line: ComparisonRow) -> tuple[float, float]:
    """By how much the constraints are missed on average, then the objective, to three decimals; less is better."""
    return round(mean(line.missed), 3), -round(line.mean("objective_value"), 3)


def write(out: Path, base: Recipe, outcomes: Sequence[Outcome], table: Sequence[ComparisonRow], sentence: str) -> None:
    folder = Run(out)
    seconds = sum(s for line in table if not line.is_adjusted for s in line.seconds)
    about = {"recipe": base.name, "settings": base.as_dict(), "training_seconds": seconds}
    folder.write("compare.json", as_json(table, about))
    folder.write("compare.csv", as_csv(table))
    folder.write("compare.md", f"# {base.name}\n\n{sentence}\n\n{markdown(table)}")
    objectives = {outcome.row.objective for outcome in outcomes}
    runs: dict[str, str | Path | Mapping[str, Any]] = {}
    for outcome in outcomes:
        row = outcome.row
        runs[row.label if len(objectives) == 1 else f"{row.label}, {row.objective}"] = outcome.folders[0]
    folder.write("compare.html", comparison_page(f"Comparison on {base.name}", sentence, cells(table), runs))
