"""Inputs of the estimator as examples: arrays, data frames, sparse matrices, texts or images with an encoder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.data.embeddings import Embedder
from csst.data.examples import Examples, as_examples
from csst.data.row_hashes import order_by_content
from csst.data.splits import hold_out
from csst.data.tabular.column_words import describe_encoding
from csst.data.tabular.columns import Columns
from csst.data.tabular.tables import is_missing, stack
from csst.data.task import Labeled, Task
from csst.data.text.texts import Texts
from csst.errors import InputError
from csst.estimators.networks import PREPROCESSING, stack_images
from csst.models.encoders import Function, encoder
from csst.settings import Embedding

#: texts that most often stand for a label that is not known
MARKS = ("", "-1", "-1.0", "nan", "none", "<na>", "null")


def embed(values: Any, name_or_function: Any, embedding: Embedding) -> np.ndarray:
    """Return texts or images as vectors of an encoder: a name, or any function of a batch (kept in memory only)."""
    kind = "text" if _are_texts(values) else "image"
    if callable(name_or_function):
        embedder: Any = Function(name_or_function, fingerprint="")
    elif isinstance(name_or_function, str):
        is_complete = name_or_function == "words" or ":" in name_or_function
        embedder = encoder(name_or_function if is_complete else f"hf:{name_or_function}", kind, embedding.max_length)  # type: ignore[arg-type]
    else:
        raise InputError(f"an encoder is a name, such as words or hf:FOLDER, or a function; found {name_or_function!r}")
    inputs: Examples = Texts(list(values)) if kind == "text" else _read_images(values)
    return Embedder(embedder, embedding)(inputs, f"{kind}s").numpy()


def _are_texts(values: Any) -> bool:
    if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
        raise InputError("with an encoder, X is a list of texts or an array of images; found nothing or a single text")
    if hasattr(values, "columns"):
        raise InputError("with an encoder, X is a list of texts or images; found a frame: pass one of its columns")
    if not isinstance(next(iter(values)), str):
        return False
    wrong_places = [place for place, value in enumerate(values) if not isinstance(value, str)]
    if wrong_places:
        raise InputError(
            f"X must hold texts; {len(wrong_places)} entries are not, the first at {wrong_places[0]}: fill or drop them"
        )
    return True


def _read_images(values: Any) -> Tensor:
    array = stack_images(values)
    if array.ndim == 3:
        array = array[:, None]
    if array.ndim != 4 or array.dtype != np.uint8:
        raise InputError(
            f"with an encoder, X is a list of texts or images uint8 (N, height, width, 3) or (N, 3, height, width); "
            f"found shape {array.shape} of {array.dtype}"
        )
    if array.shape[1] not in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(array))


def read_labels(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels as an array, and which of them are known: not -1, NaN or None."""
    from sklearn.utils.validation import column_or_1d

    if y is None:
        raise InputError("fit requires y to be passed, but the target y is None: mark unlabeled rows with -1")
    # In an array of texts, None, NaN and -1 would become texts themselves.
    of_texts = isinstance(y, list | tuple) and any(isinstance(label, str) for label in y)
    labels = y.to_numpy() if hasattr(y, "to_numpy") else y
    if "int" in str(getattr(y, "dtype", "")).lower() and np.asarray(labels).dtype.kind == "f":
        # NumPy turns integers with missing ones among them into floats.
        labels = y.to_list()
        of_texts = True
    values = column_or_1d(np.asarray(labels, dtype=object if of_texts else None), warn=True)
    if values.dtype.kind in "iu":
        return values, values != -1
    if values.dtype.kind == "f":
        if np.isinf(values).any():
            raise InputError("Input y contains infinity; a label is a class, or -1 or NaN for unlabeled")
        return values, ~(np.isnan(values) | (values == -1))
    if values.dtype.kind in "mM":
        raise InputError(f"a label is a text, a number or a truth value; found {values.dtype}: make them texts")
    if values.dtype.kind != "O":
        return values, np.ones(len(values), dtype=bool)
    is_known = np.array([not (is_missing(v) or (isinstance(v, int | float) and v == -1)) for v in values], dtype=bool)
    other_types = [type(v).__name__ for v in values[is_known] if not isinstance(v, str | Real | np.bool_)]
    if other_types:
        raise InputError(f"a label is a text, a number or a truth value; found {other_types[0]}: make them texts")
    if len({isinstance(v, str) for v in values[is_known]}) > 1:
        raise InputError("y mixes texts with other types of labels: make them all texts or all numbers")
    return values, is_known


