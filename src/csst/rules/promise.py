"""A rule whose bounds are promised: chosen from a path by labels that nothing else was fitted to.

certified = promise(fitted, FreshLabels(probs, labels), "labels")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from csst.estimation.class_rates import combine_rates, count_labels, decide_rates
from csst.estimation.folds import CERTIFYING, deal_certification
from csst.estimation.held_out_scores import check_labels, check_probs
from csst.maths.confusion import Confusion, as_float64, refuse_empty_classes
from csst.maths.language import Sentence
from csst.maths.objectives import Objective
from csst.rules.cells import RowGroups
from csst.rules.certificates import draw_unluckily, joint_p_value, p_value, read_range
from csst.rules.certified import BoundResult, Certificate, measure_bound, price_in_labels
from csst.rules.claims import RATIOS, Claim, read_claims
from csst.rules.fit import FittedRule, find_doubts, fit_rule
from csst.rules.fresh_labels import (
    FreshLabels,
    check_certifiable,
    find_strata,
    keep_apart,
    keeps_unlabeled,
    needs_random_sample,
    state_prior,
)
from csst.rules.groups import bind_groups
from csst.rules.path import PathRule, count_passing, make_path
from csst.rules.rule import DecisionRule, Rule
from csst.rules.threads import use_one_thread


@use_one_thread
def promise(fitted: FittedRule, fresh: FreshLabels, deployment_prior: Any, class_names: Sequence[str]) -> FittedRule:
    """Return the boldest rule of a path that fresh labels certify; the rule itself, not certified, if there is none.

    Args:
        fitted: the rule by the labels of the fit, whose objective states a confidence.
        fresh: labels that nothing was fitted to.
        deployment_prior: see `state_prior`.
        class_names: for sentences.

    Returns:
        The rule with its certificate.
    """
    if fitted.groups is not None:
        # It builds on this module.
        from csst.rules.group_promise import promise_groups

        return promise_groups(fitted, fresh, deployment_prior, class_names)
    objective = fitted.objective
    evidence = fitted.evidence
    assert objective.confidence is not None
    delta = 1 - objective.confidence
    bounds = read_claims(objective)
    prior = state_prior(deployment_prior, bounds, evidence.classes)
    probs = check_probs(fresh.probs, evidence.classes)
    labels = check_labels(fresh.labels, len(probs), evidence.classes)
    rows = np.bincount(labels, minlength=evidence.classes)
    deployment = fitted.estimate.confusion.prior.numpy()
    unlabeled_rows = 0 if fresh.unlabeled_probs is None else len(fresh.unlabeled_probs)
    rules = make_path(evidence, objective, deployment)
    # How many labels of each class certify is known where they are dealt within classes; of a random sample it is part
    # of what is tested, and the path must not depend on it.
    is_sample = prior is None and any(bound.reads_balance for bound in bounds)
    planned_rows = len(labels) * deployment if is_sample else rows
    hopeful_rules = drop_hopeless(rules, bounds, planned_rows, prior, delta, unlabeled_rows)
    path = choose_start(hopeful_rules, bounds, planned_rows, prior, unlabeled_rows)

    def count(rule: Rule) -> np.ndarray:
        return count_labels(labels, rule.predict(probs).numpy(), evidence.classes)

    def measure_p(place: PathRule) -> float:
        rule = make_trial(fitted, place)
        return float(joint_p_value(bounds, count(rule), prior, count_predictions(rule, fresh)))

    passes = count_passing(path, measure_p, delta)
    price = ""
    if passes:
        boldest = path[passes - 1]
        result = adopt(fitted, boldest, count(make_trial(fitted, boldest)))
    else:
        expectations = [_pool_fresh(fitted, rule, probs, labels) for rule in path or rules]
        price = price_in_labels(bounds, expectations, rows, prior, delta, class_names)
        result = replace(fitted, notes=(*fitted.notes, price))
    counts = count(result.rule)
    predictions = count_predictions(result.rule, fresh)
    results = tuple(
        _report(bound, result, float(p_value(bound, counts, prior, predictions)), counts, prior, delta)
        for bound in bounds
    )
    certificate = Certificate(
        objective.confidence,
        passes > 0,
        results,
        tuple(rows.tolist()),
        len(path),
        passes,
        describe_basis(rows, prior, bounds, unlabeled_rows),
        price,
    )
    return replace(result, certificate=certificate)


def make_trial(fitted: FittedRule, place: PathRule) -> DecisionRule:
    """Return a rule of the path on the model's probabilities."""
    return place.candidate.as_rule(fitted.evidence.train_prior, fitted.rule.undo)


