"""The default fit of `CSSTClassifier` and `csst train array`: averaged learners with one decision rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from csst.data.examples import as_rows
from csst.data.task import Task
from csst.estimation.held_out_scores import MOST_UNLABELED
from csst.estimation.reference import Reference
from csst.estimation.shift_test import compare_unlabeled, lean_on_labels
from csst.learners.catalog import describe_rows, read_learner
from csst.learners.portfolio import LabeledRows, Portfolio, fit_portfolio
from csst.maths.language import objective as read_objective
from csst.rules import FittedRule, fit_evidence
from csst.rules.cells import RowGroups
from csst.rules.deployment import is_unlabeled, note_balance, read_deployment, refuse_contradiction
from csst.rules.fit import bind
from csst.rules.groups import bind_groups, fit_groups


@dataclass
class MembersFit:
    """A fitted portfolio, its decision rule, the rows that new ones are compared with, and notes about the fit."""

    portfolio: Portfolio
    fitted: FittedRule
    reference: Reference
    notes: list[str] = field(default_factory=list)


def read_task_groups(task: Task, objective: Any) -> RowGroups | None:
    """Return the groups of the rows that judge and of the unlabeled rows; None if the task has none.

    Raises an error unless a sentence about groups comes with groups, and any other objective without.
    """
    judge = task.labeled if task.validation is None else task.validation
    groups = None
    if judge.groups is not None and task.unlabeled_groups is not None:
        groups = RowGroups(task.group_column, task.group_names, judge.groups.numpy(), task.unlabeled_groups.numpy())
    if groups is not None or read_objective(objective).column is not None:
        bind_groups(read_objective(objective), groups)
    return groups


def fit_members(
    task: Task,
    learner: Any,
    objective: Any,
    *,
    deployment_prior: Any = None,
    is_embedded: bool = False,
    rounds: int = 0,
    tau: float = 0.05,
    seed: int = 0,
    n_jobs: int | None = None,
    per_group: bool = False,
) -> MembersFit:
    """Fit the learners and the decision rule.

    Args:
        task: rows of numbers.
        learner: see `read_learner`.
        objective: a sentence, a short name or an Objective.
        deployment_prior: see `read_deployment`.
        is_embedded: whether rows are embeddings.
        rounds: rounds of self-training, see `fit_portfolio`.
        tau: the largest divergence of a pseudo-label that a round uses.
        seed: seed of the folds and the learners.
        n_jobs: learners fitted at a time.
        per_group: whether each group of rows gets a rule of its own.
    """
    labeled = LabeledRows(as_rows(task.labeled.inputs), task.labeled.labels.numpy())
    unlabeled = as_rows(task.unlabeled) if len(task.unlabeled) else labeled.rows[:0]
    validation = None
    if task.validation is not None:
        validation = LabeledRows(as_rows(task.validation.inputs), task.validation.labels.numpy())
    judge = labeled if validation is None else validation
    refuse_contradiction(objective, labeled.labels, judge.labels, task.class_names, deployment_prior)
    groups = read_task_groups(task, objective)  # refuses before anything is learned
    members = read_learner(learner, describe_rows(task, is_embedded))
    portfolio, evidence = fit_portfolio(
        members, labeled, unlabeled, validation, rounds=rounds, tau=tau, seed=seed, n_jobs=n_jobs
    )
    bound = bind(objective, evidence, task.class_names)
    reference = Reference.sample(
        labeled.rows, labeled.labels, unlabeled, evidence.unlabeled_prior, list(task.column_sizes), seed
    ).with_names(None if task.columns is None else task.columns.names)
    shift = compare_unlabeled(reference, unlabeled)
    if shift is not None and not shift.is_explained:
        evidence = lean_on_labels(evidence, shift)
        reference = reference.without_unlabeled
        groups = None if groups is None else replace(groups, unlabeled=groups.unlabeled[:0])
        deployment_prior = None if is_unlabeled(deployment_prior) else deployment_prior  # these rows say nothing
    if deployment_prior is None and (task.validation is not None or task.certifying is not None):
        deployment_prior = "labels"  # validation rows are as balanced as new rows, labels that certify a sample of them
    prior, evidence = read_deployment(deployment_prior, evidence)
    if groups is None:
        fitted_rule = fit_evidence(evidence, bound, prior, seed)
    else:
        sample = groups.sample(MOST_UNLABELED, seed)
        fitted_rule = fit_groups(evidence, bind_groups(bound, groups), sample, prior, seed, per_group=per_group)
    notes = list(fitted_rule.notes)
    balance_note = note_balance(fitted_rule.objective, fitted_rule.estimate, evidence.fractions, task.class_names)
    notes += [balance_note] if balance_note else []
    names = [name for name, count in zip(task.class_names, task.train_counts.tolist(), strict=True) if count < 2]
    if names and validation is None:
        notes.append(
            f"classes {names[:10]} have one label each, which their models have learned from, so that their expected "
            "recall is too high: label more"
        )
    return MembersFit(portfolio, fitted_rule, reference, notes)
