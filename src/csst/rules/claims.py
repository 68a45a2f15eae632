"""The bounds of a sentence in the form that labels can prove, and the certificate that says whether they did.

A bound is one metric against one number:

    precision['fraud'] >= 0.9,    recall >= 0.5 (one bound for every class),    mean(recall) >= 0.8,    accuracy >= 0.9
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from csst.errors import InputError
from csst.maths.confusion import Confusion
from csst.maths.language import Sentence
from csst.maths.language.binding import Binding
from csst.maths.language.meaning import (
    drop_groups,
    evaluate,
    has_pairs,
    is_about_groups,
    is_constant,
    list_entries,
    members,
)
from csst.maths.language.tree import By, Call, Constraint, Each, Group, Metric, Node, Sum, render, walk
from csst.maths.objectives import Objective

#: metrics that labels can prove a bound of
PROVABLE = ("recall", "precision", "f1", "jaccard", "coverage", "accuracy")
#: metrics of one class that are a ratio of rates: proved for one class at a time
RATIOS = ("precision", "f1", "jaccard")


@dataclass(frozen=True)
class Claim:
    """metric >= value or metric <= value.

    Args:
        metric: recall, precision, f1, jaccard, coverage or accuracy.
        classes: the class, or the classes whose mean it is; empty for accuracy.
        is_lower: whether it is metric >= value.
        value: the number.
        text: the bound as a user reads it.
        group: the group of rows it is about; None for all rows.
    """

    metric: str
    classes: tuple[int, ...]
    is_lower: bool
    value: float
    text: str
    group: int | None = None

    @property
    def reads_balance(self) -> bool:
        """Whether the metric depends on the class balance where the rule is used."""
        return self.metric != "recall"

    def payoff(self, classes: int) -> np.ndarray:
        """Return c (K, K) with  bound <=> sum_i pi_i sum_j R_ij c_ij >= 0,  pi uniform over its classes for recall.

            recall      1[y = k] (1[F = k] - r)
            precision   1[F = k] (1[y = k] - r)
            jaccard     1[F = k or y = k] (1[F = y = k] - r);    f1 >= r  <=>  jaccard >= r / (2 - r)
            coverage    1[F = k] - r;                            accuracy  1[F = y] - r

        Args:
            classes: K.

        Returns:
            Row = truth y, column = prediction F; the sign is turned for metric <= value.
        """
        truth = np.arange(classes)[:, None]
        prediction = np.arange(classes)[None, :]
        if self.metric == "accuracy":
            payoff = (truth == prediction) - self.value
        elif self.metric == "recall":
            payoff = np.isin(truth, self.classes) * ((truth == prediction) - self.value)
        elif self.metric == "coverage":
            payoff = np.isin(prediction, self.classes) / len(self.classes) - self.value + 0.0 * truth
        else:
            k = self.classes[0]
            is_right = (truth == k) & (prediction == k)
            counts = prediction == k if self.metric == "precision" else (truth == k) | (prediction == k)
            payoff = counts * (is_right - self.ratio)
        return payoff if self.is_lower else -payoff

    def measure(self, confusion: Confusion) -> float:
        """Return the metric that the bound is about.

        Args:
            confusion: of the rows that it is about.

        Returns:
            A number, to be compared with the value.
        """
        if self.metric == "accuracy":
            return float(confusion.accuracy)
        return float(getattr(confusion, self.metric)[list(self.classes)].mean())

    @property
    def ratio(self) -> float:
        """The value as a fraction of rows: f1 = 2 j / (1 + j) for the Jaccard index j."""
        return self.value / (2 - self.value) if self.metric == "f1" else self.value


def read_claims(objective: Objective) -> tuple[Claim, ...]:
    """Return the bounds of a sentence, one for every class, and every group of rows, that each is about.

    Args:
        objective: a sentence that is bound to its classes and groups.

    Returns:
        The bounds; one that labels cannot prove is an error.
    """
    if not isinstance(objective, Sentence):
        raise InputError(f"only the bounds of a sentence can be certified; found {type(objective).__name__}")
    if not objective.constraints:
        raise InputError(
            f"a confidence is for bounds, and '{objective}' has none: add s.t. and a bound, or leave it out"
        )
    return tuple(bound for constraint in objective.constraints for bound in _split(constraint, objective))


def _split(constraint: Constraint, sentence: Sentence) -> Iterator[Claim]:
    binding = sentence.binding
    if has_pairs(constraint):
        raise InputError(
            f"{render(constraint)} cannot be certified: it compares groups of rows; give each a number, such as "
            f"recall by {sentence.column} >= 0.7"
        )
    for entry in list_entries(constraint, binding):
        assert isinstance(entry, Constraint)
        names = {str(node.group) for node in walk(entry) if isinstance(node, By)}
        if len(names) > 1 or (names and not is_about_groups(entry)):
            raise InputError(f"{render(entry)} cannot be certified: it is about more than one group of rows")
        claim = _read(drop_groups(entry), binding)
        group = binding.row_group_index(names.pop()) if names else None
        yield replace(claim, text=render(entry), group=group)


def _read(constraint: Constraint, binding: Binding) -> Claim:
    is_turned = is_constant(constraint.left)
    metric_side = constraint.right if is_turned else constraint.left
    number_side = constraint.left if is_turned else constraint.right
    is_lower = (constraint.sign == ">=") != is_turned
    value = None
    if is_constant(number_side):
        value = float(evaluate(number_side, None, binding))
        metric_side, value, is_lower = _isolate(metric_side, value, is_lower, binding)
    name, classes = _read_metric(metric_side, binding)
    if name not in PROVABLE or value is None or (name in RATIOS and len(classes) > 1):
        raise InputError(
            f"{render(constraint)} cannot be certified: a confidence is for recall, precision, f1, jaccard or coverage "
            "of a class, a mean of recalls, or accuracy, each against a number"
        )
    if not 0 < value < 1:
        raise InputError(f"{render(constraint)} cannot be certified: labels can prove bounds above 0 and below 1")
    return Claim(name, classes, is_lower, value, render(constraint))


def _isolate(node: Node, value: float, is_lower: bool, binding: Binding) -> tuple[Node, float, bool]:
    """Return the metric of a bound on number ± metric, its value and its side: 1 - recall <= 0.2 is recall >= 0.8."""
    if not isinstance(node, Sum):
        return node, value, is_lower
    metrics = [(sign, term) for sign, term in node.terms if not is_constant(term)]
    if len(metrics) != 1:
        return node, value, is_lower
    for sign, term in node.terms:
        if is_constant(term):
            amount = float(evaluate(term, None, binding))
            value += amount if sign == "-" else -amount
    sign, metric = metrics[0]
    if sign == "-":
        return _isolate(metric, -value, not is_lower, binding)
    return _isolate(metric, value, is_lower, binding)


def _read_metric(node: Node, binding: Binding) -> tuple[str, tuple[int, ...]]:
    """Return the name of a metric and its classes; "" for anything else."""
    if isinstance(node, Metric):
        if node.name == "accuracy":
            return node.name, ()
        if node.index is not None:
            return node.name, tuple(members(node.index, node, binding))
        return node.name, tuple(range(binding.classes or 0))
    if isinstance(node, Each):
        return node.metric, tuple(members(Group(node.group), node, binding))
    if not isinstance(node, Call) or node.function != "mean":
        return "", ()
    parts = [_read_metric(part, binding) for part in node.args]
    indices = tuple(k for _, classes in parts for k in classes)
    # A mean of groups of several classes each is no plain mean of their classes.
    is_plain = len(parts) == 1 or all(len(classes) == 1 for _, classes in parts)
    is_recall = {name for name, _ in parts} == {"recall"}
    return ("recall", indices) if is_recall and is_plain and len(set(indices)) == len(indices) else ("", ())


@dataclass(frozen=True)
class BoundResult:
    """One bound of a certificate.

    Args:
        bound: as it is written.
        asked: the number that was asked for.
        expected: the estimate for the deployed rule.
        p_value: p-value of the deployed rule on the fresh labels.
        balance: the lowest and highest fraction of the class for which it would hold under these labels, the other
            classes in proportion; None where it does not depend on it or labels are a random sample.
    """

    bound: str
    asked: float
    expected: float
    p_value: float
    balance: tuple[float, float] | None = None


@dataclass(frozen=True)
class Certificate:
    """Whether the bounds of a sentence are promised.

    Args:
        confidence: confidence that was asked for.
        is_certified: whether all bounds hold, with that confidence.
        bounds: one result for every bound.
        labels: fresh labels of every class, (K,).
        rules: how many rules were on the path, from cautious to bold.
        passed: how many of them passed; the last is used.
        basis: what the promise rests on, in words.
        price: the labels that a certificate would take, in words; "" if it is certified.
    """

    confidence: float
    is_certified: bool
    bounds: tuple[BoundResult, ...]
    labels: tuple[int, ...]
    rules: int
    passed: int
    basis: str
    price: str = ""

    @property
    def sentence(self) -> str:
        """The certificate in one sentence."""
        if self.is_certified:
            names = ", ".join(result.bound for result in self.bounds)
            return f"certified with confidence {self.confidence:g}: {names}; {self.basis}"
        return f"not certified with confidence {self.confidence:g}: {self.price}"

    def lines(self) -> list[str]:
        """Return asked, expected and promised of every bound, as lines of text.

        Returns:
            The sentence, then a line for every bound.
        """
        lines = [self.sentence]
        width = max(len(result.bound) for result in self.bounds)
        for result in self.bounds:
            promise = f"{result.asked:.3f}" if self.is_certified else "no"
            numbers = f"asked {result.asked:.3f}  expected {result.expected:.3f}  promised {promise}"
            lines.append(f"  {result.bound:<{width}}  {numbers}")
            if result.balance is not None and self.is_certified:
                low, high = result.balance
                lines.append(f"  {'':<{width}}  holds where the class is {low:.3f} to {high:.3f} of all rows")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which `certificate_from_dict` reads."""
        return {**asdict(self), "sentence": self.sentence}


def certificate_from_dict(stored: dict[str, Any]) -> Certificate:
    """Return the certificate that `as_dict` has written."""
    values = {name: value for name, value in stored.items() if name != "sentence"}
    results = []
    for result in values.pop("bounds"):
        balance = result["balance"]
        results.append(BoundResult(**{**result, "balance": None if balance is None else tuple(balance)}))
    labels = tuple(values.pop("labels"))
    return Certificate(**values, bounds=tuple(results), labels=labels)