def adopt(fitted: FittedRule, place: PathRule, counts: np.ndarray) -> FittedRule:
    """Return the fit with a rule of the path in use.

    Labels of the fit chose the rule and would flatter it: fresh ones and unlabeled rows say what to expect.

    Args:
        fitted: by the labels of the fit.
        place: the rule.
        counts: of fresh labels under this rule, (K, K).
    """
    evidence = fitted.evidence
    soft_decisions = place.candidate.decide(evidence.soft_scores)
    soft_counts = decide_rates(evidence.soft_posterior, soft_decisions, evidence.classes)
    # A class without a fresh label keeps the counts that it had.
    known_counts = np.where(counts.sum(1, keepdims=True) > 0, counts, fitted.estimate.counts)
    return replace(
        fitted,
        rule=make_trial(fitted, place),
        chosen=place.candidate.name,
        estimate=combine_rates(evidence, known_counts, soft_counts, fitted.estimate.confusion.prior.numpy()),
        notes=find_doubts(evidence),
    )


def fit_promised(
    probs: Any,
    labels: Any,
    objective: Objective,
    unlabeled_probs: Any = None,
    *,
    train_prior: Any,
    deployment_prior: Any,
    class_names: Sequence[str] | None,
    seed: int,
    groups: RowGroups | None = None,
    **options: Any,
) -> FittedRule:
    """`csst.rules.fit_rule` with a confidence: labels are dealt into those that fit and those that certify.

    Args:
        probs: of labeled rows, by the model that is used, (n, K).
        labels: class indices, (n,).
        objective: a sentence with a confidence.
        unlabeled_probs: of rows without a label, (m, K).
        train_prior: see `fit_rule`.
        deployment_prior: see `fit_rule`.
        class_names: see `fit_rule`.
        seed: see `fit_rule`.
        groups: see `fit_rule`.
        **options: see `fit_rule`.

    Returns:
        The rule with its certificate.
    """
    values = check_probs(probs)
    classes = values.shape[1]
    truth = check_labels(labels, len(values), classes)
    names = [str(k) for k in range(classes)] if class_names is None else list(class_names)
    counts = np.bincount(truth, minlength=classes)
    refuse_empty_classes(as_float64(counts, "labels"), class_names, "a decision rule", "the labeled rows")
    bound = objective.bind(classes, class_names).bind_prior(torch.from_numpy(counts / counts.sum()))
    if groups is not None:
        bound = bind_groups(bound, groups)
    places = None if groups is None else groups.labeled
    check_certifiable(bound, truth, deployment_prior, names, groups=places)
    strata = find_strata(bound, truth, places, classes)
    certifying = deal_certification(strata, CERTIFYING, seed, needs_random_sample(bound, deployment_prior))
    fitting_labels = np.setdiff1d(np.arange(len(truth)), certifying)
    if isinstance(train_prior, str) and train_prior == "labels":
        train_prior = counts / counts.sum()
    unlabeled_proofs = None
    if unlabeled_probs is not None and keeps_unlabeled(bound, deployment_prior):
        learning_rows, certifying_rows = keep_apart(len(unlabeled_probs), seed)
        unlabeled = check_probs(unlabeled_probs, classes)
        unlabeled_probs = unlabeled[learning_rows]
        unlabeled_proofs = unlabeled[certifying_rows]
    assert isinstance(bound, Sentence)  # only sentences have a confidence
    plain_sentence = replace(bound, confidence=None)
    fit = fit_rule(
        values[fitting_labels],
        truth[fitting_labels],
        plain_sentence,
        unlabeled_probs,
        train_prior=train_prior,
        deployment_prior=deployment_prior,
        class_names=class_names,
        seed=seed,
        groups=None if groups is None else replace(groups, labeled=groups.labeled[fitting_labels]),
        **options,
    )
    stated_fit = state_confidence(fit, bound)
    fresh_groups = None if groups is None else groups.labeled[certifying]
    fresh_labels = FreshLabels(values[certifying], truth[certifying], unlabeled_proofs, fresh_groups)
    return promise(stated_fit, fresh_labels, deployment_prior, names)


def state_confidence(fitted: FittedRule, sentence: Sentence) -> FittedRule:
    """Return a fit of a sentence without its confidence as one of the sentence itself."""
    if fitted.groups is None:
        return replace(fitted, objective=sentence)
    objective = replace(fitted.groups.objective, sentence=sentence)
    return replace(fitted, objective=sentence.ungrouped, groups=replace(fitted.groups, objective=objective))


