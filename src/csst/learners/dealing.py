"""Split the labels of a fit into labels to learn from and labels that certify its bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.data.tabular.rows import RowParts
from csst.data.task import Examples, Labeled, Task
from csst.errors import InputError
from csst.estimation.folds import CERTIFYING, deal_certification
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.fresh_labels import check_certifiable, keep_apart, keeps_unlabeled, needs_random_sample


def deal_rows(
    parts: RowParts, objective: Objective | str, deployment_prior: Any, seed: int, share: float = CERTIFYING
) -> RowParts:
    """Reserve rows that certify the bounds: the validation rows if there are any, else a share of the labeled rows.

    Args:
        parts: rows of a fit.
        objective: the objective; without a confidence, or if rows are reserved already, nothing changes.
        deployment_prior: see `csst.rules.fresh_labels.state_prior`.
        seed: seed of the split.
        share: share of the labeled rows to reserve.

    Returns:
        The parts with certifying rows and without validation rows: labels out of fold judge the learners.
    """
    goal = read_objective(objective)
    if goal.confidence is None or parts.certifying is not None:
        return parts
    goal = bind_labels(goal, parts.labels, parts.class_names)
    validation_count = None if parts.validation is None else len(parts.validation[1])
    check_certifiable(goal, parts.labels, deployment_prior, parts.class_names, validation_count)
    if parts.validation is not None:
        parts = replace(parts, validation=None, certifying=parts.validation)
    else:
        is_random = needs_random_sample(goal, deployment_prior)
        certifying_rows = deal_certification(parts.labels, share, seed, is_random)
        other_rows = np.setdiff1d(np.arange(len(parts.labels)), certifying_rows)
        pair = (parts.labeled[certifying_rows], parts.labels[certifying_rows])
        parts = replace(parts, labeled=parts.labeled[other_rows], labels=parts.labels[other_rows], certifying=pair)
    if keeps_unlabeled(goal, deployment_prior):
        learning_rows, reserved_rows = keep_apart(parts.unlabeled.shape[0], seed)
        parts = replace(parts, unlabeled=parts.unlabeled[learning_rows], kept_apart=parts.unlabeled[reserved_rows])
    return parts


def deal_task(
    task: Task, objective: Objective | str, deployment_prior: Any, seed: int, share: float = CERTIFYING
) -> Task:
    """Reserve validation examples that certify the bounds.

    Args:
        task: data of a network; if its labeled examples are its validation examples, both lose the reserved ones.
        objective: see `deal_rows`.
        deployment_prior: see `csst.rules.fresh_labels.state_prior`.
        seed: seed of the split.
        share: share of the validation examples to reserve.

    Returns:
        The task with certifying examples.
    """
    goal = read_objective(objective)
    if goal.confidence is None or task.certifying is not None:
        return task
    labels = task.validation.labels.numpy()
    goal = bind_labels(goal, task.labeled.labels.numpy(), task.class_names)
    check_certifiable(goal, labels, deployment_prior, task.class_names)
    certifying_rows = deal_certification(labels, share, seed, needs_random_sample(goal, deployment_prior))
    validation = take(task.validation, np.setdiff1d(np.arange(len(labels)), certifying_rows))
    task = replace(
        task,
        labeled=validation if task.validation is task.labeled else task.labeled,
        validation=validation,
        certifying=take(task.validation, certifying_rows),
    )
    if keeps_unlabeled(goal, deployment_prior):
        learning_rows, reserved_rows = (torch.from_numpy(rows) for rows in keep_apart(len(task.unlabeled), seed))
        task = replace(
            task,
            unlabeled=choose(task.unlabeled, learning_rows),
            kept_apart=choose(task.unlabeled, reserved_rows),
            unlabeled_truth=None if task.unlabeled_truth is None else task.unlabeled_truth[learning_rows],
        )
    return task


def bind_labels(objective: Objective, labels: np.ndarray, class_names: tuple[str, ...]) -> Objective:
    """Return the objective for these classes; the rarest among the labels are the tail."""
    counts = np.bincount(labels, minlength=len(class_names))
    if not counts.all():
        names = [name for name, count in zip(class_names, counts, strict=True) if not count]
        raise InputError(f"classes {names[:10]} have no label to learn from: label some of their rows")
    return objective.bind(len(class_names), class_names).bind_prior(torch.from_numpy(counts / counts.sum()))


def take(examples: Labeled, rows: np.ndarray) -> Labeled:
    """Return the labeled examples at these rows."""
    index = torch.from_numpy(rows)
    return Labeled(choose(examples.inputs, index), examples.labels[index])


def choose(examples: Examples, index: Tensor) -> Examples:
    """Return the examples at these indices; examples that are not a tensor are fetched when they are used."""
    return examples[index] if isinstance(examples, Tensor) else Chosen(examples, index)


class Chosen:
    """Some of the examples, fetched when they are used."""

    def __init__(self, examples: Examples, index: Tensor) -> None:
        self.examples = examples
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, indices: Tensor) -> Any:
        return self.examples[self.index[indices]]

    def prefetch(self, indices: Tensor) -> None:
        """Begin to read examples in the background, if their source can."""
        if hasattr(self.examples, "prefetch"):
            self.examples.prefetch(self.index[indices])
