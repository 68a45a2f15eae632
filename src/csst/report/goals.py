"""What an objective's sentence asks of the coverage, so that it can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from csst.errors import InputError
from csst.maths.language import ALIASES, Sentence
from csst.maths.language import objective as read_objective
from csst.maths.language.meaning import at_class, entries, evaluate, is_constant, members
from csst.maths.language.tree import Each, Group, Metric


@dataclass(frozen=True)
class Covered:
    """A class, or a group by its mean, whose coverage has a lower or an upper bound."""

    label: str
    classes: tuple[int, ...]
    low: float | None = None
    high: float | None = None

    def value(self, coverage: Sequence[float]) -> float:
        return sum(coverage[c] for c in self.classes) / len(self.classes)


def constrained_coverage(objective: str, class_names: Sequence[str], counts: Sequence[int] | None) -> list[Covered]:
    """The coverages that the sentence bounds by a constant; none for an objective that is not a sentence.

    counts: labeled examples per class, from which head and tail follow.
    """
    goal = sentence_of(objective, class_names, counts)
    try:
        return _covered(goal, class_names) if goal is not None else []
    except InputError:  # groups of the user's are not in the run's folder
        return []


def _covered(goal: Sentence, class_names: Sequence[str]) -> list[Covered]:
    found: dict[tuple[int, ...], Covered] = {}
    for constraint in goal.constraints:
        left, right, sign = constraint.left, constraint.right, constraint.sign
        if is_constant(left):
            left, right, sign = right, left, "<=" if sign == ">=" else ">="
        name = left.name if isinstance(left, Metric) else left.metric if isinstance(left, Each) else ""
        if name != "coverage" or not is_constant(right):
            continue
        bound = float(evaluate(right, None, goal.binding, goal.text))
        for k in range(entries(left, goal.binding, goal.text)):
            one = at_class(left, k, goal.binding)
            assert isinstance(one, Metric)
            assert one.index is not None
            classes = tuple(members(one.index, one, goal.binding, goal.text))
            label = f"mean of {one.index.name}" if isinstance(one.index, Group) else class_names[classes[0]]
            known = found.get(classes, Covered(label, classes))
            found[classes] = replace(known, low=bound) if sign == ">=" else replace(known, high=bound)
    return list(found.values())


def multiplier_labels(objective: str, classes: int, multipliers: int) -> list[str]:
    """Names for the multipliers of a run that has no metrics.json yet: from the sentence where it fits, or numbers."""
    goal = sentence_of(objective, [str(c) for c in range(classes)], None)
    try:
        labels = list(goal.labels) if goal is not None else []
    except InputError:  # head and tail need the labeled counts
        labels = []
    return labels if len(labels) == multipliers else [f"λ {n}" for n in range(multipliers)]


def sentence_of(objective: str, class_names: Sequence[str], counts: Sequence[int] | None) -> Sentence | None:
    """The objective if it is a sentence about these classes. A run's folder is only read: no code of the user's."""
    text = ALIASES.get(objective.strip(), objective)
    if not text.lstrip().startswith("max "):
        return None
    try:
        goal = read_objective(text, class_names=class_names)
        if counts is not None:
            total = torch.tensor(counts, dtype=torch.float64)
            goal = goal.bind_prior(total / total.sum())
    except InputError:
        return None
    return goal if isinstance(goal, Sentence) else None
