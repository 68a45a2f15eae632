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
from csst.estimation.held_out_scores import check_labels, check_probs
from csst.maths.confusion import refuse_empty_classes
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.cells import RowGroups
from csst.rules.claims import RATIOS, Claim, read_claims
from csst.rules.deployment import is_unlabeled, name_prior
from csst.rules.groups import bind_groups

#: words for a deployment prior by which a user declares the labels a random sample of the rows where a rule is used
RANDOM_SAMPLE = ("labels", "validation", "labeled", "train")
#: unlabeled rows that are kept apart to prove a coverage
MOST_KEPT = 2000


@dataclass(frozen=True, eq=False)
class FreshLabels:
    """Rows that nothing was fitted to, with their labels.

    Args:
        probs: probabilities by the deployed model, (n, K).
        labels: class indices, (n,).
        unlabeled_probs: probabilities of unlabeled rows from where the rule is used, kept apart, (m, K); None without.
        groups: groups of the rows as numbers, (n,), for a sentence about groups.
    """

    probs: np.ndarray
    labels: np.ndarray
    unlabeled_probs: np.ndarray | None = None
    groups: np.ndarray | None = None


def state_prior(deployment_prior: Any, bounds: Sequence[Claim], classes: int) -> np.ndarray | None:
    """Return the class balance under which bounds are proved; None for labels that are a random sample.

    Args:
        deployment_prior: see `csst.rules.fit_rule`; None, or one of `RANDOM_SAMPLE`, declares the labels a random
            sample of the rows where the rule is used.
        bounds: bounds of the sentence.
        classes: K.

    Returns:
        pi, (K,), or None.
    """
    if declares_sample(deployment_prior):
        return None
    for bound in bounds:
        if bound.group is not None and bound.reads_balance:
            raise InputError(
                f"{bound.text} is proved by a random sample of the rows where the rule is used, whatever their balance "
                "in each group: leave the deployment prior out"
            )
    if is_unlabeled(deployment_prior):
        for bound in bounds:
            if bound.metric in (*RATIOS, "accuracy"):
                raise InputError(
                    f"{bound.text} cannot be certified under a class balance that is only estimated from unlabeled "
                    "rows: give deployment_prior as numbers, one per class"
                )
        return None
    placeholder = np.full(classes, 1 / classes)
    return name_prior(deployment_prior, placeholder, placeholder, None)


def declares_sample(deployment_prior: Any) -> bool:
    """Return whether a deployment prior declares labels a random sample of the rows where the rule is used."""
    return deployment_prior is None or (isinstance(deployment_prior, str) and deployment_prior in RANDOM_SAMPLE)


