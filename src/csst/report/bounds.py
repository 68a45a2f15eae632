"""The bounds that an objective's sentence sets, for tables and for figures of the coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from csst.errors import InputError
from csst.fitting.plan import read_group
from csst.maths.language import ALIASES, Sentence, objective
from csst.maths.language.meaning import evaluate, is_constant, list_entries, members
from csst.maths.language.tree import Constraint, Group, Metric, Node


class Limit(NamedTuple):
    """A lower or an upper limit of a metric."""

    number: float
    is_lower: bool

    def find_value(self, slack: float) -> float:
        """Return the metric with this slack."""
        return self.number + slack if self.is_lower else self.number - slack


@dataclass(frozen=True)
class CoverageBound:
    """A class, or a group by its mean, whose coverage has a lower or an upper bound."""

    label: str
    classes: tuple[int, ...]
    low: float | None = None
    high: float | None = None

    def measure(self, coverage: Sequence[float]) -> float:
        """Return the mean coverage of its classes."""
        return sum(coverage[c] for c in self.classes) / len(self.classes)

    def slack(self, coverage: Sequence[float]) -> list[float]:
        """Return the distance of the coverage to each bound; negative outside."""
        value = self.measure(coverage)
        slack = []
        if self.low is not None:
            slack.append(value - self.low)
        if self.high is not None:
            slack.append(self.high - value)
        return slack


def find_coverage_bounds(sentence: Sentence | None) -> list[CoverageBound]:
    """Return the coverages that a sentence bounds by a constant; none without a sentence."""
    bounds: dict[tuple[int, ...], CoverageBound] = {}
    for metric, limit in find_limits(sentence):
        if sentence is None or limit is None or not isinstance(metric, Metric) or metric.name != "coverage":
            continue
        assert metric.index is not None
        classes = tuple(members(metric.index, metric, sentence.binding, may_wait=True))
        if not classes:  # head and tail without labeled counts
            continue
        if isinstance(metric.index, Group):
            label = f"mean of {metric.index.name}"
        else:
            label = (sentence.binding.class_names or ())[classes[0]]
        bound = bounds.get(classes, CoverageBound(label, classes))
        bounds[classes] = replace(bound, low=limit.number) if limit.is_lower else replace(bound, high=limit.number)
    return list(bounds.values())


def find_limits(sentence: Sentence | None) -> list[tuple[Node, Limit | None]]:
    """Return for every entry of every constraint what it bounds, and its limit; None if both sides are metrics."""
    if sentence is None:
        return []
    try:
        entries = [entry for part in sentence.constraints for entry in list_entries(part, sentence.binding)]
    except InputError:  # a bound for each class of head or tail, without labeled counts
        return []
    return [_read_limit(entry, sentence) for entry in entries if isinstance(entry, Constraint)]


def _read_limit(constraint: Constraint, sentence: Sentence) -> tuple[Node, Limit | None]:
    """Return the side of a constraint that is a metric, and the constant on its other side as a limit."""
    side = constraint.left
    other_side = constraint.right
    is_lower = constraint.sign == ">="
    if is_constant(side):
        side, other_side = other_side, side
        is_lower = not is_lower
    if not is_constant(other_side):
        return side, None
    return side, Limit(float(evaluate(other_side, None, sentence.binding)), is_lower)


def label_multipliers(text: str, classes: int, multipliers: int) -> list[str]:
    """Return names for the multipliers of a run without metrics.json: from the sentence if it fits, else numbers."""
    sentence = read_sentence(text, [str(c) for c in range(classes)], None)
    try:
        labels = list(sentence.labels) if sentence is not None else []
    except InputError:  # head and tail need the labeled counts
        labels = []
    return labels if len(labels) == multipliers else [f"λ {n}" for n in range(multipliers)]


def read_sentence(
    text: str, class_names: Sequence[str], counts: Sequence[int] | None, groups: Any = None
) -> Sentence | None:
    """Return the objective if it is a sentence about these classes; never load code that the user named.

    Args:
        text: the objective.
        class_names: the names of all classes.
        counts: labeled examples per class, from which head and tail follow; None if unknown.
        groups: the recipe's groups of classes, which take precedence over head and tail.
    """
    text = ALIASES.get(text.strip(), text)
    if not text.lstrip().startswith("max "):
        return None
    try:
        stored_groups = groups if isinstance(groups, Mapping) else {}
        class_groups = {name: read_group(members, class_names) for name, members in stored_groups.items()}
        sentence = objective(text, class_names=class_names, groups=class_groups)
        if counts is not None:
            totals = torch.tensor(counts, dtype=torch.float64)
            sentence = sentence.bind_prior(totals / totals.sum())
    except InputError:
        return None
    # Bounds of groups of rows are in the table of groups: the page of a run knows the classes only.
    return sentence if isinstance(sentence, Sentence) and sentence.column is None else None
