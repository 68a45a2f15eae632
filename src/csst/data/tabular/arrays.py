"""Tasks from a user's arrays: an `.npz` file, a table, or NumPy arrays and tensors in Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.data.npz import read_npz
from csst.data.tabular.columns import Columns
from csst.data.tabular.files import is_table
from csst.data.tabular.labeled_tables import index_words, read_labeled_table
from csst.data.tabular.table_views import WEAK_NOISE, Corrupt, Noise
from csst.data.tabular.tables import warn_about_coarse_columns
from csst.data.task import Labeled, Task, as_inputs, as_labels, hash_parts, refuse_other_shapes
from csst.errors import InputError

#: noise in the strong view of arrays that are not tables, in standard deviations of each feature
STRONG_NOISE = 0.1
#: fraction of features that their strong view takes from another example
STRONG_CORRUPTION = 0.2
KEYS = ("x", "y", "x_unlabeled", "x_validation", "y_validation", "x_test", "y_test", "class_names")


@dataclass(frozen=True)
class Arrays:
    """A task from an `.npz` file, or from a table with a column of labels (.csv, .tsv, .jsonl, .parquet).

    Keys of the .npz file: x and y (-1 means unlabeled); optional x_unlabeled, x_validation and y_validation, x_test and
    y_test, class_names. Without a validation set, a fraction of the labeled examples of each class is held out for a
    network; other learners judge every label out of fold.

    Args:
        path: the file.
        validation: fraction of the labeled examples held out for a network if the file has no validation set; other
            learners judge every label out of fold.
        label: the column of labels in a table; a blank label means unlabeled.
        drop: columns of a table to leave out, such as id,name.
        test_path: a table of labeled rows on which the finished model is measured.
        group: the column of groups of rows that the objective names, as region in "max min(recall by region)"; it may
            be dropped as a feature and still tell the groups.
    """

    path: str = ""
    validation: float = 0.2
    label: str = "label"
    drop: str = ""
    test_path: str = ""
    group: str = ""

    def load(self, seed: int, holds_out: bool = True) -> Task:
        """Load the rows of the file; `holds_out` holds out validation rows for a network and makes its views."""
        arrays, columns = self._read()
        validation = self.validation if holds_out else None
        task = from_arrays(arrays, Path(self.path).stem, validation, seed, columns=columns)
        facts = {} if columns is None else {"columns": list(columns.names or ())}
        return replace(task, facts=facts, group_column=self.group)

    def _read(self) -> tuple[dict[str, Any], Columns | None]:
        """Return the arrays, and what the columns of a table hold."""
        if not self.path:
            raise InputError("the array recipe needs a file: csst train array --data.path FILE.npz or FILE.csv")
        if is_table(self.path):
            names = [name.strip() for name in self.drop.split(",") if name.strip()]
            return read_labeled_table(self.path, self.label, names, self.test_path, self.group)
        if self.drop or self.test_path or self.group:
            raise InputError(
                f"--data.drop, --data.group and --data.test_path are for tables with named columns; {self.path} is "
                "none: leave them out, and put test rows into the .npz file as x_test and y_test"
            )
        return read_npz(self.path, KEYS, required_names=("x", "y")), None


def from_arrays(
    arrays: dict[str, Any],
    name: str = "arrays",
    validation: float | None = 0.2,
    seed: int = 0,
    columns: Columns | None = None,
) -> Task:
    """Return a task from arrays under the names `KEYS`; y == -1 means unlabeled.

    Args:
        arrays: the arrays by name.
        name: name of the data.
        validation: fraction of the labeled examples held out for a network if there is no validation set; None for
            other learners, which need neither validation examples nor views.
        seed: seed of the held-out examples.
        columns: columns of a table; None if all hold numbers.
    """
    task = replace(read_parts(arrays, name), columns=columns)
    if validation is not None:
        task = task.with_validation(validation, seed)
    # Rows are sorted so that later samples do not depend on their original order.
    task = task.in_content_order()
    unlabeled = task.unlabeled
    assert isinstance(unlabeled, Tensor)
    task = replace(task, split_hash=hash_parts(unlabeled, task.labeled, task.validation, task.test))
    if validation is None:
        return task
    if len(task.input_shape) == 1:  # a table has the views of CSSTClassifier
        return task.with_views("table")
    scale = torch.cat([task.labeled.inputs, unlabeled]).float().std(0)  # type: ignore[list-item]
    return replace(task, views=(Noise(scale, WEAK_NOISE), Corrupt(scale, STRONG_NOISE, STRONG_CORRUPTION)))


def read_parts(arrays: dict[str, Any], name: str) -> Task:
    """Return the parts of arrays under the names `KEYS`, sorted by content; y == -1 means unlabeled."""
    if isinstance(arrays["x"], np.ndarray):
        warn_about_coarse_columns(arrays["x"], "x")
    y = as_labels(arrays["y"], "y")
    names = read_class_names(arrays, y)
    group_names: tuple[str, ...] = ()
    groups = None
    if "group" in arrays:
        group_names = tuple(sorted({word for word in arrays["group"] if word is not None}))
        groups = number_words(arrays["group"], group_names)
    rows = Labeled(as_inputs(arrays["x"], "x"), y, groups)
    labeled = rows.part(np.flatnonzero(y >= 0))
    unlabeled_rows = rows.part(np.flatnonzero(y < 0))
    unlabeled: list[Any] = [unlabeled_rows.inputs]
    if "x_unlabeled" in arrays:
        unlabeled.append(as_inputs(arrays["x_unlabeled"], "x_unlabeled"))
    validation = _read_part(arrays, "validation")
    test = _read_part(arrays, "test")
    if test is not None and groups is not None:
        test = replace(test, groups=number_words(arrays["group_test"], group_names))
    refuse_other_shapes(*unlabeled, *(part.inputs for part in (labeled, validation, test) if part is not None))
    task = Task(
        name,
        names,
        labeled,
        torch.cat(unlabeled),
        validation,
        test,
        group_names=group_names,
        unlabeled_groups=unlabeled_rows.groups,
    )
    # Rows are sorted so that held-out rows do not depend on their original order.
    return task.in_content_order()


def read_class_names(arrays: dict[str, Any], y: Tensor) -> tuple[str, ...]:
    """Return the names of the classes in y, numbers if there are none; raise an error for labels that fit no names."""
    if (y < -1).any():
        raise InputError(f"y must hold class indices, or -1 for unlabeled; found {int(y.min())}")
    count = int((y >= 0).sum())
    largest_label = int(y.max()) if len(y) else -1
    if not count:
        raise InputError("y holds no label at all, only -1: some examples of every class must be labeled")
    if "class_names" not in arrays and largest_label >= count:
        raise InputError(
            f"y goes up to class {largest_label} with {count} labeled examples, and every class needs one: number the "
            "classes 0 .. K-1"
        )
    names = tuple(map(str, arrays.get("class_names", ()))) or tuple(str(c) for c in range(largest_label + 1))
    if len(set(names)) < len(names):
        raise InputError(f"class_names must differ from each other; found {list(names)[:20]}")
    if largest_label >= len(names):
        raise InputError(f"y goes up to class {largest_label}, but class_names lists {len(names)} classes")
    return names


def number_words(words: Any, names: tuple[str, ...]) -> Tensor:
    """Return the group of every row as a number, -1 for None, (N,).

    Args:
        words: the groups as texts, None where one is missing, (N,).
        names: the groups in order.
    """
    return torch.from_numpy(index_words(words, names, "test rows have groups that are not in the training table"))


def _read_part(arrays: dict[str, Any], key: str) -> Labeled | None:
    """Return the examples x_KEY with their labels y_KEY; None if there are none."""
    if f"x_{key}" not in arrays:
        return None
    if f"y_{key}" not in arrays:
        raise InputError(f"x_{key} is given, so y_{key} is needed too")
    inputs = as_inputs(arrays[f"x_{key}"], f"{key} inputs")
    return Labeled(inputs, as_labels(arrays[f"y_{key}"], f"{key} labels"))
