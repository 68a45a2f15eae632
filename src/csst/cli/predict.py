"""csst predict RUN INPUT [-o out.csv]: print or write the class of new examples."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from csst.cli.examples import ExampleReader, make_parser
from csst.cli.prediction_files import Cells, open_writer
from csst.data.tabular.columns import Columns
from csst.data.tabular.files import is_table
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.report.comparison_tables import quote_formula
from csst.runs.folder import Run

#: seconds between two lines of progress
PROGRESS_SECONDS = 5.0
#: the file in the folder of predictions that names their model and options
RECORD = "predictions.json"


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of csst predict."""
    parser = make_parser("predict", "Label new examples with a finished run's model.", "column")
    parser.add_argument(
        "input",
        nargs="+",
        help="an .npz file with x or an .npy file, one row per example; for texts, and for a run that learned from a "
        "table, a .csv, .tsv, .jsonl or .parquet file, or a folder of such files; for images also a folder of images, "
        "or one or more image files",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="",
        help="a .csv or .parquet file; default the terminal; for a folder of tables a folder",
    )
    parser.add_argument("--keep", default="", help="columns of the input to write beside predictions: id,date or all")
    parser.add_argument("--probabilities", action="store_true", help="write the probability of every class, p(CLASS)")
    parser.add_argument(
        "--objective",
        default="",
        help="decide for another sentence than the run's, by a rule fitted now on the examples whose scores it kept",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    args = parse_arguments(argv)
    model = FittedModel.load(args.run)
    if args.objective:
        model = model.with_objective(args.run, args.objective)
    keep = tuple(name.strip() for name in args.keep.split(",") if name.strip())
    group = "" if model.rule is None else model.rule.column
    reader = ExampleReader.open(args.run, model, text_column=args.column, keep=keep, group=group)
    if model.inputs.kind != "image" and len(args.input) == 1 and Path(args.input[0]).is_dir():
        record = Record(hash_model(args.run), args.objective, keep, args.probabilities, args.column)
        predict_folder(reader, args.input[0], args.output, record)
        return 0
    count = predict_file(reader, args.input, args.output, args.probabilities)
    if args.output:
        print(f"{count} predictions in {args.output}")
    return 0


def predict_folder(reader: ExampleReader, folder: str, output: str, record: Record) -> None:
    """Predict every table of a folder, except those whose predictions are there and newer.

    Args:
        reader: reads the tables.
        folder: the folder of tables.
        output: the folder of predictions.
        record: the model and the options of the predictions.
    """
    parts = list_parts(folder, output)
    record.write(Path(output))
    waiting_parts = [part for part in parts if not part.is_done]
    if len(waiting_parts) < len(parts):
        print(f"{len(parts) - len(waiting_parts)} of {len(parts)} files have predictions already")
    for number, part in enumerate(waiting_parts, 1):
        part.target.parent.mkdir(parents=True, exist_ok=True)
        count = predict_file(reader, [str(part.source)], str(part.target), record.has_all)
        place = part.target.relative_to(Path(output).resolve())
        print(f"{number}/{len(waiting_parts)} {count} predictions in {Path(output) / place}", flush=True)


def predict_file(reader: ExampleReader, paths: Sequence[str], output: str, has_all: bool) -> int:
    """Write the predictions of a file, or of several images, and say which categories training did not have.

    Args:
        reader: reads the examples.
        paths: the file, or images.
        output: a .csv or .parquet file, or "" for the terminal.
        has_all: whether to write the probability of every class.

    Returns:
        The number of examples.
    """
    count = 0
    progress = RowProgress()
    strangers: Counter[str] = Counter()
    with open_writer(output) as writer:
        for batch in reader.read(paths):
            writer.write(add_predictions(reader.model, batch.inputs, batch.cells, has_all, batch.groups))
            count += len(batch.inputs)
            strangers.update(count_strangers(batch.inputs, reader.columns))
            progress.show(count)
    for name, rows in strangers.items():
        print(
            f"csst: values of {name!r} that training did not have, in {rows} of {count} rows, count as none of its "
            "categories",
            file=sys.stderr,
        )
    return count


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
        labels = model.rule.predict(probs, groups)
        probs = model.rule.posterior(probs, groups)
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


class Part(NamedTuple):
    """A file of the input folder, and the file of its predictions."""

    source: Path
    target: Path

    @property
    def is_done(self) -> bool:
        """Whether there are predictions, and the input has not changed since."""
        return self.target.exists() and self.target.stat().st_mtime >= self.source.stat().st_mtime


@dataclass(frozen=True)
class Record:
    """The model and the options of a folder of predictions.

    Args:
        model: the SHA-256 of the run's metrics, which hold the rule and the checksum of the model.
        objective: another sentence than the run's, or "".
        keep: columns of the input that are kept.
        has_all: whether there is a column for every class.
        text_column: the column of texts, or "" for the one of training.
    """

    model: str
    objective: str
    keep: tuple[str, ...]
    has_all: bool
    text_column: str

    def write(self, folder: Path) -> None:
        """Store the record in a new folder; raise an error if the folder is of another model or of other options."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / RECORD
        text = json.dumps(asdict(self), indent=1) + "\n"
        if path.exists() and path.read_text() != text:
            raise InputError(f"{folder} holds predictions of another model or with other options: name another folder")
        if not path.exists() and any(folder.iterdir()):
            raise InputError(f"{folder} holds files that are no predictions of csst: name an empty or a new folder")
        path.write_text(text)


def hash_model(run: str) -> str:
    """Return the SHA-256 of a run's metrics, which hold the rule and the checksum of the model."""
    return hashlib.sha256(Run(run).path("metrics.json").read_bytes()).hexdigest()


def list_parts(folder: str, output: str) -> list[Part]:
    """Return the tables of a folder and of its sub-folders, sorted, with the files of their predictions.

    Predictions of a .csv or .parquet file have its name; predictions of any other table are a CSV file.
    """
    if not output:
        raise InputError(f"{folder} is a folder, which is predicted file by file: name a folder for predictions by -o")
    root = Path(folder).resolve()
    target_root = Path(output).resolve()
    if target_root.is_relative_to(root):
        raise InputError(f"predictions would lie among the files of {folder}: name a folder outside of it")
    if target_root.is_file() or target_root.suffix:
        raise InputError(f"{folder} is a folder, so are its predictions; found the file name {output}")
    sources = sorted(path for path in root.rglob("*") if path.is_file() and is_table(path))
    if not sources:
        raise InputError(f"{folder} holds no .csv, .tsv, .jsonl or .parquet file")
    parts = []
    for source in sources:
        place = source.relative_to(root)
        name = place.name if place.suffix.lower() in (".csv", ".parquet") else f"{place.name}.csv"
        parts.append(Part(source, target_root / place.with_name(name)))
    return parts
