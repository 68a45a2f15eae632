"""The user's own arrays: an `.npz` file, or NumPy arrays and tensors in Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.data.row_order import order_by_content
from csst.data.splits import hold_out
from csst.data.tabular.array_views import Corrupt, Noise
from csst.data.tabular.number_tables import is_table, read_labeled_table
from csst.data.tabular.rows import RowParts, make_views
from csst.data.tabular.tables import statistics
from csst.data.task import Labeled, RowTask, Task, View, as_inputs, as_labels, hash_parts
from csst.errors import InputError, nearest

#: views of arrays that are no tables: noise in deviations of each feature, features taken from another example
WEAK_NOISE, STRONG_NOISE, STRONG_CORRUPTION = 0.02, 0.1, 0.2
KEYS = ("x", "y", "x_unlabeled", "x_validation", "y_validation", "x_test", "y_test", "class_names")


@dataclass(frozen=True)
class Arrays:
    """A task from an `.npz` file, or from a table of numbers with a column of labels (.csv, .tsv, .jsonl, .parquet).

    Keys of the .npz file: x and y (-1 means unlabeled); optional x_unlabeled, x_validation and y_validation, x_test and
    y_test, class_names. Without a validation set, a fraction of the labeled examples of each class is held out for a
    network; other learners judge every label out of fold.

    Args:
        path: the file.
        validation: fraction of the labeled examples held out for a network where the file has no validation set; other
            learners judge every label out of fold.
        label: the column of the labels in a table; a blank one means unlabeled, and all other columns are numbers.
    """

    path: str = ""
    validation: float = 0.2
    label: str = "label"

    def load_rows(self, seed: int) -> RowTask:
        """The rows of the file; no validation set is cut from them."""
        arrays, facts = self._read()
        return replace(rows_from_arrays(arrays, Path(self.path).stem), facts=facts)

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arrays, and the names of the columns where they have some."""
        if not self.path:
            raise InputError("the array recipe needs a file: csst train array --data.path FILE.npz or FILE.csv")
        if is_table(self.path):
            arrays, columns = read_labeled_table(self.path, self.label)
            return arrays, {"columns": columns}
        return read_npz(self.path, KEYS, needed=("x", "y")), {}

    def load(self, seed: int) -> Task:
        arrays, facts = self._read()
        task = from_arrays(arrays, Path(self.path).stem, self.validation, seed)
        return replace(task, facts={**task.facts, **facts})


def explain_unreadable(error: Exception) -> str:
    """Return why NumPy cannot read a file; its own advice, to allow pickles, would run code from the file."""
    if "pickle" in str(error):
        return "it is of another format, or holds pickled objects, which are never read"
    return str(error)


