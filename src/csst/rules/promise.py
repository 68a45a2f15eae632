"""A rule whose bounds are promised: chosen from a path by labels that nothing else was fitted to.

certified = promise(fitted, FreshLabels(probs, labels), "labels")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from csst.estimation.class_rates import RateEstimate, combine_rates, count_labels, decide_rates
from csst.estimation.held_out_scores import HeldOutScores, check_labels, check_probs
from csst.maths.confusion import Confusion
from csst.maths.language import Sentence
from csst.rules.certificates import draw_unluckily, multiply_labels, p_value, read_range
from csst.rules.claims import BoundResult, Certificate, Claim, read_claims
from csst.rules.fit import FittedRule, find_doubts
from csst.rules.fresh_labels import FreshLabels, state_prior
from csst.rules.path import PathRule, make_path
from csst.rules.rule import Rule
from csst.rules.threads import use_one_thread

#: a price is at least this multiple of the labels that were not enough
LEAST_MULTIPLE = 1.25


@dataclass(frozen=True, eq=False)
class Proof:
    """Fresh labels and the rules that they may certify; for groups of rows see `csst.rules.group_promise`.

    Args:
        fitted: the rule by the labels of the fit, whose objective states a confidence.
        fresh: labels that nothing was fitted to, checked.
        bounds: bounds of the sentence.
        prior: the stated class balance, (K,); None where the labels are a random sample.
    """

    fitted: FittedRule
    fresh: FreshLabels
    bounds: tuple[Claim, ...]
    prior: np.ndarray | None

    @property
    def shares(self) -> np.ndarray:
        """How frequent the rows of each class are where the rule is used, (K,)."""
        return self.fitted.estimate.confusion.prior.numpy()

    @property
    def rows(self) -> np.ndarray:
        """Fresh labels of every class, (K,)."""
        return np.bincount(self.fresh.labels, minlength=self.fitted.evidence.classes)

    @property
    def unlabeled_rows(self) -> int:
        """Unlabeled rows kept apart, which prove coverages."""
        return 0 if self.fresh.unlabeled_probs is None else len(self.fresh.unlabeled_probs)

    def make_rules(self) -> list[PathRule]:
        """Return the path, from cautious to bold."""
        return make_path(self.fitted.evidence, self.fitted.objective, self.shares)

    def make_trial(self, place: PathRule) -> Rule:
        """Return a rule of the path on the model's probabilities."""
        evidence = self.fitted.evidence
        return place.candidate.as_rule(evidence.train_prior, evidence.undo)

    def count(self, rule: Rule) -> np.ndarray:
        """Return the counts of fresh labels under a rule, (K, K)."""
        decisions = rule.predict(self.fresh.probs).numpy()
        return count_labels(self.fresh.labels, decisions, self.fitted.evidence.classes)

    def take_counts(self, bound: Claim, table: np.ndarray) -> np.ndarray:
        """Return the counts that bear on a bound, (K, K)."""
        return table

    def take_rows(self, bound: Claim, rows: np.ndarray) -> np.ndarray:
        """Return the labels of each class that bear on a bound, (K,)."""
        return rows

    def expect(self, bound: Claim, estimate: RateEstimate) -> Confusion:
        """Return the rates that bear on a bound."""
        return estimate.confusion

    def pool_fresh(self, place: PathRule) -> RateEstimate:
        """Return the rates to expect once the fresh labels have been looked at, too: for a price, not for a test."""
        confusion = place.estimate.confusion
        counts = place.estimate.n[:, None] * confusion.rates.numpy() + self.count(self.make_trial(place))
        rates = torch.from_numpy(counts / counts.sum(1, keepdims=True))
        return replace(place.estimate, confusion=Confusion(rates, confusion.prior))

    def price(self, rules: Sequence[PathRule], delta: float, class_names: Sequence[str]) -> str:
        """Return what a certificate would take: the bound that needs most labels, for the rule that needs fewest.

        Args:
            rules: rules of the path.
            delta: 1 - confidence.
            class_names: K names.
        """
        estimates = [self.pool_fresh(rule) for rule in rules]
        rows = [self.take_rows(bound, self.rows) for bound in self.bounds]
        # Classes without a fresh label are priced as if they had one.
        table = [
            [
                multiply_labels(
                    bound, self.expect(bound, estimate).rates.numpy(), np.maximum(labels, 1), self.prior, delta
                )
                for bound, labels in zip(self.bounds, rows, strict=True)
            ]
            for estimate in estimates
        ]
        cheapest = int(np.max(table, axis=1).argmin())
        hardest = int(np.argmax(table[cheapest]))
        bound = self.bounds[hardest]
        # These labels were not enough, whatever is expected.
        multiple = max(LEAST_MULTIPLE, table[cheapest][hardest])
        expectation = bound.measure(self.expect(bound, estimates[cheapest]))
        is_single = len(bound.classes) == 1
        is_of_classes = is_single or bound.metric == "recall"
        counts = rows[hardest]
        number = int(counts[list(bound.classes)].sum()) if is_of_classes else int(counts.sum())
        labels_text = f"{number} label{'s' if number != 1 else ''}"
        if is_single:
            labels_text += f" of {class_names[bound.classes[0]]!r}"
        if np.isinf(multiple):
            return (
                f"{labels_text} cannot promise {bound.text}, and more would not: {expectation:.2f} is expected of it; "
                "loosen the bound, or improve the model"
            )
        extra_labels = max(1, round(multiple * max(number, 1)) - number)
        remark = "" if bound.metric == "recall" else ", with other classes in proportion"
        metric = f"its {bound.metric}" if is_single else f"the {bound.metric}"
        return (
            f"{labels_text} cannot promise {bound.text}; about {extra_labels:,} more would{remark}, "
            f"if {metric} is {expectation:.2f}"
        )

    def measure_p(self, rule: Rule) -> list[float]:
        """Return the p-value of every bound."""
        table = self.count(rule)
        predictions = None
        if self.fresh.unlabeled_probs is not None:
            predictions = np.bincount(rule.predict(self.fresh.unlabeled_probs).numpy(), minlength=rule.classes)
        return [float(p_value(bound, self.take_counts(bound, table), self.prior, predictions)) for bound in self.bounds]

    def imagine_p(self, place: PathRule, rows: np.ndarray, is_perfect: bool) -> float:
        """Return the largest p-value to expect of a rule: without a mistake, or in an unlucky draw.

        Args:
            place: the rule.
            rows: fresh labels of every class, (K,), as far as they may be known.
            is_perfect: whether no label speaks against a bound.
        """
        values = []
        for bound in self.bounds:
            confusion = self.expect(bound, place.estimate)
            rates = confusion.rates.numpy()
            labels = self.take_rows(bound, rows)
            predictions = self.unlabeled_rows * confusion.coverage.numpy() if self.unlabeled_rows else None
            if is_perfect:
                counts = without_mistakes(bound, labels[:, None] * rates)
            else:
                counts = draw_unluckily(bound, rates, np.maximum(labels, 1), self.prior)
            values.append(float(p_value(bound, counts, self.prior, predictions)))
        return max(values)

    def adopt(self, place: PathRule) -> FittedRule:
        """Return the fit with a rule of the path in use.

        Labels of the fit chose the rule and would flatter it: fresh ones and unlabeled rows say what to expect.

        Args:
            place: the rule.
        """
        fitted = self.fitted
        rule = self.make_trial(place)
        estimate = estimate_freshly(fitted.evidence, place, self.count(rule), fitted.estimate, self.shares)
        return replace(
            fitted, rule=rule, chosen=place.candidate.name, estimate=estimate, notes=find_doubts(fitted.evidence)
        )


