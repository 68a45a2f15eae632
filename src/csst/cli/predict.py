"""csst predict RUN INPUT -o out.csv: write labels and probabilities of new examples."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from csst.data.examples import Examples
from csst.data.images.files import ImageFolder
from csst.data.images.listing import SUFFIXES, unlabeled_files
from csst.data.images.reading import ImageFiles
from csst.data.tabular.arrays import KEYS, explain_unreadable, read_npz
from csst.data.tabular.columns import Columns
from csst.data.tabular.files import is_table, read_arrays
from csst.data.task import as_inputs
from csst.data.text.files import read_table, texts_of
from csst.data.text.texts import Texts
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.fitting.model_file import read_recipe
from csst.recipes import Recipe
from csst.report.comparison_tables import quote_formula
from csst.runs.folder import Run

#: files that a run takes, by kind of inputs
FILES = {
    "text": "a .csv, .tsv, .jsonl or .parquet file",
    "image": "image files, a folder of them, or one .npz or .npy file",
    "array": "an .npz or .npy file or, where the columns have names, a table",
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst predict", description="Label new examples with a finished run's model.")
    parser.add_argument("run", help="the run's folder")
    parser.add_argument(
        "input",
        nargs="+",
        help="an .npz file with x or an .npy file, one row per example; for texts, and for a run that learned from a "
        "table, a .csv, .tsv, .jsonl or .parquet file; for images also a folder of them, or one or more image files",
    )
    parser.add_argument("-o", "--output", required=True, help="the CSV file to write")
    parser.add_argument("--column", default="", help="the column of the texts; default the one of the training data")
    parser.add_argument(
        "--objective",
        default="",
        help="decide for another sentence than the run's, by a rule fitted now on the examples whose scores it kept",
    )
    args = parser.parse_args(argv)
    model = FittedModel.load(args.run)
    if args.objective:
        model = model.with_objective(args.run, args.objective)
    inputs, names = read_examples(model, read_recipe(args.run), Run(args.run).columns(), args.input, args.column)
    probs = model.probs(inputs)
    if model.rule is None:
        labels = probs.argmax(1)
    else:
        labels = model.rule.predict(probs)
        probs = model.rule.posterior(probs)
    classes = [*(quote_formula(name) for name in model.class_names), ""]  # no answer is a blank
    try:
        with open(args.output, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["row", "label", *(f"p({name})" for name in classes)])
            for name, label, row in zip(names, labels.tolist(), probs.tolist(), strict=True):
                writer.writerow([quote_formula(name), classes[label], *(f"{p:.6f}" for p in row)])
    except OSError as error:
        raise InputError(f"{args.output} cannot be written: {error}") from None
    print(f"{len(names)} predictions in {args.output}")
    return 0


def read_examples(
    model: FittedModel, recipe: Recipe, columns: Columns | None, paths: Sequence[str], column: str
) -> tuple[Examples, list[str]]:
    """Read new examples from a file or folder, or from image files; return them and their row numbers or file names."""
    kind = model.inputs.kind
    pictures = [path for path in paths if path.lower().endswith(SUFFIXES)]
    if kind == "image" and all(path in pictures or Path(path).is_dir() for path in paths):
        return read_images(model, recipe, paths)
    if kind != "image" and pictures:
        raise InputError(f"this run did not learn from images, and {pictures[0]} is one: pass {FILES[kind]}")
    if len(paths) > 1:
        raise InputError(f"only images may be several files; found {len(paths)}: pass {FILES[kind]}")
    path = paths[0]
    if kind == "text":
        texts = texts_of(read_table(path), column or getattr(recipe.data, "text", "text"), path)
        return Texts(texts), [str(row) for row in range(len(texts))]
    if is_table(path):
        if columns is None:
            raise InputError("this run learned from arrays whose columns have no names: pass an .npz or .npy file")
        rows = columns.encode(read_arrays(path, columns.text_names), path)
    else:
        rows = read_array(path)
    inputs = as_inputs(rows, "x")
    shape = tuple(inputs.shape[1:])
    # a frozen encoder takes images of any size
    is_valid = len(shape) == 3 if recipe.frozen else shape == model.inputs.shape
    if not is_valid:
        needed_shape = "(channels, height, width)" if recipe.frozen else model.inputs.shape
        raise InputError(f"the model takes inputs of shape {needed_shape}; {path} has {shape}")
    return inputs, [str(row) for row in range(len(inputs))]


def read_images(model: FittedModel, recipe: Recipe, places: Sequence[str]) -> tuple[ImageFiles, list[str]]:
    """Read images from files and folders; return them and their names, relative to the folder if there is only one."""
    data = recipe.data
    if recipe.frozen and not isinstance(data, ImageFolder):
        raise InputError("this run learned from arrays: pass the images as an .npz file, not as files or a folder")
    paths: list[str] = []
    names: list[str] = []
    for place in places:
        if Path(place).is_dir():
            files = unlabeled_files(place)
            paths += files.paths
            names += files.names if len(places) == 1 else [(Path(place) / name).as_posix() for name in files.names]
        elif not Path(place).is_file():
            raise InputError(f"there is no image {place!r}")
        else:
            paths.append(place)
            names.append(place)
    if isinstance(data, ImageFolder):
        return ImageFiles(paths, data.size, data.workers), names
    return ImageFiles(paths, model.inputs.shape[-1], 0), names


def read_array(path: str) -> np.ndarray:
    """Return the inputs of an .npy file, or x of an .npz file."""
    if not path.endswith(".npy"):
        return read_npz(path, KEYS, needed=("x",))["x"]
    if not Path(path).is_file():
        raise InputError(f"there is no file {path!r}")
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read as a plain array: {explain_unreadable(error)}") from None
