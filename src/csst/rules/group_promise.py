"""A rule for groups of rows whose bounds are promised, as `csst.rules.promise` promises those of classes.

A bound "by region" is a bound on each group, and all of them must be proved, each by the fresh labels of its group:
within a group they are a random sample of its rows (for recall, of its rows of the class), so that the tests for
classes hold there as they are, and no correction for the number of groups is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from csst.estimation.class_rates import combine_rates, count_labels, decide_rates
from csst.estimation.held_out_scores import check_labels, check_probs
from csst.maths.confusion import Confusion
from csst.rules.cells import Cells, make_cells
from csst.rules.certificates import draw_unluckily, multiply_labels, p_value
from csst.rules.certified import BoundResult, Certificate, measure_bound, price_in_labels
from csst.rules.claims import Claim, read_claims
from csst.rules.fit import FittedRule, find_doubts
from csst.rules.fresh_labels import FreshLabels, state_prior
from csst.rules.groups import GroupEstimate, make_rule, merge_groups
from csst.rules.path import PathRule, count_passing, make_path
from csst.rules.promise import describe_basis, without_mistakes
from csst.rules.rule import GroupedRule, Rule


def promise_groups(
    fitted: FittedRule, fresh: FreshLabels, deployment_prior: Any, class_names: Sequence[str]
) -> FittedRule:
    """Return the boldest rule of a path that fresh labels certify in every group; the rule itself if there is none.

    Args:
        fitted: the rule for groups by the labels of the fit, whose sentence states a confidence.
        fresh: labels that nothing was fitted to, with the groups of their rows.
        deployment_prior: see `csst.rules.fresh_labels.state_prior`.
        class_names: for sentences.

    Returns:
        The rule with its certificate.
    """
    groups = fitted.groups
    assert groups is not None
    places = fresh.groups
    assert places is not None
    sentence = groups.sentence
    assert sentence.confidence is not None
    delta = 1 - sentence.confidence
    bounds = read_claims(sentence)
    classes = fitted.evidence.classes
    state_prior(deployment_prior, bounds, classes)  # refuses bounds that need another class balance
    probs = check_probs(fresh.probs, classes)
    labels = check_labels(fresh.labels, len(probs), classes)
    prior = fitted.estimate.confusion.prior.numpy()
    cells = make_cells(fitted.evidence, groups.groups, prior, not groups.is_per_group)
    shape = cells.prior.shape
    fresh_cells = places * classes + labels
    rows = np.bincount(fresh_cells, minlength=cells.prior.size).reshape(shape)
    is_sample = any(bound.reads_balance for bound in bounds)
    planned_rows = len(labels) * cells.prior if is_sample else rows
    rules = make_path(cells.scores, groups.objective, cells.prior.ravel())
    path = choose_path(rules, bounds, planned_rows, cells.prior, delta)
    names = np.array(groups.groups.names)[places]

    def count(rule: Rule) -> np.ndarray:
        answers = rule.predict(probs, names) if isinstance(rule, GroupedRule) else rule.predict(probs)
        return count_labels(fresh_cells, places * classes + answers.numpy(), cells.prior.size)

    def make_trial(place: PathRule) -> Rule:
        rule = place.candidate.as_rule(cells.scores.train_prior)
        name = place.candidate.name
        return make_rule(cells, rule, name, fitted.evidence, groups.groups, prior, fitted.rule.undo)

    passes = count_passing(path, lambda place: measure_worst_p(bounds, count(make_trial(place)), shape), delta)
    price = ""
    if passes:
        boldest = path[passes - 1]
        trial = make_trial(boldest)
        result = adopt(fitted, trial, boldest, count(trial), cells)
    else:
        price = price_groups(bounds, path or rules, rows, cells.prior, delta, class_names)
        result = replace(fitted, notes=(*fitted.notes, price))
    table = count(result.rule)
    assert result.groups is not None
    estimate = result.groups.estimate
    confusions = [take_part(bound, estimate.confusion.rates.numpy(), cells.prior) for bound in bounds]
    results = tuple(
        BoundResult(
            bound.text,
            bound.value,
            measure_bound(bound, confusion),
            float(p_value(bound, take_counts(bound, table, shape), None, None)),
        )
        for bound, confusion in zip(bounds, confusions, strict=True)
    )
    certificate = Certificate(
        sentence.confidence,
        passes > 0,
        results,
        tuple(rows.sum(0).tolist()),
        len(path),
        passes,
        describe_basis(rows.sum(0), None, bounds, 0),
        price,
    )
    return replace(result, certificate=certificate)


def adopt(fitted: FittedRule, rule: Rule, place: PathRule, counts: np.ndarray, cells: Cells) -> FittedRule:
    """Return the fit with a rule of the path in use, and its rates of cells.

    Args:
        fitted: by the labels of the fit.
        rule: the rule, on the model's probabilities.
        place: the same on the path.
        counts: of fresh labels under this rule, (A K, A K).
        cells: the rows as rows of cells.
    """
    groups = fitted.groups
    assert groups is not None
    soft_decisions = place.candidate.decide(cells.scores.soft_scores)
    soft_counts = decide_rates(cells.scores.soft_posterior, soft_decisions, cells.prior.size)
    # As for classes: a cell without a fresh label keeps the counts that it had.
    known_counts = np.where(counts.sum(1, keepdims=True) > 0, counts, groups.estimate.counts)
    estimate = combine_rates(cells.scores, known_counts, soft_counts, cells.prior.ravel())
    return replace(
        fitted,
        rule=rule,
        chosen=place.candidate.name,
        estimate=merge_groups(estimate, cells.prior, fitted.evidence),
        notes=find_doubts(fitted.evidence),
        groups=GroupEstimate(groups.groups, groups.objective, estimate, groups.class_names, groups.is_per_group),
    )


def take_counts(bound: Claim, table: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the counts of the group that a bound is about, or of all rows, (K, K), from those of cells (A K, A K)."""
    number, classes = shape
    blocks = table.reshape(number, classes, number, classes)
    by_group = np.stack([blocks[a, :, a] for a in range(number)])
    return by_group.sum(0) if bound.group is None else by_group[bound.group]


