"""csst compare RECIPE --methods ... --objectives ... --seeds N: train methods side by side, on the same splits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from csst.cli.arguments import Parser, parse_recipe
from csst.cli.terminal import make_table, show
from csst.comparison.compare import Clock, RunsFailed, compare, count_parallel_runs
from csst.comparison.presets import PRESETS, read_preset
from csst.comparison.rows import BASELINES, OTHER_LEARNERS, Row, make_rows
from csst.comparison.summary import RULES, VALUE, ComparisonRow, Outcome, sort_rows, tabulate
from csst.errors import InputError
from csst.maths.language.words import is_minimized
from csst.recipes import Recipe
from csst.report import outcomes_page
from csst.report.comparison_tables import as_csv, as_json, cells, describe_hardware, markdown, split_objectives
from csst.runs.folder import Run

METHODS = "erm,la,csl,fixmatch,csst"
#: arguments of `csst train`, and their replacements in a comparison
REPLACEMENTS = {"--seed": "--seeds N", "--method": "--methods", "--learner": "--methods", "--rule": "--rules"}


def make_parser(name: str, base: Recipe) -> Parser:
    parser = Parser(
        prog=f"csst compare {name}",
        usage="csst compare RECIPE [--methods A,B] [--objectives 'X;Y'] [--preset P] [--seeds N] [--out DIR]",
        description="Train methods side by side on the same splits, each also with the decision rule. "
        "Finished runs in --out are not repeated. Every setting of the recipe is an argument, for all methods.",
        allow_abbrev=False,
    )
    baselines = ", ".join([*BASELINES, *OTHER_LEARNERS])
    parser.add_argument("--methods", type=str, default="", help=f"with commas; default {METHODS}. Also {baselines}")
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
    for word, replacement in REPLACEMENTS.items():
        if word in options:
            raise InputError(f"csst compare starts many runs and has no {word}: use {replacement}")
    base, args = parse_recipe(argv, make_parser, [word.removeprefix("--") for word in REPLACEMENTS])
    if "--objective" in options and (args.preset or args.objectives):
        raise InputError("--preset and --objectives name the objectives themselves: leave out --objective")
    rows = choose_rows(base, args)
    rules = [] if args.rules == "none" else split_words(args.rules, ",")
    tabulate([], rules)  # an unknown rule is refused before anything is run
    if args.seeds < 1 or args.jobs < 0:
        raise InputError(f"--seeds must be at least 1 and --jobs at least 0; found {args.seeds} and {args.jobs}")
    name = f"compare-{base.name}-{args.preset}".removesuffix("-").replace(":", "_")
    folder = Path(args.out or f"runs/{name}")
    jobs = args.jobs or count_parallel_runs(base)
    print(f"{len(rows) * args.seeds} runs, {jobs} at once, in {folder}", file=sys.stderr, flush=True)
    try:
        outcomes = compare(base, rows, range(args.seeds), folder, jobs, "fit" if rules else "none", Clock())
    except RunsFailed as error:
        write_and_print(folder, base, error.outcomes, rules)
        raise
    write_and_print(folder, base, outcomes, rules)
    return 0


def write_and_print(folder: Path, base: Recipe, outcomes: Sequence[Outcome], rules: Sequence[str]) -> None:
    """Write and print the tables; of several processes only the first has outcomes."""
    if not outcomes:
        return
    table = sort_rows(tabulate(outcomes, rules))
    sentence = describe_winner(table)
    write(folder, base, outcomes, table, sentence)
    seeds = max(line.n for line in table)
    numbers = f"mean ± std over {seeds} seeds" if seeds > 1 else "one seed"
    for objective, lines in split_objectives(table).items():
        print_table(lines, f"{base.name}, {objective}, {describe_part(table)}, {numbers}")
    print(f"{sentence} Tables and report: {folder}/compare.md, .csv, .json, .html")


def print_table(table: Sequence[ComparisonRow], title: str, columns: Sequence[str] = ()) -> None:
    """Print the table, with the hardware below it; without columns that repeat the objective value, unless named."""
    rows = cells(table, columns)
    if not columns:
        # The objective is often one of the measures, whose column then repeats its value.
        column_cells = {name: column for name, *column in zip(*rows, strict=True)}
        values = column_cells.pop("objective value")
        repeated_names = {name for name, column in column_cells.items() if column == values}
        rows = cells(table, [name for name in rows[0] if name not in repeated_names])
    show(make_table(rows, title, describe_hardware(table)))


def describe_part(table: Sequence[ComparisonRow]) -> str:
    """Return the part of the data that the numbers were measured on."""
    if all(line.part == "test" for line in table):
        return "test set"
    return "validation set, for lack of a test set (optimistic: models and rules were chosen on it)"


def choose_rows(base: Recipe, args: Any) -> list[Row]:
    """Return the rows that the arguments ask for."""
    if args.preset:
        if args.methods or args.objectives:
            raise InputError("--preset names methods and objectives itself: leave out --methods and --objectives")
        return read_preset(args.preset, base)
    methods = split_words(args.methods or METHODS, ",")
    objectives = split_words(args.objectives or base.objective, ";")
    return make_rows(methods, objectives, fits=BASELINES)


def split_words(text: str, separator: str) -> list[str]:
    """Return the words between separators, without blanks around them and without empty ones."""
    return [word.strip() for word in text.split(separator) if word.strip()]


def describe_winner(table: Sequence[ComparisonRow]) -> str:
    """Return the best row for each objective: the best value among rows that miss the constraints least."""
    sentences = [f"For '{objective}', {_describe_best(rows)}." for objective, rows in split_objectives(table).items()]
    return " ".join(sentences) + f" Measured on the {describe_part(table)}."


def _describe_best(table: Sequence[ComparisonRow]) -> str:
    ranking = sort_rows(table)
    winner = ranking[0]
    shortfall, _ = winner.rank
    value = winner.mean(VALUE)
    end = "lowest" if is_minimized(winner.row.objective) else "highest"
    names = [line.name for line in ranking if line.rank == winner.rank]
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]} are level ({value:.3f})"
    if shortfall > 0:
        text = f"misses the constraints least, by {shortfall:.3f} on average ({value:.3f}"
    elif winner.results[0].is_met is not None:
        text = f"meets the constraints and has the {end} value ({value:.3f}"
    else:
        text = f"has the {end} value ({value:.3f}"
    if len(ranking) > 1:
        runner_up = ranking[1]
        text += f"; next {runner_up.name}, {runner_up.mean(VALUE):.3f}"
        if runner_up.rank[0] > 0:
            text += f", missing them by {runner_up.rank[0]:.3f}"
    return f"{winner.name} {text})"


def write(path: Path, base: Recipe, outcomes: Sequence[Outcome], table: Sequence[ComparisonRow], sentence: str) -> None:
    """Write compare.json, .csv, .md and .html into the folder of the runs."""
    folder = Run(path)
    seconds = sum(result.seconds for line in table if not line.rule for result in line.results)
    about = {"recipe": base.name, "settings": base.as_dict(), "training_seconds": seconds}
    folder.write("compare.json", as_json(table, about))
    folder.write("compare.csv", as_csv(table))
    folder.write("compare.md", f"# {base.name}\n\n{sentence}\n\n{markdown(table)}")
    folder.write("compare.html", outcomes_page(f"Comparison on {base.name}", sentence, table, outcomes))
