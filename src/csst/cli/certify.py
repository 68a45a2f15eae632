"""csst certify RUN labeled.csv "precision['fraud'] >= 0.9": check whether fresh labels prove a sentence's bounds."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from csst.cli.predict import read_examples
from csst.data.tabular.arrays import KEYS, read_npz
from csst.data.tabular.files import is_table
from csst.data.text.files import column, labels_of, read_table
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.fitting.model_file import read_recipe
from csst.recipes import Recipe
from csst.runs.folder import Run


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "csst certify",
        description="Say whether fresh labels prove the bounds of a sentence for a finished run's model.",
    )
    parser.add_argument("run", help="the run's folder")
    parser.add_argument(
        "labeled",
        help="fresh rows with labels in the order of their arrival: an .npz file with x and y, or a table with the "
        "columns of the training data (.csv, .tsv, .jsonl, .parquet)",
    )
    parser.add_argument("sentence", nargs="?", default="", help="a sentence or only its bounds; default the run's own")
    parser.add_argument(
        "--confidence", type=float, help="confidence of the proof; default as the sentence says, or 0.95"
    )
    parser.add_argument("--column", default="", help="the column of the texts; default the one of the training data")
    parser.add_argument("--label", default="", help="the column of the labels; default the one of the training data")
    args = parser.parse_args(argv)
    model = FittedModel.load(args.run)
    recipe = read_recipe(args.run)
    inputs, _ = read_examples(model, recipe, Run(args.run).columns(), [args.labeled], args.column)
    labels = read_labels(model, recipe, args.labeled, args.label)
    if len(labels) != len(inputs):
        raise InputError(f"{args.labeled} must have one label per row; found {len(labels)} for {len(inputs)} rows")
    result = model.certify(args.sentence or model.objective, inputs, labels, args.confidence)
    print(result.sentence)
    return 0


def read_labels(model: FittedModel, recipe: Recipe, path: str, name: str) -> np.ndarray:
    """Return the class index of every row of a file, (N,); refuse rows without a label."""
    if is_table(path):
        label = name or getattr(recipe.data, "label", "label")
        words = labels_of(column(read_table(path), label, path))
    elif path.endswith(".npz"):
        numbers = read_npz(path, KEYS, needed=("x", "y"))["y"]
        words = [model.class_names[n] if 0 <= n < len(model.class_names) else None for n in numbers.tolist()]
    else:
        raise InputError(f"labeled rows are an .npz file with x and y, or a table; found {path}")
    missing_count = sum(word is None for word in words)
    if missing_count:
        raise InputError(
            f"every row that certifies needs a label; {missing_count} of the {len(words)} rows of {path} have none"
        )
    unknown_words = sorted({str(word) for word in words if word not in model.class_names})
    if unknown_words:
        raise InputError(
            f"{path} has labels that the model does not know: {unknown_words[:5]}; its classes: "
            f"{list(model.class_names)[:20]}"
        )
    return np.array([model.class_names.index(str(word)) for word in words], dtype=np.int64)