def take_part(bound: Claim, rates: np.ndarray, prior: np.ndarray) -> Confusion:
    """Return the confusion in the group that a bound is about, or of all rows, from rates of cells (A K, A K)."""
    joint = take_counts(bound, prior.reshape(-1, 1) * rates, prior.shape)
    fractions = joint.sum(1)
    return Confusion(torch.from_numpy(joint / fractions[:, None]), torch.from_numpy(fractions / fractions.sum()))


def take_rows(bound: Claim, rows: np.ndarray) -> np.ndarray:
    """Return the labels of each class that bear on a bound, (K,), from those of cells, (A, K)."""
    return rows.sum(0) if bound.group is None else rows[bound.group]


def measure_worst_p(bounds: Sequence[Claim], table: np.ndarray, shape: tuple[int, ...]) -> float:
    """Return the largest p-value: all bounds in all groups must be proved."""
    return max(float(p_value(bound, take_counts(bound, table, shape), None, None)) for bound in bounds)


def choose_path(
    rules: list[PathRule], bounds: Sequence[Claim], rows: np.ndarray, prior: np.ndarray, delta: float
) -> list[PathRule]:
    """Return the path without hopeless rules, from the rule on that is most likely to pass (`csst.rules.promise`).

    Args:
        rules: from cautious to bold.
        bounds: of the sentence, in each group.
        rows: fresh labels of every group and class, (A, K), as far as they may be known.
        prior: P_ak, (A, K).
        delta: 1 - confidence.
    """

    def list_p(rule: PathRule, is_perfect: bool) -> list[float]:
        values = []
        for bound in bounds:
            rates = take_part(bound, rule.estimate.confusion.rates.numpy(), prior).rates.numpy()
            labels = take_rows(bound, rows)
            if is_perfect:
                counts = without_mistakes(bound, labels[:, None] * rates)
            else:
                counts = draw_unluckily(bound, rates, np.maximum(labels, 1), None)
            values.append(float(p_value(bound, counts, None, None)))
        return values

    start = next((place for place, rule in enumerate(rules) if max(list_p(rule, True)) <= delta), len(rules))
    path = rules[start:]
    chances = [max(list_p(rule, False)) for rule in path]
    return path[int(np.argmin(chances)) :] if path else []


def price_groups(
    bounds: Sequence[Claim],
    rules: Sequence[PathRule],
    rows: np.ndarray,
    prior: np.ndarray,
    delta: float,
    class_names: Sequence[str],
) -> str:
    """Return what a certificate would take: the bound that needs most labels, for the rule that needs fewest."""
    parts = [[take_part(bound, rule.estimate.confusion.rates.numpy(), prior) for bound in bounds] for rule in rules]
    table = np.array(
        [
            [
                multiply_labels(bound, part.rates.numpy(), np.maximum(take_rows(bound, rows), 1), None, delta)
                for bound, part in zip(bounds, confusions, strict=True)
            ]
            for confusions in parts
        ]
    )
    cheapest = int(table.max(1).argmin())
    hardest = int(table[cheapest].argmax())
    bound = bounds[hardest]
    return price_in_labels((bound,), [parts[cheapest][hardest]], take_rows(bound, rows), None, delta, class_names)
