"""Whether columns share a unit, as those of embeddings and pixels do, so that one deviation scales them all.

Divided by its own deviation, a component that hardly varies counts as much as the first: on principal components of
images a network then learns noise. Of a table whose columns have units of their own the opposite is true. Which it is,
the labels say: logistic regression both ways, by balanced log-loss on rows that it has not learned from.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from csst.data.tabular.rows import RowParts, as_rows, make_views
from csst.data.tabular.tables import statistics
from csst.data.task import Task
from csst.learners.linear import Linear
from csst.learners.portfolio import compute_losses
from csst.learners.protocol import Rows
from csst.models.table import usable_deviation
from csst.statistics.folds import deal_folds

FOLDS = 3
#: labeled rows that are looked at, at most
ROWS = 2000


def choose_scale(parts: RowParts, scale: str, seed: int) -> tuple[Rows, bool]:
    """The columns' mean and deviation, and whether the deviation is one for all columns of numbers.

    Args:
        parts: rows with labels and without.
        scale: "column", "common", or "auto", which lets the labels decide.
        seed: of the folds.
    """
    mean, std = statistics(parts.measured)
    table = Rows(mean, usable_deviation(mean, std), tuple(parts.sizes))
    common = table.with_common_scale
    is_common = scale == "common"
    if scale == "auto":
        rows = np.random.default_rng(seed).permutation(len(parts.labels))[:ROWS]
        losses = [measure_loss(each, parts.labeled[rows], parts.labels[rows], seed) for each in (table, common)]
        is_common = losses[1] < losses[0]
    return (common if is_common else table), is_common


def scale_task(task: Task, seed: int) -> Task:
    """The task of a table with the standardization and the views that suit its labels.

    Args:
        task: rows of numbers, standardized column by column.
        seed: of the folds.
    """
    rows = as_rows(task.labeled.inputs)
    sizes = [0] * rows.shape[1]
    parts = RowParts(rows, task.labeled.labels.numpy(), as_rows(task.unlabeled), None, task.class_names, sizes)
    table, is_common = choose_scale(parts, "auto", seed)
    if not is_common:
        return task
    weak, strong = make_views(parts, "embedding")
    return replace(task, weak=weak, strong=strong, moments=(table.mean, table.std))


def measure_loss(table: Rows, rows: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """The balanced log-loss of logistic regression on columns scaled like this, out of fold."""
    labels = np.unique(labels, return_inverse=True)[1]  # of the classes that there are
    prior = np.bincount(labels) / len(labels)
    scores = np.zeros((len(labels), len(prior)))
    folds = deal_folds(labels, FOLDS, seed)
    is_alone = np.bincount(labels)[labels] < 2  # the only label of a class is always learned from
    for fold in range(FOLDS):
        fold_rows = np.flatnonzero(folds == fold)
        other_rows = np.flatnonzero((folds != fold) | is_alone)
        if len(fold_rows):
            model = Linear(table).fit(rows[other_rows], labels[other_rows], None, seed)
            scores[fold_rows] = model.log_probs(rows[fold_rows]) - np.log(prior)
    return float(compute_losses(scores, labels).mean())
