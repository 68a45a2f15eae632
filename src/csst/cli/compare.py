"""csst compare RECIPE --methods ... --objectives ... --seeds N: methods side by side, on the same splits."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from csst.cli.arguments import Parser, recipe_and_rest
from csst.cli.baselines import BASELINES
from csst.cli.tables import show
from csst.errors import InputError
from csst.recipes import Recipe
from csst.report import outcomes_page
from csst.report.comparison_tables import as_csv, as_json, cells, describe_hardware, markdown, split_objectives
from csst.runs.compare import RunsFailed, compare, count_parallel_runs
from csst.runs.folder import Run
from csst.runs.outcomes import RULES, VALUE, ComparisonRow, Outcome, sort_rows, tabulate
from csst.runs.presets import PRESETS, read_preset
from csst.runs.rows import Row, make_rows

METHODS = "erm,la,csl,fixmatch,csst"
#: what `csst train` takes for one run, and what a comparison takes instead
INSTEAD = {"--seed": "--seeds N", "--method": "--methods", "--learner": "--methods", "--rule": "--rules"}


def parser_of(name: str, base: Recipe) -> Parser:
    parser = Parser(
        prog=f"csst compare {name}",
        usage="csst compare RECIPE [--methods A,B] [--objectives 'X;Y'] [--preset P] [--seeds N] [--out DIR]",
        description="Train methods side by side on the same splits, each also with the decision rule. "
        "Finished runs in --out are not repeated. Every setting of the recipe is an argument, for all methods.",
        allow_abbrev=False,
    )
    others = ", ".join(BASELINES)
    parser.add_argument("--methods", type=str, default="", help=f"with commas; default {METHODS}. Also {others}")
    parser.add_argument("--objectives", type=str, default="", help="one or more, with ';' between; default --objective")
    parser.add_argument("--preset", type=str, default="", help=f"a table of the paper: {', '.join(PRESETS)}")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0 .. N-1")
    parser.add_argument("--jobs", type=int, default=0, help="runs at once; default what the cores allow")
    rules = f"rows with decision rules, with commas: {', '.join(RULES)}; or none"
    parser.add_argument("--rules", type=str, default="fit", help=rules)
    parser.add_argument("--out", type=str, default="", help="folder of the runs; default runs/compare-RECIPE-PRESET")
    return parser


def main(argv: Sequence[str]) -> int:
    options = {word.partition("=")[0] for word in argv}
    for word, instead in INSTEAD.items():
        if word in options:
            raise InputError(f"csst compare starts many runs and has no {word}: use {instead}")
    base, args = recipe_and_rest(argv, parser_of, hidden=[word.removeprefix("--") for word in INSTEAD])
    if "--objective" in options and (args.preset or args.objectives):
        raise InputError("--preset and --objectives name the objectives themselves: leave out --objective")
    chosen = choose_rows(base, args)
    rules = [] if args.rules == "none" else split_words(args.rules, ",")
    tabulate([], rules)  # an unknown rule is refused before anything is run
    if args.seeds < 1 or args.jobs < 0:
        raise InputError(f"--seeds must be at least 1 and --jobs at least 0; found {args.seeds} and {args.jobs}")
    name = f"compare-{base.name}-{args.preset}".removesuffix("-").replace(":", "_")
    out = Path(args.out or f"runs/{name}")
    jobs = args.jobs or count_parallel_runs(base)
    print(f"{len(chosen) * args.seeds} runs, {jobs} at once, in {out}", file=sys.stderr, flush=True)
    try:
        outcomes = compare(base, chosen, range(args.seeds), out, jobs, "fit" if rules else "none", Clock())
    except RunsFailed as error:
        write_and_print(out, base, error.outcomes, rules)
        raise
    write_and_print(out, base, outcomes, rules)
    return 0


def write_and_print(out: Path, base: Recipe, outcomes: Sequence[Outcome], rules: Sequence[str]) -> None:
    """Write the tables and show them; of several processes the first alone has outcomes."""
    if not outcomes:
        return
    table = sort_rows(tabulate(outcomes, rules))
    sentence = describe_winner(table)
    write(out, base, outcomes, table, sentence)
    seeds = max(line.n for line in table)
    where = f"{describe_part(table)}, {f'mean ± std over {seeds} seeds' if seeds > 1 else 'one seed'}"
    for objective, lines in split_objectives(table).items():
        print_table(lines, f"{base.name}, {objective}, {where}")
    print(f"{sentence} Tables and report: {out}/compare.md, .csv, .json, .html")


def print_table(table: Sequence[ComparisonRow], title: str, columns: Sequence[str] = ()) -> None:
    """The table on the terminal, and below it what it ran on; a column that repeats the objective's is left out."""
    shown = cells(table, columns)
    if not columns:
        values = [row[shown[0].index("objective value")] for row in shown[1:]]
        apart = zip(*shown, strict=True)
        kept = [name for name, *column in apart if column != values or name == "objective value"]
        shown = cells(table, kept)
    terminal = Table(*shown[0], title=title, caption=describe_hardware(table) or None)
    for row in shown[1:]:
        terminal.add_row(*row)
    show(terminal)