def estimate_freshly(
    evidence: HeldOutScores, place: PathRule, counts: np.ndarray, earlier_estimate: RateEstimate, prior: np.ndarray
) -> RateEstimate:
    """Return the rates to expect of a rule by fresh labels and by the unlabeled rows of the fit.

    Args:
        evidence: scores of the fit.
        place: the rule.
        counts: confusion counts of fresh labels under the rule, (K, K).
        earlier_estimate: the rates by the labels of the fit, which a class without a fresh label keeps.
        prior: the class balance where the rule is used, (K,).
    """
    soft_decisions = place.candidate.decide(evidence.soft_scores)
    soft_counts = decide_rates(evidence.soft_posterior, soft_decisions, evidence.classes)
    known_counts = np.where(counts.sum(1, keepdims=True) > 0, counts, earlier_estimate.counts)
    return combine_rates(evidence, known_counts, soft_counts, prior)


@use_one_thread
def promise(fitted: FittedRule, fresh: FreshLabels, deployment_prior: Any, class_names: Sequence[str]) -> FittedRule:
    """Return the boldest rule of a path that fresh labels certify; the rule itself, not certified, if there is none.

    Args:
        fitted: the rule by the labels of the fit, whose objective states a confidence.
        fresh: labels that nothing was fitted to, with the groups of their rows for a sentence about groups.
        deployment_prior: see `state_prior`.
        class_names: for sentences.

    Returns:
        The rule with its certificate.
    """
    proof = begin_proof(fitted, fresh, deployment_prior)
    sentence = fitted.objective if fitted.groups is None else fitted.groups.sentence
    assert sentence.confidence is not None
    delta = 1 - sentence.confidence
    bounds = proof.bounds
    rows = proof.rows
    labels = proof.fresh.labels
    deployment = proof.shares
    rules = proof.make_rules()
    # How many labels of each class certify is known where they are dealt within classes; of a random sample it is part
    # of what is tested, and the path must not depend on it.
    is_sample = proof.prior is None and any(bound.reads_balance for bound in bounds)
    planned_rows = len(labels) * deployment if is_sample else rows
    path = choose_start(drop_hopeless(rules, proof, planned_rows, delta), proof, planned_rows)

    def fails(place: PathRule) -> bool:
        return max(proof.measure_p(proof.make_trial(place))) > delta

    passes = next((number for number, place in enumerate(path) if fails(place)), len(path))
    price = ""
    if passes:
        result = proof.adopt(path[passes - 1])
    else:
        price = proof.price(path or rules, delta, class_names)
        result = replace(fitted, notes=(*fitted.notes, price))
    counts = proof.count(result.rule)
    results = tuple(
        BoundResult(
            bound.text,
            bound.value,
            bound.measure(proof.expect(bound, result.judged)),
            p,
            read_range(bound, proof.take_counts(bound, counts), proof.prior, delta),
        )
        for bound, p in zip(bounds, proof.measure_p(result.rule), strict=True)
    )
    labels_of_classes = rows if rows.ndim == 1 else rows.sum(0)
    certificate = Certificate(
        sentence.confidence,
        passes > 0,
        results,
        tuple(labels_of_classes.tolist()),
        len(path),
        passes,
        describe_basis(labels_of_classes, proof.prior, bounds, proof.unlabeled_rows),
        price,
    )
    return replace(result, certificate=certificate)