def refuse_other_length(labels: np.ndarray, rows: int) -> None:
    """Raise an error unless there is one label for each row of X."""
    if len(labels) != rows:
        raise InputError(f"X and y must have the same length; found {rows} rows and {len(labels)} labels")


def number_classes(values: np.ndarray, is_known: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes, (K,), and the class number of every row whose label is known.

    Args:
        values: labels, as `read_labels` gives them.
        is_known: whether each label is known.
        rows: number of rows of X.
    """
    from sklearn.utils.multiclass import check_classification_targets

    refuse_other_length(values, rows)
    if not is_known.any():
        raise InputError("y holds no label at all: some rows of every class must be labeled")
    known_values = np.asarray(values[is_known].tolist())
    check_classification_targets(known_values)
    classes, labels = np.unique(known_values, return_inverse=True)
    if len(classes) < 2:
        other_count = len(values) - len(known_values)
        remark = f": the other {other_count} rows, marked -1, NaN or None, are unlabeled" if other_count else ""
        raise InputError(f"at least two classes are needed; found one class, {classes.tolist()[0]!r}{remark}")
    return classes, labels.astype(np.int64)


def note_markers(classes: np.ndarray) -> str | None:
    """Return a note if a class is named like a mark for unlabeled rows, as in numpy.array(["a", nan]); else None."""
    texts = [name for name in classes.tolist() if isinstance(name, str)]
    marks = [name for name in texts if name.strip().lower() in MARKS]
    if not marks or all(name.lstrip("+-").replace(".", "", 1).isdigit() for name in texts):
        return None
    return (
        f"the text {marks[0]!r} in y is taken for the name of a class: rows without a label are marked with -1, NaN or "
        "None themselves, in a list or an array of objects"
    )


def number_labels(values: np.ndarray, classes: np.ndarray, what: str) -> np.ndarray:
    """Return labels as class numbers 0 .. K-1."""
    number = {label: place for place, label in enumerate(classes.tolist())}
    unknown_names = sorted({str(value) for value in values.tolist() if value not in number})
    if unknown_names:
        raise InputError(f"{what} hold classes that were not among the labels in training: {unknown_names[:5]}")
    return np.array([number[value] for value in values.tolist()], dtype=np.int64)


def split_rows(
    rows: Any,
    labels: np.ndarray,
    is_known: np.ndarray,
    extra_rows: Any,
    validation: Any,
    classes: np.ndarray,
    columns: Columns,
    seed: int,
    read_rows: Callable[[Any], Any],
    groups: GivenGroups | None = None,
) -> Task:
    """Return the task of a fit, its rows in the order of their content, so that the order of X does not matter.

    Args:
        rows: all rows of X, (N, D).
        labels: class numbers of the rows with a label, (n,).
        is_known: whether each row has a label, (N,).
        extra_rows: further rows without labels; None without any.
        validation: see `CSSTClassifier`.
        classes: the classes in order, (K,).
        columns: columns of the rows.
        seed: seed of the held-out rows.
        read_rows: function from an X to its rows.
        groups: groups of the rows of X and of `extra_rows`.
    """
    names = tuple(str(name) for name in classes)
    place = np.flatnonzero(is_known)
    judge = None
    order = order_by_content(rows[place], labels)  # for what is held out
    place = place[order]
    labels = labels[order]
    is_held_out = np.zeros(len(labels), dtype=bool)

    def part(mask: np.ndarray) -> Labeled:
        index = place[mask]
        return make_part(rows[index], labels[mask], None if groups is None else groups.rows[index])

    if validation is None:
        pass  # every labeled row is learned from and judged out of fold
    elif isinstance(validation, str):
        raise InputError(f"validation is None, a fraction, indices or a pair (X, y); found {validation!r}")
    elif isinstance(validation, tuple):
        judge = make_part(*_read_pair(validation, classes, read_rows))
    elif isinstance(validation, Real):
        is_held_out[hold_out(labels, float(validation), seed, names)] = True
    else:
        is_held_out = np.isin(place, _read_indices(validation, place, rows.shape[0]))
    if is_held_out.any():
        judge = part(is_held_out)
        for counts, what in ((labels[~is_held_out], "learned from"), (labels[is_held_out], "held out for validation")):
            missing_names = [
                name for name, n in zip(names, np.bincount(counts, minlength=len(names)), strict=True) if not n
            ]
            if missing_names:
                raise InputError(f"classes {missing_names[:10]} have no label among those {what}: hold out other rows")
    unlabeled = rows[np.flatnonzero(~is_known)]
    if extra_rows is not None:
        unlabeled = stack(unlabeled, extra_rows)
    task = Task("arrays", names, part(~is_held_out), as_examples(unlabeled), judge, columns=columns)
    if groups is not None:
        if isinstance(validation, tuple):
            raise InputError("validation rows need groups, too: pass a fraction or indices of rows instead of (X, y)")
        unlabeled_groups = torch.from_numpy(np.concatenate([groups.rows[~is_known], groups.extra]))
        task = replace(task, group_column=groups.column, group_names=groups.names, unlabeled_groups=unlabeled_groups)
    return task.in_content_order()


def make_part(rows: Any, labels: np.ndarray, groups: np.ndarray | None = None) -> Labeled:
    """Return rows with their class numbers and groups as examples."""
    return Labeled(as_examples(rows), torch.from_numpy(labels), None if groups is None else torch.from_numpy(groups))


@dataclass(frozen=True, eq=False)
class GivenGroups:
    """Groups of rows as numbers.

    Args:
        column: name of the column of groups.
        names: the values of that column.
        rows: the group of each row of X, (N,), -1 if unknown.
        extra: the group of each row of X_unlabeled, -1 if unknown.
    """

    column: str
    names: tuple[str, ...]
    rows: np.ndarray
    extra: np.ndarray


def _read_pair(validation: tuple, classes: np.ndarray, read_rows: Callable[[Any], Any]) -> tuple[Any, np.ndarray]:
    if len(validation) != 2:
        raise InputError(f"validation as a tuple is a pair (X, y); found {len(validation)} parts")
    values, there = read_labels(validation[1])
    if not there.all():
        raise InputError("every validation row needs a label; some are -1, NaN or None")
    rows = read_rows(validation[0])
    labels = number_labels(values, classes, "the validation labels")
    if len(labels) != rows.shape[0]:
        raise InputError(f"each validation row needs one label; found {rows.shape[0]} rows and {len(labels)} labels")
    return rows, labels


def _read_indices(validation: Any, place: np.ndarray, count: int) -> np.ndarray:
    index = np.asarray(validation)
    if index.dtype == bool and index.shape == (count,):
        index = np.flatnonzero(index)
    if index.ndim != 1 or index.dtype.kind not in "iu" or not len(index):
        raise InputError(f"validation is None, a fraction, indices or a pair (X, y); found {validation!r}")
    if len(np.unique(index)) < len(index) or not np.isin(index, place).all():
        raise InputError("the validation indices must name labeled rows of X, each once")
    return index


def warn_about_columns(columns: Columns) -> None:
    """Warn of columns that are left out, and of categories that nearly every row has its own of."""
    for column in columns.parts:
        if column.kind == "left out":
            warnings.warn(
                f"column {column.name!r} is left out ({', '.join(column.notes)}): group its values, or give texts to "
                "an encoder",
                stacklevel=5,
            )
        elif column.kind == "category" and any("an ID" in note for note in column.notes):
            warnings.warn(
                f"column {column.name!r} has {column.notes[0]} Nothing can be learned from a value that nearly every "
                "row has its own of: drop it, or group its values",
                stacklevel=5,
            )


def describe_columns(encoder: Any, columns: Columns, are_images: bool = False) -> str:
    """Return the preprocessing of raw examples before the exported graph, in words."""
    if are_images:
        return PREPROCESSING
    if encoder is not None:
        return f"each example is embedded by {encoder!r} first; the graph takes the vectors"
    return describe_encoding(columns)
