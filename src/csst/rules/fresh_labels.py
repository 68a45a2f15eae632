"""Labels that certify: which rows they are, and under which class balance bounds are proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from csst.rules.claims import RATIOS, Claim, read_claims
from csst.rules.deployment import name_prior

#: words for a deployment prior by which a user declares the labels a random sample of the rows where a rule is used
RANDOM_SAMPLE = ("labels", "validation", "labeled", "train")
#: unlabeled rows that are kept apart to prove a coverage
MOST_KEPT = 2000


@dataclass(frozen=True, eq=False)
class FreshLabels:
    """Rows that nothing was fitted to, with their labels.

    Args:
        probs: of the deployed model, (n, K).
        labels: class indices, (n,).
        unlabeled_probs: of unlabeled rows kept apart that are the rows where the rule is used, (m, K); None without.
        groups: groups of the rows as numbers, (n,), for a sentence about groups.
    """

    probs: np.ndarray
    labels: np.ndarray
    unlabeled_probs: np.ndarray | None = None
    groups: np.ndarray | None = None


def state_prior(deployment_prior: Any, bounds: Sequence[Claim], classes: int) -> np.ndarray | None:
    """The class balance under which bounds are proved; None for labels that are a random sample.

    Args:
        deployment_prior: see `csst.rules.fit_rule`; None, or one of `RANDOM_SAMPLE`, declares the labels a random
            sample of the rows where the rule is used.
        bounds: of the sentence.
        classes: K.

    Returns:
        pi, (K,), or None.
    """
    if deployment_prior is None or (isinstance(deployment_prior, str) and deployment_prior in RANDOM_SAMPLE):
        return None
    for bound in bounds:
        if bound.group is not None and bound.reads_balance:
            raise InputError(
                f"{bound.text} is proved by a random sample of the rows where the rule is used, whatever their balance "
                "in each group: leave the deployment prior out"
            )
    if isinstance(deployment_prior, str) and deployment_prior == "unlabeled":
        for bound in bounds:
            if bound.metric in (*RATIOS, "accuracy"):
                raise InputError(
                    f"{bound.text} cannot be certified under a class balance that is only estimated from unlabeled "
                    "rows: give deployment_prior as numbers, one per class"
                )
        return None
    placeholder = np.full(classes, 1 / classes)
    return name_prior(deployment_prior, placeholder, placeholder, None)


def needs_random_sample(objective: Objective, deployment_prior: Any) -> bool:
    """Whether a bound is about the balance of labels that are declared a random sample.

    Args:
        objective: bound to the classes.
        deployment_prior: see `state_prior`.

    Returns:
        Whether certification labels must be dealt without regard to their class.
    """
    bounds = read_claims(objective)
    is_declared = deployment_prior is None or (isinstance(deployment_prior, str) and deployment_prior in RANDOM_SAMPLE)
    return is_declared and any(bound.reads_balance for bound in bounds)


def check_certifiable(
    objective: Objective,
    labels: np.ndarray,
    deployment_prior: Any,
    class_names: Sequence[str],
    fresh: int | None = None,
    groups: np.ndarray | None = None,
) -> None:
    """Refuse what labels cannot certify, before anything is fitted.

    Args:
        objective: bound to the classes, with a confidence.
        labels: class indices of all labels, (n,).
        deployment_prior: see `state_prior`.
        class_names: K names.
        fresh: how many labels of their own certify; None if they are dealt from `labels`.
        groups: groups of the rows, (n,), for a sentence about groups.
    """
    bounds = read_claims(objective)
    state_prior(deployment_prior, bounds, len(class_names))
    if fresh is not None:
        return
    for bound in bounds:
        part = labels if bound.group is None or groups is None else labels[groups == bound.group]
        counts = np.bincount(part, minlength=len(class_names))
        for k in bound.classes:
            if counts[k] < 2:
                raise InputError(
                    f"{bound.text} cannot be certified: {class_names[k]!r} has {counts[k]} label"
                    f"{'s' if counts[k] != 1 else ''}, and at least 2 are needed, one to learn from and one to "
                    "certify: label more rows of it"
                )


def find_strata(objective: Objective, labels: np.ndarray, groups: np.ndarray | None, classes: int) -> np.ndarray:
    """Within which parts labels are dealt into those that fit and those that certify.

    Args:
        objective: bound to the classes and groups.
        labels: class indices, (n,).
        groups: groups of the rows, (n,); None without groups.
        classes: K.

    Returns:
        The cell of each row if all bounds are about single groups, otherwise its class: within a class, a deal by group
        would be no random choice of its rows.
    """
    if groups is None or any(bound.group is None for bound in read_claims(objective)):
        return labels
    return groups * classes + labels


def keeps_unlabeled(objective: Objective, deployment_prior: Any) -> bool:
    """Whether a bound on coverage is proved by unlabeled rows, some of which are then kept apart.

    Args:
        objective: bound to the classes.
        deployment_prior: see `state_prior`; "unlabeled" declares them the rows where the rule is used.

    Returns:
        Whether some are.
    """
    is_declared = isinstance(deployment_prior, str) and deployment_prior == "unlabeled"
    return is_declared and any(bound.metric == "coverage" for bound in read_claims(objective))


def keep_apart(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of unlabeled rows that are learned from, and of a fifth, at most 2,000, that are kept apart.

    Args:
        rows: how many there are.
        seed: of the choice.

    Returns:
        Both parts, sorted.
    """
    order = np.random.default_rng(seed).permutation(rows)
    number = min(MOST_KEPT, rows // 5)
    return np.sort(order[number:]), np.sort(order[:number])


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
