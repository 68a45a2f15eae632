"""The labels of a fit dealt into those that are learned from and those that certify its bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.data.tabular.rows import RowParts
from csst.data.task import Examples, Labeled, Task
from csst.errors import InputError
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.promise import check_certifiable, keep_apart, keeps_unlabeled, needs_random_sample
from csst.statistics.folds import CERTIFYING, deal_certification


def deal_rows(
    parts: RowParts, objective: Objective | str, deployment_prior: Any, seed: int, share: float = CERTIFYING
) -> RowParts:
    """Set rows apart that certify: the validation rows where there are any, else a share of the labeled rows.

    Args:
        parts: of a fit.
        objective: with a confidence; without one, or with rows that certify already, nothing is set apart.
        deployment_prior: see `csst.rules.promise.state_prior`.
        seed: of the deal.
        share: of the labeled rows.

    Returns:
        The parts; labels out of fold judge what is learned.
    """
    read = read_objective(objective)
    if read.confidence is None or parts.certifying is not None:
        return parts
    bound = bind_labels(read, parts.labels, parts.class_names)
    brought = parts.validation
    fresh = None if brought is None else len(brought[1])
    check_certifiable(bound, parts.labels, deployment_prior, parts.class_names, fresh)
    if brought is not None:
        parts = replace(parts, validation=None, certifying=brought)
    else:
        is_random = needs_random_sample(bound, deployment_prior)
        certifying = deal_certification(parts.labels, share, seed, is_random)
        fitting = np.setdiff1d(np.arange(len(parts.labels)), certifying)
        pair = (parts.labeled[certifying], parts.labels[certifying])
        parts = replace(parts, labeled=parts.labeled[fitting], labels=parts.labels[fitting], certifying=pair)
    if keeps_unlabeled(bound, deployment_prior):
        seen, apart = keep_apart(parts.unlabeled.shape[0], seed)
        parts = replace(parts, unlabeled=parts.unlabeled[seen], kept_apart=parts.unlabeled[apart])
    return parts


def deal_task(
    task: Task, objective: Objective | str, deployment_prior: Any, seed: int, share: float = CERTIFYING
) -> Task:
    """Set validation examples apart that certify; where labeled examples are validated out of fold, some of these.

    Args:
        task: of a network.
        objective: see `deal_rows`.
        deployment_prior: see `csst.rules.promise.state_prior`.
        seed: of the deal.
        share: of the validation examples.

    Returns:
        The task.
    """
    read = read_objective(objective)
    if read.confidence is None or task.certifying is not None:
        return task
    labels = task.validation.labels.numpy()
    bound = bind_labels(read, task.labeled.labels.numpy(), task.class_names)
    check_certifiable(bound, labels, deployment_prior, task.class_names)
    certifying = deal_certification(labels, share, seed, needs_random_sample(bound, deployment_prior))
    fitting = np.setdiff1d(np.arange(len(labels)), certifying)
    rest = take(task.validation, fitting)
    task = replace(
        task,
        labeled=rest if task.validation is task.labeled else task.labeled,
        validation=rest,
        certifying=take(task.validation, certifying),
    )
    if keeps_unlabeled(bound, deployment_prior):
        seen, apart = (torch.from_numpy(rows) for rows in keep_apart(len(task.unlabeled), seed))
        truth = None if task.unlabeled_truth is None else task.unlabeled_truth[seen]
        task = replace(
            task,
            unlabeled=choose(task.unlabeled, seen),
            kept_apart=choose(task.unlabeled, apart),
            unlabeled_truth=truth,
        )
    return task


def bind_labels(objective: Objective, labels: np.ndarray, class_names: tuple[str, ...]) -> Objective:
    """The objective for these classes, the rarest of the labels being the tail."""
    counts = np.bincount(labels, minlength=len(class_names))
    if not counts.all():
        missing = [name for name, count in zip(class_names, counts, strict=True) if not count]
        raise InputError(f"classes {missing[:10]} have no label to learn from: label some of their rows")
    return objective.bind(len(class_names), class_names).bind_prior(torch.from_numpy(counts / counts.sum()))


def take(examples: Labeled, rows: np.ndarray) -> Labeled:
    """Some of labeled examples."""
    index = torch.from_numpy(rows)
    return Labeled(choose(examples.inputs, index), examples.labels[index])


def choose(examples: Examples, index: Tensor) -> Examples:
    """Some of examples: a tensor of a tensor, else fetched from where they are when asked for."""
    return examples[index] if isinstance(examples, Tensor) else Chosen(examples, index)


class Chosen:
    """Some of examples, fetched from where they are when asked for."""

    def __init__(self, examples: Examples, index: Tensor) -> None:
        self.examples = examples
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, indices: Tensor) -> Any:
        return self.examples[self.index[indices]]

    def prefetch(self, indices: Tensor) -> None:
        """Begin to read these, where the examples can."""
        if hasattr(self.examples, "prefetch"):
            self.examples.prefetch(self.index[indices])
