"""csst predict RUN INPUT [-o out.csv]: print or write the class of new examples."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from csst.cli.examples import ExampleReader
from csst.cli.prediction_files import Cells, open_writer
from csst.data.tabular.columns import Columns
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.report.comparison_tables import quote_formula
from csst.rules import GroupedRule

#: seconds between two lines of progress
PROGRESS_SECONDS = 5.0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("csst predict", description="Label new examples with a finished run's model.")
    parser.add_argument("run", help="the run's folder")
    parser.add_argument(
        "input",
        nargs="+",
        help="an .npz file with x or an .npy file, one row per example; for texts, and for a run that learned from a "
        "table, a .csv, .tsv, .jsonl or .parquet file; for images also a folder of them, or one or more image files",
    )
    parser.add_argument("-o", "--output", default="", help="a .csv or .parquet file; default the terminal, as CSV")
    parser.add_argument("--keep", default="", help="columns of the input to write beside predictions: id,date or all")
    parser.add_argument("--probabilities", action="store_true", help="write the probability of every class, p(CLASS)")
    parser.add_argument("--column", default="", help="the column of the texts; default the one of the training data")
    parser.add_argument(
        "--objective",
        default="",
        help="decide for another sentence than the run's, by a rule fitted now on the examples whose scores it kept",
    )
    return parser


def main(argv: Sequence[str]) -> int:
    args = make_parser().parse_args(argv)
    model = FittedModel.load(args.run)
    if args.objective:
        model = model.with_objective(args.run, args.objective)
    keep = tuple(name.strip() for name in args.keep.split(",") if name.strip())
    group = model.rule.column if isinstance(model.rule, GroupedRule) else ""
    reader = ExampleReader.open(args.run, model, text_column=args.column, keep=keep, group=group)
    count = 0
    progress = RowProgress()
    strangers: Counter[str] = Counter()
    with open_writer(args.output) as writer:
        for batch in reader.read(args.input):
            writer.write(add_predictions(model, batch.inputs, batch.cells, args.probabilities, batch.groups))
            count += len(batch.inputs)
            strangers.update(count_strangers(batch.inputs, reader.columns))
            progress.show(count)
    for name, rows in strangers.items():
        print(
            f"csst: values of {name!r} that training did not have, in {rows} of {count} rows, count as none of its "
            "categories",
            file=sys.stderr,
        )
    if args.output:
        print(f"{count} predictions in {args.output}")
    return 0


def add_predictions(
    model: FittedModel, inputs: object, cells: Cells, has_all: bool, groups: Sequence[str | None] | None = None
) -> Cells:
    """Return cells with the columns prediction and probability, and with the probability of every class if asked.

    Args:
        model: the model.
        inputs: N examples.
        cells: columns of the input to write first.
        has_all: whether to add the probability of every class.
        groups: groups of the examples, if each has a rule of its own.
    """
    probs = model.probs(inputs)
    if model.rule is None:
        labels = probs.argmax(1)
    else:
        labels = model.apply_rule("predict", probs, groups)
        probs = model.apply_rule("posterior", probs, groups)
    names = [quote_formula(name) for name in model.class_names]
    # No answer is a blank without a probability.
    all_columns = torch.cat([probs, torch.full((len(probs), 1), torch.nan, dtype=probs.dtype)], 1)
    columns: Cells = {
        "prediction": [[*names, None][label] for label in labels.tolist()],
        "probability": all_columns[torch.arange(len(labels)), labels].numpy(),
    }
    if has_all:
        columns |= {f"p({name})": probs[:, k].numpy() for k, name in enumerate(names)}
    if "file" in cells:
        cells = {**cells, "file": [quote_formula(name) for name in cells["file"]]}
    clashes = [name for name in columns if name in cells]
    if clashes:
        raise InputError(
            f"the input has a column {clashes[0]!r}, too, which predictions are written to: leave it out of --keep"
        )
    return {**cells, **columns}


def count_strangers(rows: Any, columns: Columns | None) -> dict[str, int]:
    """Return in how many rows a column has a category that training did not have, without columns that have none."""
    if columns is None:
        return {}
    counts = {columns.inputs[place].name: int((rows[:, place] < 0).sum()) for place in columns.categories}
    return {name: count for name, count in counts.items() if count}


class RowProgress:
    """Says on stderr how many rows are done, every few seconds."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.last = self.start

    def show(self, count: int) -> None:
        """Print a line if the last one is some seconds old."""
        moment = time.monotonic()
        if moment - self.last >= PROGRESS_SECONDS:
            self.last = moment
            print(f"{count:,} rows, {count / (moment - self.start):,.0f} a second", file=sys.stderr, flush=True)