def drop_hopeless(
    path: list[PathRule],
    bounds: Sequence[Claim],
    rows: np.ndarray,
    prior: np.ndarray | None,
    delta: float,
    kept: int = 0,
) -> list[PathRule]:
    """The path without the rules at its cautious end that could not pass even if they made no mistake.

    A rule of which few predictions are expected cannot prove a precision, however right they are; nor can any rule a
    recall of a class with few labels.

    Args:
        path: from cautious to bold.
        bounds: of the sentence.
        rows: fresh labels of every class, (K,), which is all that may be known of them.
        prior: see `csst.rules.certificates.p_value`.
        delta: 1 - confidence.
        kept: unlabeled rows kept apart.

    Returns:
        The rest of the path.
    """
    for place, rule in enumerate(path):
        confusion = rule.estimate.confusion
        mean_counts = rows[:, None] * confusion.rates.numpy()
        predictions = kept * confusion.coverage.numpy() if kept else None
        perfect = [p_value(bound, without_mistakes(bound, mean_counts), prior, predictions) for bound in bounds]
        if max(map(float, perfect)) <= delta:
            return path[place:]
    return []


def choose_start(
    path: list[PathRule], bounds: Sequence[Claim], rows: np.ndarray, prior: np.ndarray | None, kept: int = 0
) -> list[PathRule]:
    """The path from the rule on that is most likely to pass, by what is expected of it.

    The most cautious rule is not: with few predictions, one mistake ends the path at its first rule.

    Args:
        path: from cautious to bold.
        bounds: of the sentence.
        rows: fresh labels of every class, (K,).
        prior: see `csst.rules.certificates.p_value`.
        kept: unlabeled rows kept apart.

    Returns:
        The rest of the path.
    """
    if not path:
        return []
    there = np.maximum(rows, 1)
    chances = []
    for rule in path:
        confusion = rule.estimate.confusion
        predictions = kept * confusion.coverage.numpy() if kept else None
        rates = confusion.rates.numpy()
        tables = [draw_unluckily(bound, rates, there, prior) for bound in bounds]
        chances.append(
            max(float(p_value(bound, table, prior, predictions)) for bound, table in zip(bounds, tables, strict=True))
        )
    return path[int(np.argmin(chances)) :]


def without_mistakes(bound: Claim, expected: np.ndarray) -> np.ndarray:
    """The expected counts as they would be if no label spoke against the bound, (K, K)."""
    if bound.metric in ("recall", "accuracy"):
        return np.diag(expected.sum(1)) if bound.is_lower else expected * (1 - np.eye(len(expected)))
    if bound.metric == "coverage" or not bound.is_lower:
        return expected
    perfect = expected.copy()
    k = bound.classes[0]
    is_wrong = np.arange(len(expected)) != k
    other_class = int(np.flatnonzero(is_wrong)[0])
    perfect[is_wrong, other_class] += perfect[is_wrong, k]
    perfect[is_wrong, k] = 0
    return perfect


def _pool_fresh(fitted: FittedRule, rule: PathRule, probs: np.ndarray, labels: np.ndarray) -> Confusion:
    """What is expected of a rule once the fresh labels have been looked at, too: for a price, not for a test."""
    counts = count_labels(labels, make_trial(fitted, rule).predict(probs).numpy(), fitted.evidence.classes)
    confusion = rule.estimate.confusion
    pooled_counts = rule.estimate.n[:, None] * confusion.rates.numpy() + counts
    return Confusion(torch.from_numpy(pooled_counts / pooled_counts.sum(1, keepdims=True)), confusion.prior)


def count_predictions(rule: Rule, fresh: FreshLabels) -> np.ndarray | None:
    """Return how many of the unlabeled rows kept apart get each class, (K,); None if there are none."""
    if fresh.unlabeled_probs is None:
        return None
    return np.bincount(rule.predict(fresh.unlabeled_probs).numpy(), minlength=rule.classes).astype(float)


def _report(
    bound: Claim, fitted: FittedRule, p: float, counts: np.ndarray, prior: np.ndarray | None, delta: float
) -> BoundResult:
    balance = None
    if prior is not None and bound.metric in RATIOS:
        low, high = read_range(bound, counts, prior, delta)
        balance = None if np.isnan(low) else (low, high)
    return BoundResult(bound.text, bound.value, measure_bound(bound, fitted.estimate.confusion), p, balance)


def describe_basis(rows: np.ndarray, prior: np.ndarray | None, bounds: Sequence[Claim], kept: int) -> str:
    draw = "each a random row of its class" + (" and group" if any(bound.group is not None for bound in bounds) else "")
    if any(bound.reads_balance for bound in bounds):
        draw = "a random sample of the rows where it is used" if prior is None else f"{draw}, at the stated balance"
    if kept:
        return f"by {int(rows.sum()):,} labels and {kept:,} unlabeled rows that nothing was fitted to, {draw}"
    return f"by {int(rows.sum()):,} labels that nothing was fitted to, {draw}"