def describe_part(table: Sequence[ComparisonRow]) -> str:
    """What the numbers were measured on."""
    if all(line.part == "test" for line in table):
        return "test set"
    return "validation set, for lack of a test set (optimistic: models and rules were chosen on it)"


def choose_rows(base: Recipe, args: Any) -> list[Row]:
    """The rows that the arguments ask for."""
    if args.preset:
        if args.methods or args.objectives:
            raise InputError("--preset names methods and objectives itself: leave out --methods and --objectives")
        return read_preset(args.preset, base)
    methods, objectives = split_words(args.methods or METHODS, ","), split_words(args.objectives or base.objective, ";")
    return make_rows(methods, objectives, fits=BASELINES)


def split_words(text: str, separator: str) -> list[str]:
    """The words between separators, without blanks around them and without empty ones."""
    return [word.strip() for word in text.split(separator) if word.strip()]


class Clock:
    """Says which run is done and about how long the rest will take."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def __call__(self, name: str, finished: int, of: int) -> None:
        left = (time.perf_counter() - self.start) / finished * (of - finished)
        print(f"{finished}/{of} {name}  about {left:.0f} s left", file=sys.stderr, flush=True)


def describe_winner(table: Sequence[ComparisonRow]) -> str:
    """Which row is best for each objective: the highest value of those that miss the constraints least."""
    sentences = []
    for objective in dict.fromkeys(line.row.objective for line in table):
        ranked = sort_rows([line for line in table if line.row.objective == objective])
        best, (missed, _) = ranked[0], ranked[0].rank
        level = [line.name for line in ranked if line.rank == best.rank]
        value = best.mean(VALUE)
        if len(level) > 1:
            sentences.append(f"For '{objective}', {', '.join(level[:-1])} and {level[-1]} are level ({value:.3f}).")
            continue
        text = f"For '{objective}', {best.name} "
        if missed > 0:
            text += f"misses the constraints least, by {missed:.3f} on average ({value:.3f}"
        else:
            is_constrained = best.results[0].is_met is not None
            text += f"{'meets the constraints and ' if is_constrained else ''}has the highest value ({value:.3f}"
        if len(ranked) > 1:
            text += f"; next {ranked[1].name}, {ranked[1].mean(VALUE):.3f}"
            text += f", missing them by {ranked[1].rank[0]:.3f}" if ranked[1].rank[0] > 0 else ""
        sentences.append(f"{text}).")
    return " ".join(sentences) + f" Measured on the {describe_part(table)}."


def write(out: Path, base: Recipe, outcomes: Sequence[Outcome], table: Sequence[ComparisonRow], sentence: str) -> None:
    """compare.json, .csv, .md and .html in the folder of the runs."""
    folder = Run(out)
    seconds = sum(result.seconds for line in table if not line.rule for result in line.results)
    about = {"recipe": base.name, "settings": base.as_dict(), "training_seconds": seconds}
    folder.write("compare.json", as_json(table, about))
    folder.write("compare.csv", as_csv(table))
    folder.write("compare.md", f"# {base.name}\n\n{sentence}\n\n{markdown(table)}")
    folder.write("compare.html", outcomes_page(f"Comparison on {base.name}", sentence, table, outcomes))