def read_npz(path: str, keys: tuple[str, ...], needed: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file under known names; pickled objects are refused."""
    if not Path(path).is_file():
        raise InputError(f"there is no file {path!r}")
    try:
        stored = np.load(path, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise InputError(f"{path} holds a single array; an .npz file with {', '.join(needed)} is needed")
        with stored:
            unknown = [key for key in stored.files if key not in keys]
            if unknown:
                hints = "".join(nearest(key, keys) for key in unknown[:1])
                raise InputError(f"{path} has unknown arrays {unknown}{hints or '; known: ' + ', '.join(keys)}")
            arrays = {key: stored[key] for key in stored.files}
    except InputError:
        raise
    except Exception as error:  # a damaged archive can make its reader raise anything
        reason = explain_unreadable(error)
        raise InputError(f"{path} cannot be read as an .npz file of plain arrays: {reason}") from None
    missing = [key for key in needed if key not in arrays]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}; found {', '.join(arrays) or 'nothing'}")
    return arrays


def from_arrays(
    arrays: dict[str, Any],
    name: str = "arrays",
    validation: float = 0.2,
    seed: int = 0,
    views: tuple[View, View] | None = None,
) -> Task:
    """A task from arrays under the names `KEYS`; y == -1 means unlabeled. `views` replaces the weak and strong view."""
    rows = rows_from_arrays(arrays, name)
    labeled, held, unlabeled, names = rows.labeled, rows.validation, rows.unlabeled, rows.class_names
    assert isinstance(unlabeled, Tensor)
    if held is None:
        out = torch.from_numpy(hold_out(labeled.labels.numpy(), validation, seed, names))
        keep = torch.ones(len(labeled), dtype=torch.bool)
        keep[out] = False
        held = sort_examples(Labeled(labeled.inputs[out], labeled.labels[out]))
        labeled = sort_examples(Labeled(labeled.inputs[keep], labeled.labels[keep]))
    inputs, moments = labeled.inputs, None
    assert isinstance(inputs, Tensor)
    if inputs.ndim == 2:  # a table: as CSSTClassifier has it
        columns = [0] * inputs.shape[1]
        parts = RowParts(inputs.numpy(), labeled.labels.numpy(), unlabeled.numpy(), None, names, columns)
        views, moments = views or make_views(parts, "table"), statistics(parts.measured)
    elif views is None:
        scale = torch.cat([inputs, unlabeled]).float().std(0)
        views = Noise(scale, WEAK_NOISE), Corrupt(scale, STRONG_NOISE, STRONG_CORRUPTION)
    digest = hash_parts(unlabeled, labeled, held, rows.test)
    return Task(name, names, labeled, unlabeled, held, rows.test, *views, split_hash=digest, moments=moments)


def sort_examples(examples: Labeled) -> Labeled:
    """Return the same examples in the order of their content."""
    order = torch.from_numpy(order_by_content(examples.inputs, examples.labels.numpy()))
    return Labeled(examples.inputs[order], examples.labels[order])


def rows_from_arrays(arrays: dict[str, Any], name: str = "arrays") -> RowTask:
    """The parts of arrays under the names `KEYS`, each in the order of its content; y == -1 means unlabeled."""
    x, y = as_inputs(arrays["x"], "x"), as_labels(arrays["y"], "y")
    if len(x) != len(y):
        raise InputError(f"x and y must have the same length; found {len(x)} and {len(y)}")
    if (y < -1).any():
        raise InputError(f"y must hold class indices, or -1 for unlabeled; found {int(y.min())}")
    known = y >= 0
    if not known.any():
        raise InputError("y holds no label at all, only -1: some examples of every class must be labeled")
    if "class_names" not in arrays and int(y.max()) >= int(known.sum()):
        raise InputError(
            f"y goes up to class {int(y.max())} with {int(known.sum())} labeled examples, and every class needs one: "
            "number the classes 0 .. K-1"
        )
    names = tuple(map(str, arrays["class_names"])) if "class_names" in arrays else None
    names = names or tuple(str(c) for c in range(int(y.max()) + 1))
    if len(set(names)) < len(names):
        raise InputError(f"class_names must differ from each other; found {list(names)[:20]}")
    if int(y.max()) >= len(names):
        raise InputError(f"y goes up to class {int(y.max())}, but class_names lists {len(names)} classes")
    unlabeled = [x[~known]] + ([as_inputs(arrays["x_unlabeled"], "x_unlabeled")] if "x_unlabeled" in arrays else [])
    if unlabeled[-1].shape[1:] != x.shape[1:]:
        raise InputError(
            f"x and x_unlabeled must have examples of one shape; found {tuple(x.shape[1:])} and "
            f"{tuple(unlabeled[-1].shape[1:])}"
        )
    rest, labeled = torch.cat(unlabeled), Labeled(x[known], y[known])

    def part(key: str) -> Labeled | None:
        if f"x_{key}" not in arrays:
            return None
        if f"y_{key}" not in arrays:
            raise InputError(f"x_{key} is given, so y_{key} is needed too")
        inputs = as_inputs(arrays[f"x_{key}"], f"{key} inputs")
        return Labeled(inputs, as_labels(arrays[f"y_{key}"], f"{key} labels"))

    validation, test = part("validation"), part("test")
    parts = [part.inputs for part in (labeled, validation, test) if part is not None]
    shapes = {tuple(inputs.shape[1:]) for inputs in parts if isinstance(inputs, Tensor)}
    if len(shapes) > 1:
        raise InputError(f"all parts of the data must have inputs of one shape; found {sorted(shapes)}")
    # What is held out and drawn later must not depend on the order in which the rows came.
    rest, labeled = rest[order_by_content(rest)], sort_examples(labeled)
    validation = None if validation is None else sort_examples(validation)
    digest = hash_parts(rest, labeled, validation, test)
    return RowTask(name, names, labeled, rest, validation, test, "array", digest)
