"""The bounds that an objective's sentence sets, so that they can be shown and, on the coverage, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from csst.errors import InputError
from csst.maths.language import ALIASES, Sentence, objective
from csst.maths.language.meaning import at_class, entries, evaluate, is_constant, members
from csst.maths.language.tree import Constraint, Each, Group, Metric
from csst.recipes.recipe import read_group


class Limit(NamedTuple):
    """A number that a metric is to be at least or at most."""

    number: float
    is_lower: bool

    def find_value(self, slack: float) -> float:
        """The metric that is so far inside."""
        return self.number + slack if self.is_lower else self.number - slack


@dataclass(frozen=True)
class CoverageBound:
    """A class, or a group by its mean, whose coverage has a lower or an upper bound."""

    label: str
    classes: tuple[int, ...]
    low: float | None = None
    high: float | None = None

    def measure(self, coverage: Sequence[float]) -> float:
        """The mean coverage of its classes."""
        return sum(coverage[c] for c in self.classes) / len(self.classes)

    def slack(self, coverage: Sequence[float]) -> list[float]:
        """How far the coverage is inside each bound; negative outside."""
        value = self.measure(coverage)
        return [
            *([] if self.low is None else [value - self.low]),
            *([] if self.high is None else [self.high - value]),
        ]


def find_coverage_bounds(
    text: str, class_names: Sequence[str], counts: Sequence[int] | None, groups: Any = None
) -> list[CoverageBound]:
    """The coverages that an objective bounds by a constant; none for an objective that is not a sentence.

    Args:
        text: the objective.
        class_names: of all classes.
        counts: labeled examples per class, from which head and tail follow.
        groups: the recipe's groups of classes, which come before those.
    """
    sentence = read_sentence(text, class_names, counts, groups)
    try:
        return _collect_bounds(sentence, class_names) if sentence is not None else []
    except InputError:  # groups that were named in Python only are not in the run's folder
        return []


def _collect_bounds(sentence: Sentence, class_names: Sequence[str]) -> list[CoverageBound]:
    bounds: dict[tuple[int, ...], CoverageBound] = {}
    binding, text = sentence.binding, sentence.text
    for constraint in sentence.constraints:
        left, right, sign = constraint.left, constraint.right, constraint.sign
        if is_constant(left):
            left, right, sign = right, left, "<=" if sign == ">=" else ">="
        name = left.name if isinstance(left, Metric) else left.metric if isinstance(left, Each) else ""
        if name != "coverage" or not is_constant(right):
            continue
        limit = float(evaluate(right, None, binding, text))
        for k in range(entries(left, binding, text)):
            metric = at_class(left, k, binding)
            assert isinstance(metric, Metric)
            assert metric.index is not None
            classes = tuple(members(metric.index, metric, binding, text))
            label = f"mean of {metric.index.name}" if isinstance(metric.index, Group) else class_names[classes[0]]
            bound = bounds.get(classes, CoverageBound(label, classes))
            bounds[classes] = replace(bound, low=limit) if sign == ">=" else replace(bound, high=limit)
    return list(bounds.values())


def find_limits(
    text: str, class_names: Sequence[str], counts: Sequence[int] | None, groups: Any = None
) -> list[Limit | None]:
    """What every constraint of an objective bounds a metric by, None where both sides are metrics; args as above."""
    sentence = read_sentence(text, class_names, counts, groups)
    if sentence is None:
        return []
    limits: list[Limit | None] = []
    try:
        for constraint in sentence.constraints:
            limits += [_find_limit(constraint, sentence)] * entries(constraint, sentence.binding, sentence.text)
    except InputError:  # groups that were named in Python only are not in the run's folder
        return []
    return limits


def _find_limit(constraint: Constraint, sentence: Sentence) -> Limit | None:
    left, right, is_lower = constraint.left, constraint.right, constraint.sign == ">="
    if is_constant(left):
        left, right, is_lower = right, left, not is_lower
    if not is_constant(right):
        return None
    return Limit(float(evaluate(right, None, sentence.binding, sentence.text)), is_lower)


def label_multipliers(text: str, classes: int, multipliers: int) -> list[str]:
    """Names for the multipliers of a run that has no metrics.json yet: from the sentence where it fits, or numbers."""
    sentence = read_sentence(text, [str(c) for c in range(classes)], None)
    try:
        labels = list(sentence.labels) if sentence is not None else []
    except InputError:  # head and tail need the labeled counts
        labels = []
    return labels if len(labels) == multipliers else [f"λ {n}" for n in range(multipliers)]


def read_sentence(
    text: str, class_names: Sequence[str], counts: Sequence[int] | None, groups: Any = None
) -> Sentence | None:
    """The objective if it is a sentence about these classes. A run's folder is only read: no code of the user's."""
    text = ALIASES.get(text.strip(), text)
    if not text.lstrip().startswith("max "):
        return None
    try:
        named = groups if isinstance(groups, dict) else {}
        known = {name: read_group(members, class_names) for name, members in named.items()}
        sentence = objective(text, class_names=class_names, groups=known)
        if counts is not None:
            total = torch.tensor(counts, dtype=torch.float64)
            sentence = sentence.bind_prior(total / total.sum())
    except InputError:
        return None
    return sentence if isinstance(sentence, Sentence) else None
