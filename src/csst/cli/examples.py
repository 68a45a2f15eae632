"""Read new examples for a finished run, chunk by chunk: tables, arrays, texts, images."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from csst.data.images.files import SUFFIXES, ImageFolder, list_unlabeled
from csst.data.images.reading import ImageFiles, Readers
from csst.data.npz import explain_unreadable, read_npz
from csst.data.tabular.arrays import KEYS
from csst.data.tabular.columns import Columns
from csst.data.tabular.files import CHUNK_ROWS, Chunk, is_table, read_cells, read_chunks, read_numbers
from csst.data.tabular.labeled_tables import refuse_single_column
from csst.data.task import as_inputs
from csst.data.text.files import find_column, read_label_words, read_texts
from csst.data.text.texts import Texts
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.recipes import Recipe
from csst.runs.folder import Run, read_recipe

#: images that are predicted at a time
CHUNK_IMAGES = 2000
#: files that a run takes, by kind of inputs
FILES = {
    "text": "a .csv, .tsv, .jsonl or .parquet file",
    "image": "image files, a folder of them, or one .npz or .npy file",
    "array": "an .npz or .npy file or, where the columns have names, a table",
}
#: keeps all columns of a table
ALL = "all"


@dataclass(frozen=True)
class Batch:
    """Some new examples.

    Args:
        inputs: N examples, as the model takes them.
        cells: columns of the input file to write beside predictions; of images their file names. N cells each.
        labels: their classes in words, None for an unlabeled one; empty if labels were not asked for.
        groups: their groups of rows in words; None if they were not asked for.
    """

    inputs: Any
    cells: dict[str, Any] = field(default_factory=dict)
    labels: list[str | None] = field(default_factory=list)
    groups: list[str | None] | None = None


@dataclass(frozen=True)
class ExampleReader:
    """Reads examples for the model of a run.

    Args:
        model: the model.
        recipe: the run's recipe.
        columns: the columns of the training table; None if it was none.
        text_column: the column of texts; "" for the one of training.
        keep: names of columns to keep, or `ALL`.
        label: the column of labels; "" for the one of training, None if labels are not needed.
        rows: examples in a batch; None for few.
        group: the column of groups of rows; "" if groups are not needed.
    """

    model: FittedModel
    recipe: Recipe
    columns: Columns | None
    text_column: str = ""
    keep: tuple[str, ...] = ()
    label: str | None = None
    rows: int | None = None
    group: str = ""

    @classmethod
    def open(cls, folder: str, model: FittedModel, **options: Any) -> ExampleReader:
        """Return the reader for a run's folder."""
        return cls(model, read_recipe(folder), Run(folder).columns(), **options)

    @property
    def label_name(self) -> str:
        """The column of labels in a table."""
        return self.label or str(getattr(self.recipe.data, "label", "label"))

    def read(self, paths: Sequence[str]) -> Iterator[Batch]:
        """Read examples from a file or folder, or from image files.

        Args:
            paths: one file; of images one or more files and folders.

        Yields:
            Batches of at least one example.
        """
        kind = self.model.inputs.kind
        pictures = [path for path in paths if path.lower().endswith(SUFFIXES)]
        if kind == "image" and all(path in pictures or Path(path).is_dir() for path in paths):
            yield from self._read_images(paths)
            return
        if kind != "image" and pictures:
            raise InputError(f"this run did not learn from images, and {pictures[0]} is one: pass {FILES[kind]}")
        if len(paths) > 1:
            raise InputError(f"only images may be several files; found {len(paths)}: pass {FILES[kind]}")
        count = 0
        path = paths[0]
        if kind == "text":
            batches = self._read_texts(path)
        else:
            batches = self._read_table(path) if is_table(path) else self._read_array(path)
        for batch in batches:
            yield batch
            count += len(batch.inputs)
        if not count:
            raise InputError(f"{path} holds no rows")

    def read_all(self, paths: Sequence[str]) -> Batch:
        """Read all examples as one batch, for what has to look at all of them together."""
        (batch,) = replace(self, rows=sys.maxsize).read(paths)
        return batch

    def _read_texts(self, path: str) -> Iterator[Batch]:
        name = self.text_column or getattr(self.recipe.data, "text", "text")
        for chunk in read_chunks(path, self.rows):
            yield Batch(Texts(read_texts(chunk, name, path)), self._select(chunk, path), self._read_labels(chunk, path))

    def _read_table(self, path: str) -> Iterator[Batch]:
        if self.columns is None:
            raise InputError("this run learned from arrays whose columns have no names: pass an .npz or .npy file")
        start = 0
        for chunk in read_chunks(path, self.rows):
            count = len(next(iter(chunk.values())))
            if not start and len(self.columns.inputs) > 1:
                refuse_single_column(chunk, path)
            if not start:
                self.columns.refuse_missing(chunk, path)
            table = {
                column.name: read_column(chunk.get(column.name, [None] * count), column.kind == "number")
                for column in self.columns.inputs
            }
            rows = as_inputs(self.columns.encode(table, path, start), "x")
            groups = read_label_words(list(find_column(chunk, self.group, path))) if self.group else None
            yield Batch(rows, self._select(chunk, path), self._read_labels(chunk, path), groups)
            start += count

    def _read_array(self, path: str) -> Iterator[Batch]:
        if self.keep:
            raise InputError(f"--keep names columns of a table; {path} has none: leave it out")
        arrays = read_array(path)
        inputs = as_inputs(arrays["x"], "x")
        shape = tuple(inputs.shape[1:])
        # a frozen encoder takes images of any size
        is_frozen = self.recipe.frozen
        is_valid = len(shape) == 3 if is_frozen else shape == self.model.inputs.shape
        if not is_valid:
            needed_shape = "(channels, height, width)" if is_frozen else self.model.inputs.shape
            raise InputError(f"the model takes inputs of shape {needed_shape}; {path} has {shape}")
        labels: list[str | None] = []
        if self.label is not None:
            if "y" not in arrays:
                raise InputError(f"labeled rows are an .npz file with x and y, or a table; found {path}")
            names = self.model.class_names
            labels = [names[n] if 0 <= n < len(names) else None for n in arrays["y"].tolist()]
        count = self.rows or CHUNK_ROWS
        for start in range(0, len(inputs), count):
            stop = start + count
            yield Batch(inputs[start:stop], {}, labels[start:stop])

    def _read_images(self, places: Sequence[str]) -> Iterator[Batch]:
        """Read images from files and folders; names are relative to the folder if there is only one.

        The label of an image in a folder is the sub-folder it lies in.
        """
        data = self.recipe.data
        if self.recipe.frozen and not isinstance(data, ImageFolder):
            raise InputError("this run learned from arrays: pass the images as an .npz file, not as files or a folder")
        if self.keep:
            raise InputError("--keep names columns of a table; images have none: leave it out")
        paths: list[str] = []
        names: list[str] = []
        for place in places:
            if Path(place).is_dir():
                root = Path(place) if len(places) > 1 else Path()
                for file in list_unlabeled(place):
                    paths.append(file.path)
                    names.append((root / file.name).as_posix())
            elif not Path(place).is_file():
                raise InputError(f"there is no image {place!r}")
            else:
                paths.append(place)
                names.append(place)
        folder = data if isinstance(data, ImageFolder) else None
        size = self.model.inputs.shape[-1] if folder is None else folder.size
        readers = Readers(0 if folder is None else folder.workers)
        labels = [] if self.label is None else [Path(name).parent.name or None for name in names]
        count = self.rows or CHUNK_IMAGES
        for start in range(0, len(paths), count):
            part = slice(start, start + count)
            yield Batch(ImageFiles(paths[part], size, readers), {"file": names[part]}, labels[part])

    def _select(self, chunk: Chunk, path: str) -> dict[str, Any]:
        """Return the columns to keep."""
        names = list(chunk) if self.keep == (ALL,) else self.keep
        return {name: find_column(chunk, name, path) for name in names}

    def _read_labels(self, chunk: Chunk, path: str) -> list[str | None]:
        return [] if self.label is None else read_label_words(list(find_column(chunk, self.label_name, path)))


def make_parser(verb: str, description: str, *columns: str) -> argparse.ArgumentParser:
    """Return a parser of a command about a run and new examples.

    Args:
        verb: name of the command.
        description: a sentence about the command.
        *columns: "column" for an argument that names the column of texts, "label" for the column of labels.
    """
    parser = argparse.ArgumentParser(f"csst {verb}", description=description)
    parser.add_argument("run", help="the run's folder")
    for name in columns:
        content = {"column": "texts", "label": "labels"}[name]
        text = f"the column of the {content}; default the one of the training data"
        parser.add_argument(f"--{name}", default="", help=text)
    return parser


def read_column(values: Any, is_number: bool) -> np.ndarray:
    """Return the cells of a file's column as an array: floats where all are numbers and numbers are expected."""
    numbers = read_numbers(values) if is_number else None
    return read_cells(values) if numbers is None else numbers


def read_array(path: str) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file, or the array of an .npy file as x."""
    if not path.endswith(".npy"):
        return read_npz(path, KEYS, required_names=("x",))
    if not Path(path).is_file():
        raise InputError(f"there is no file {path!r}")
    try:
        return {"x": np.load(path, allow_pickle=False)}
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read as a plain array: {explain_unreadable(error)}") from None