def begin_proof(fitted: FittedRule, fresh: FreshLabels, deployment_prior: Any) -> Proof:
    """Return what fresh labels are asked, about classes or about groups of rows."""
    bounds = read_claims(fitted.objective if fitted.groups is None else fitted.groups.sentence)
    classes = fitted.evidence.classes
    prior = state_prior(deployment_prior, bounds, classes)  # refuses bounds that need another class balance
    probs = check_probs(fresh.probs, classes)
    fresh = replace(fresh, probs=probs, labels=check_labels(fresh.labels, len(probs), classes))
    if fitted.groups is None:
        return Proof(fitted, fresh, bounds, prior)
    # It builds on this module.
    from csst.rules.group_promise import GroupProof

    assert fresh.groups is not None
    # Unlabeled rows prove nothing about groups.
    return GroupProof(fitted, replace(fresh, unlabeled_probs=None), bounds, None, fitted.groups, fresh.groups)


def state_confidence(fitted: FittedRule, sentence: Sentence) -> FittedRule:
    """Return a fit of a sentence without its confidence as one of the sentence itself."""
    if fitted.groups is None:
        return replace(fitted, objective=sentence)
    objective = replace(fitted.groups.objective, sentence=sentence)
    return replace(fitted, objective=sentence.ungrouped, groups=replace(fitted.groups, objective=objective))


def drop_hopeless(path: list[PathRule], proof: Proof, rows: np.ndarray, delta: float) -> list[PathRule]:
    """Return the path without the rules at its cautious end that could not pass even if they made no mistake.

    A rule of which few predictions are expected cannot prove a precision, however right they are; nor can any rule a
    recall of a class with few labels.

    Args:
        path: from cautious to bold.
        proof: what is to be proved.
        rows: fresh labels of every class, (K,), which is all that may be known of them.
        delta: 1 - confidence.

    Returns:
        The rest of the path.
    """
    start = next((n for n, rule in enumerate(path) if proof.imagine_p(rule, rows, True) <= delta), len(path))
    return path[start:]


def choose_start(path: list[PathRule], proof: Proof, rows: np.ndarray) -> list[PathRule]:
    """Return the path from the rule on that is most likely to pass, by what is expected of it.

    The most cautious rule is not: with few predictions, one mistake ends the path at its first rule.

    Args:
        path: from cautious to bold.
        proof: what is to be proved.
        rows: fresh labels of every class, (K,).

    Returns:
        The rest of the path.
    """
    chances = [proof.imagine_p(rule, rows, False) for rule in path]
    return path[int(np.argmin(chances)) :] if path else []


def without_mistakes(bound: Claim, expected: np.ndarray) -> np.ndarray:
    """Return expected counts (K, K) as they would be if no label spoke against the bound."""
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


def describe_basis(rows: np.ndarray, prior: np.ndarray | None, bounds: Sequence[Claim], unlabeled_rows: int) -> str:
    draw = "each a random row of its class" + (" and group" if any(bound.group is not None for bound in bounds) else "")
    if any(bound.reads_balance for bound in bounds):
        draw = "a random sample of the rows where it is used" if prior is None else f"{draw}, at the stated balance"
    if unlabeled_rows:
        return f"by {int(rows.sum()):,} labels and {unlabeled_rows:,} unlabeled rows that nothing was fitted to, {draw}"
    return f"by {int(rows.sum()):,} labels that nothing was fitted to, {draw}"
