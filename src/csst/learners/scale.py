"""Choose between one deviation per column and a common one for columns that share a unit (embeddings, pixels).

Divided by its own deviation, a component that hardly varies counts as much as the first: on principal components of
images a network then learns noise. If the columns of a table have different units, the opposite is true. The labels
decide: logistic regression is fitted both ways and compared by its balanced log-loss out of fold.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from csst.data.examples import as_rows
from csst.data.tabular.tables import statistics
from csst.data.task import Task
from csst.estimation.folds import deal_folds
from csst.learners.linear import Linear
from csst.learners.portfolio import compute_losses
from csst.learners.protocol import Rows
from csst.models.table import usable_deviation

FOLDS = 3
#: labeled rows used, at most
ROWS = 2000


def choose_scale(task: Task, scale: str, seed: int) -> tuple[Rows, bool]:
    """Return the standardization of the columns, and whether one deviation is used for all columns of numbers.

    Args:
        task: rows of numbers.
        scale: "column", "common", or "auto", which lets the labels decide.
        seed: seed of the folds.
    """
    mean, std = statistics(task.measured)
    table = Rows(mean, usable_deviation(mean, std), task.column_sizes)
    common_table = table.with_common_scale
    is_common = scale == "common"
    if scale == "auto":
        sample = task.labeled.part(np.random.default_rng(seed).permutation(len(task.labeled))[:ROWS])
        rows = as_rows(sample.inputs)
        labels = sample.labels.numpy()
        is_common = measure_loss(common_table, rows, labels, seed) < measure_loss(table, rows, labels, seed)
    return (common_table if is_common else table), is_common


def scale_task(task: Task, seed: int) -> Task:
    """Return the task of a table with the standardization and the views that suit its labels.

    Args:
        task: rows of numbers, standardized column by column.
        seed: seed of the folds.
    """
    table, is_common = choose_scale(task, "auto", seed)
    return replace(task.with_views("embedding"), moments=(table.mean, table.std)) if is_common else task


def measure_loss(table: Rows, rows: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """Return the balanced log-loss of logistic regression on columns scaled like this, out of fold."""
    labels = np.unique(labels, return_inverse=True)[1]  # a sample may lack a class
    prior = np.bincount(labels) / len(labels)
    scores = np.zeros((len(labels), len(prior)))
    folds = deal_folds(labels, FOLDS, seed)
    is_only_label = np.bincount(labels)[labels] < 2  # the only label of a class is always learned from
    for fold in range(FOLDS):
        fold_rows = np.flatnonzero(folds == fold)
        other_rows = np.flatnonzero((folds != fold) | is_only_label)
        if len(fold_rows):
            model = Linear(table).fit(rows[other_rows], labels[other_rows], seed)
            scores[fold_rows] = model.log_probs(rows[fold_rows]) - np.log(prior)
    return float(compute_losses(scores, labels).mean())
