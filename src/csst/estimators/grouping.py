"""Groups of rows as users give them: `fit(X, y, group=...)`, `predict(X, group=...)`, `score(X, y, group=...)`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from csst.data.tabular.arrays import number_words
from csst.errors import InputError
from csst.estimators.inputs import GivenGroups, number_labels, read_labels
from csst.fitting.evaluation import align, tabulate_groups
from csst.maths.grouped_confusion import GroupedConfusion, count_groups
from csst.maths.language import Sentence
from csst.maths.objectives import Objective
from csst.maths.ranking import score_on
from csst.rules.feasibility import TOLERANCE
from csst.rules.groups import GroupEstimate
from csst.rules.rule import read_group_values


def read_groups(group: Any, rows: int, what: str) -> np.ndarray:
    """Return groups as texts, None where one is missing, (N,).

    Args:
        group: the value of the column for each row, (N,); None or NaN if unknown; None for all unknown.
        rows: N.
        what: the name of the rows, for errors.
    """
    if group is None:
        return np.full(rows, None, dtype=object)
    values = np.asarray(group, dtype=object)
    if values.shape != (rows,):
        raise InputError(f"group holds one value for each row of {what}; found shape {values.shape} for {rows} rows")
    return np.array([None if value is None or value != value else str(value) for value in values], dtype=object)


def number_groups(column: str, group: Any, rows: int, extra_group: Any, extra_rows: int) -> GivenGroups:
    """Return the groups of X and of X_unlabeled as numbers.

    Args:
        column: name of the column of groups.
        group: the value of each row of X, see `read_groups`.
        rows: N.
        extra_group: the value of each row of X_unlabeled.
        extra_rows: number of rows of X_unlabeled.
    """
    parts = [read_groups(group, rows, "X"), read_groups(extra_group, extra_rows, "X_unlabeled")]
    names = tuple(sorted({value for values in parts for value in values if value is not None}))
    numbers = [number_words(values, names).numpy() for values in parts]
    return GivenGroups(column, names, *numbers)


def require_group(objective: Objective, group: Any) -> None:
    """Raise an error unless a sentence about groups comes with groups, and any other objective without."""
    column = objective.column
    if column is not None and group is None:
        raise InputError(f"'{objective}' needs the {column} of every row: pass group=...")
    if column is None and group is not None:
        raise InputError(f"group is given, but '{objective}' names none: write for instance max min(recall by region)")


def score_groups(
    sentence: Sentence, y: Any, predictions: np.ndarray, classes: np.ndarray, group: Any, sample_weight: Any = None
) -> float:
    """Return the value of a sentence about groups less 10 times the largest miss of a constraint.

    Args:
        sentence: bound to its classes and groups.
        y: the true classes, (N,); -1, NaN or None if unknown.
        predictions: the predicted classes, (N,).
        classes: the classes in order, (K,).
        group: the value of the column for every row, (N,).
        sample_weight: must be None: rows of groups have no weights.
    """
    if sample_weight is not None:
        raise InputError("a sentence about groups counts rows and takes no sample_weight: leave it out")
    require_group(sentence, group)
    values, is_known = read_labels(y)
    truth = number_labels(values[is_known], classes, "the labels y")
    answers = number_labels(predictions[is_known], classes, "the predictions")
    names = sentence.binding.row_groups
    class_names = sentence.binding.class_names or ()
    group_values = np.asarray(group, dtype=object)[is_known]
    places = torch.from_numpy(read_group_values(group_values, names, str(sentence.column), len(truth)))
    counts = count_groups(truth, answers, places, len(class_names), len(names))
    return score_on(sentence, GroupedConfusion.from_counts(counts, class_names, names), TOLERANCE).score


def summarize_groups(groups: GroupEstimate) -> list[str]:
    """Return the lines of a table with the expected recall of every group and class."""
    values = groups.as_dict()
    lowest_recall = values["lowest_recall"]
    kind = "one rule for each group" if groups.is_per_group else "one rule for all groups"
    return [
        f"recall by {values['column']}, {kind} (95 % interval, labels); the lowest is expected to be "
        f"{lowest_recall['estimate']:.2f} ({lowest_recall['low']:.2f}–{lowest_recall['high']:.2f})",
        align(tabulate_groups(values, groups.class_names)),
    ]
