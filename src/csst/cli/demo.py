"""csst demo: what people use, the paper's methods and our default on long-tailed digits, in a few minutes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from csst.cli.compare import print_table, write
from csst.comparison.compare import Clock, compare
from csst.comparison.rows import Row, fit_forest, fit_logistic
from csst.comparison.summary import ComparisonRow, tabulate
from csst.data import Digits
from csst.errors import InputError
from csst.recipes import recipe

OBJECTIVE = "min-recall"
OTHERS = {"balanced logistic regression": fit_logistic, "class-weighted forest": fit_forest}
SOLVED = "csst-balanced, λ solved"
#: rows with a network: the method, and where λ moves, how; csst-balanced differs from the paper in its teacher, too
NETWORKS = {
    "LA": ("la", {}),
    "FixMatch": ("fixmatch", {}),
    "CSST, λ by gradient": ("csst", {"dual": {"update": "gradient"}}),
    SOLVED: ("csst-balanced", {"dual": {"update": "solve"}}),
}
OURS = "CSSTClassifier()"
#: validation labels per class: they steer the networks; everything else learns from them, too
VALIDATION = 5
COLUMNS = ("method", "mean recall", "min recall", "min coverage", "seconds")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst demo", description="Compare what learns the rare digits of few labels.")
    parser.add_argument("--out", default="runs/demo", help="where the runs and the report go")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args(argv)
    if args.seeds < 1:
        raise InputError(f"--seeds must be at least 1; found {args.seeds}")
    base = replace(recipe("digits"), data=Digits(validation=VALIDATION), objective=OBJECTIVE)
    rows = [Row(name, name, OBJECTIVE, fit=fit) for name, fit in OTHERS.items()]
    rows += [Row(name, method, OBJECTIVE, changes) for name, (method, changes) in NETWORKS.items()]
    rows.append(Row(OURS, "auto", OBJECTIVE, learner="auto"))
    print(f"{len(rows) * args.seeds} models in {args.out}", file=sys.stderr, flush=True)
    outcomes = compare(base, rows, range(args.seeds), args.out, on_run=Clock())
    table = tabulate(outcomes)
    labels = sum(outcomes[0].metrics[0]["labeled_counts"])
    sentence = describe(table)
    write(Path(args.out), base, outcomes, table, sentence)
    print_table(table, f"Test set, {labels} labels of ten digits, mean ± std over {args.seeds} seeds", COLUMNS)
    print(f"{sentence} Runs and report: {Path(args.out) / 'compare.html'}")
    return 0


def describe(table: Sequence[ComparisonRow]) -> str:
    """Return what the table says, from its numbers.

    Args:
        table: the rows.
    """
    values = {line.name: line.mean("min_recall") for line in table}
    usual = max(OTHERS, key=lambda name: values[name])
    networks = ", ".join(f"{name} {values[name]:.2f}" for name in NETWORKS if name != SOLVED)
    return (
        f"Asked for the worst class, {OURS} recalls it at {values[OURS]:.2f}; the best of what people use ({usual}) at "
        f"{values[usual]:.2f}. Networks as trained, with {VALIDATION} labels per class kept for validation: {SOLVED} "
        f"{values[SOLVED]:.2f}; {networks}."
    )
