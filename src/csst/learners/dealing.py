"""Split the labels of a fit into labels to learn from and labels that certify its bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from csst.data.examples import choose
from csst.data.task import Task
from csst.errors import InputError
from csst.estimation.folds import CERTIFYING, deal_certification
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.fresh_labels import check_certifiable, find_strata, keep_apart, keeps_unlabeled, needs_random_sample


def deal_certifying(
    task: Task,
    objective: Objective | str,
    deployment_prior: Any,
    seed: int,
    share: float = CERTIFYING,
    cuts_validation: bool = False,
) -> Task:
    """Reserve examples that certify the bounds.

    A learner that judges labels out of fold needs no validation examples: all of them certify, or else a share of the
    labeled examples. One that is steered by validation examples (`cuts_validation`) shares them.

    Args:
        task: data of a fit.
        objective: the objective; without a confidence, or if examples are reserved already, nothing changes.
        deployment_prior: see `csst.rules.fresh_labels.state_prior`.
        seed: seed of the split.
        share: share of the labeled or validation examples to reserve.
        cuts_validation: whether only a share of the validation examples certifies, and the others stay.

    Returns:
        The task with certifying examples.
    """
    goal = read_objective(objective)
    if goal.confidence is None or task.certifying is not None:
        return task
    goal = bind_labels(goal, task.labeled.labels.numpy(), task.class_names)
    if isinstance(goal, Sentence) and goal.column is not None:
        goal = goal.bind_row_groups(task.group_names)
    if task.validation is not None and not cuts_validation:
        check_certifiable(goal, task.labeled.labels.numpy(), deployment_prior, task.class_names, len(task.validation))
        task = replace(task, validation=None, certifying=task.validation)
    else:
        examples = task.require("validation") if cuts_validation else task.labeled
        labels = examples.labels.numpy()
        groups = None if examples.groups is None else examples.groups.numpy()
        check_certifiable(goal, labels, deployment_prior, task.class_names, groups=groups)
        strata = find_strata(goal, labels, groups, task.classes)
        rows = deal_certification(strata, share, seed, needs_random_sample(goal, deployment_prior))
        other_rows = np.setdiff1d(np.arange(len(labels)), rows)
        task = replace(task, certifying=examples.part(rows))
        if cuts_validation:
            task = replace(task, validation=examples.part(other_rows))
        else:
            task = replace(task, labeled=examples.part(other_rows))
    if keeps_unlabeled(goal, deployment_prior):
        learning_rows, reserved_rows = keep_apart(len(task.unlabeled), seed)
        truth = task.unlabeled_truth
        task = replace(
            task,
            unlabeled=choose(task.unlabeled, learning_rows),
            kept_apart=choose(task.unlabeled, reserved_rows),
            unlabeled_truth=None if truth is None else truth[torch.from_numpy(learning_rows)],
        )
    return task


def bind_labels(objective: Objective, labels: np.ndarray, class_names: tuple[str, ...]) -> Objective:
    """Return the objective for these classes; the rarest among the labels are the tail."""
    counts = np.bincount(labels, minlength=len(class_names))
    if not counts.all():
        names = [name for name, count in zip(class_names, counts, strict=True) if not count]
        raise InputError(f"classes {names[:10]} have no label to learn from: label some of their rows")
    return objective.bind(len(class_names), class_names).bind_prior(torch.from_numpy(counts / counts.sum()))
