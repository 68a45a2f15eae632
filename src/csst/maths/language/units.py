"""Sentences with costs in units of their own, so that a table in cents and one in euros ask for the same rule.

A rate lies between 0 and 1, and what counts as a small miss or gain is a part of that. A cost has any unit: its place
is taken by the cost divided by what it differs by between the dearest and the cheapest predictions there are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from csst.maths.confusion import Confusion
from csst.maths.language.meaning import entries, evaluate, reads
from csst.maths.language.tree import Constraint, Negative, Node, Number, Term

if TYPE_CHECKING:
    from csst.maths.language.sentence import Sentence


def measure_units(sentence: Sentence, prior: Tensor) -> tuple[float, tuple[float, ...]]:
    """Return the units of the value and of every constraint's slack: 1 and () without costs.

    Args:
        sentence: bound to the classes.
        prior: pi, (K,).

    Returns:
        What the value, and each slack, differ by between the dearest and the cheapest predictions.
    """
    if sentence.binding.costs is None or not sentence.mentions("cost"):
        return 1.0, ()
    binding = sentence.binding
    costs = sentence.binding.costs.matrix(binding.class_names, len(prior))
    identity = torch.eye(len(prior), dtype=torch.float64)
    cheapest = Confusion(identity[costs.argmin(1)], prior.double())
    dearest = Confusion(identity[costs.argmax(1)], prior.double())
    goal_unit = 1.0
    if reads(sentence.expression, "cost"):
        goal_unit = _or_one(abs(float(sentence.value(cheapest)) - float(sentence.value(dearest))))
    units = []
    for constraint in sentence.constraints:
        unit = 1.0
        if reads(constraint, "cost"):
            slacks = [_read_slack(constraint, sentence, confusion) for confusion in (cheapest, dearest)]
            unit = _or_one(float((slacks[0] - slacks[1]).abs().max()))
        units += [unit] * entries(constraint, binding)
    return goal_unit, tuple(units)


def divide_by_units(sentence: Sentence, prior: Tensor) -> Sentence:
    """Return the sentence with its goal and its bounds divided by their units; itself without costs."""
    goal_unit, units = measure_units(sentence, prior)
    if not units and goal_unit == 1.0:
        return sentence
    constraints = []
    place = 0
    for constraint in sentence.constraints:
        left, right = (_divide(side, units[place]) for side in (constraint.left, constraint.right))
        constraints.append(replace(constraint, left=left, right=right) if units[place] != 1.0 else constraint)
        place += entries(constraint, sentence.binding)
    return replace(sentence, expression=_divide(sentence.expression, goal_unit), constraints=tuple(constraints))


def _divide(node: Node, unit: float) -> Node:
    if unit == 1.0:
        return node
    if isinstance(node, Negative):  # a goal that is minimized stays one
        return replace(node, of=_divide(node.of, unit))
    return Term((("*", node), ("/", Number(unit))))


def _read_slack(constraint: Constraint, sentence: Sentence, confusion: Confusion) -> Tensor:
    sides = [evaluate(side, confusion, sentence.binding) for side in (constraint.left, constraint.right)]
    return (sides[0] - sides[1]).double()


def _or_one(unit: float) -> float:
    return unit if unit > 0 else 1.0