def deal_labels(
    objective: Objective,
    labels: np.ndarray,
    deployment_prior: Any,
    class_names: Sequence[str],
    groups: np.ndarray | None,
    share: float,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Deal labels into those that fit and those that certify; refuse what labels cannot certify.

    They are dealt within classes, or without regard to their class where a bound is about the balance of labels that
    are declared a random sample. If all bounds are about single groups, they are dealt within each class of each group:
    otherwise a deal by group would be no random choice of the rows of a class.

    Args:
        objective: bound to the classes and groups, with a confidence.
        labels: class indices, (n,).
        deployment_prior: see `state_prior`.
        class_names: K names.
        groups: groups of the rows, (n,); None without groups.
        share: part of the labels that certify.
        seed: seed of the deal.

    Returns:
        Indices of both parts, sorted.
    """
    bounds = read_claims(objective)
    state_prior(deployment_prior, bounds, len(class_names))
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
    strata = labels
    if groups is not None and all(bound.group is not None for bound in bounds):
        strata = groups * len(class_names) + labels
    is_random = declares_sample(deployment_prior) and any(bound.reads_balance for bound in bounds)
    certifying_rows = deal_certification(strata, share, seed, is_random)
    return np.setdiff1d(np.arange(len(labels)), certifying_rows), certifying_rows


@dataclass(frozen=True, eq=False)
class RuleRows:
    """The rows that `csst.rules.fit_rule` is given, which describes them, and those that certify what it fits."""

    probs: Any
    labels: Any
    unlabeled_probs: Any
    train_prior: Any
    groups: RowGroups | None
    fresh: FreshLabels | None = None


def deal_rows(
    objective: Objective, rows: RuleRows, deployment_prior: Any, class_names: Sequence[str] | None, seed: int
) -> tuple[Objective, RuleRows]:
    """Deal rows into those that fit a rule and those that certify it.

    Args:
        objective: a sentence with a confidence.
        rows: all rows, scored by the model that is used.
        deployment_prior: see `state_prior`.
        class_names: K names; None for none.
        seed: seed of the deal.

    Returns:
        The objective, bound to all labels, and the rows.
    """
    probs = check_probs(rows.probs)
    classes = probs.shape[1]
    labels = check_labels(rows.labels, len(probs), classes)
    bound = bind_labels(objective, labels, classes, class_names)
    groups = rows.groups
    places = None
    if groups is not None:
        bound = bind_groups(bound, groups)
        places = groups.labeled
    names = list_names(class_names, classes)
    fitting_rows, certifying_rows = deal_labels(bound, labels, deployment_prior, names, places, CERTIFYING, seed)
    fresh_labels = FreshLabels(probs[certifying_rows], labels[certifying_rows])
    if groups is not None:
        fresh_labels = replace(fresh_labels, groups=groups.labeled[certifying_rows])
        groups = replace(groups, labeled=groups.labeled[fitting_rows])
    train_prior = rows.train_prior
    if isinstance(train_prior, str) and train_prior == "labels":
        train_prior = np.bincount(labels, minlength=classes) / len(labels)
    unlabeled_probs = rows.unlabeled_probs
    parts = None if unlabeled_probs is None else keep_apart(bound, deployment_prior, len(unlabeled_probs), seed)
    if parts is not None:
        unlabeled = check_probs(unlabeled_probs, classes)
        unlabeled_probs = unlabeled[parts[0]]
        fresh_labels = replace(fresh_labels, unlabeled_probs=unlabeled[parts[1]])
    return bound, RuleRows(
        probs[fitting_rows], labels[fitting_rows], unlabeled_probs, train_prior, groups, fresh_labels
    )


def list_names(class_names: Sequence[str] | None, classes: int) -> tuple[str, ...]:
    """Return the names of K classes; their indices if they have none."""
    return tuple(map(str, range(classes))) if class_names is None else tuple(class_names)


def keep_apart(
    objective: Objective, deployment_prior: Any, rows: int, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return indices of unlabeled rows to learn from, and of a fifth, at most 2,000, that prove a bound on coverage.

    Args:
        objective: bound to the classes.
        deployment_prior: see `state_prior`; "unlabeled" declares them the rows where the rule is used.
        rows: how many there are.
        seed: seed of the choice.

    Returns:
        Both parts, sorted; None if unlabeled rows prove nothing.
    """
    if not is_unlabeled(deployment_prior) or all(bound.metric != "coverage" for bound in read_claims(objective)):
        return None
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
    """Return the task with examples reserved that certify the bounds.

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
    goal = bind_labels(goal, task.labeled.labels.numpy(), task.classes, task.class_names)
    if isinstance(goal, Sentence) and goal.column is not None:
        goal = goal.bind_row_groups(task.group_names)
    if task.validation is not None and not cuts_validation:
        state_prior(deployment_prior, read_claims(goal), task.classes)
        task = replace(task, validation=None, certifying=task.validation)
    else:
        examples = task.require("validation") if cuts_validation else task.labeled
        labels = examples.labels.numpy()
        groups = None if examples.groups is None else examples.groups.numpy()
        fitting_rows, certifying_rows = deal_labels(
            goal, labels, deployment_prior, task.class_names, groups, share, seed
        )
        task = replace(task, certifying=examples.part(certifying_rows))
        if cuts_validation:
            task = replace(task, validation=examples.part(fitting_rows))
        else:
            task = replace(task, labeled=examples.part(fitting_rows))
    parts = keep_apart(goal, deployment_prior, len(task.unlabeled), seed)
    if parts is not None:
        learning_rows, reserved_rows = parts
        truth = task.unlabeled_truth
        task = replace(
            task,
            unlabeled=choose(task.unlabeled, learning_rows),
            kept_apart=choose(task.unlabeled, reserved_rows),
            unlabeled_truth=None if truth is None else truth[torch.from_numpy(learning_rows)],
        )
    return task


def bind_labels(objective: Objective, labels: np.ndarray, classes: int, class_names: Sequence[str] | None) -> Objective:
    """Return the objective for these classes; the rarest among the labels are the tail."""
    counts = torch.bincount(torch.from_numpy(labels), minlength=classes).double()
    refuse_empty_classes(counts, class_names, "a decision rule", "the labeled rows")
    return objective.bind(classes, class_names).bind_prior(counts / counts.sum())
