"""What the parts of a sentence mean: their shape, their value for a confusion, their form for one class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from csst.errors import InputError, ObjectiveError, nearest
from csst.maths.confusion import NUMBER_METRICS, Confusion
from csst.maths.language.binding import Binding
from csst.maths.language.tree import (
    Call,
    ClassCount,
    Each,
    Group,
    Metric,
    Negative,
    Node,
    Number,
    Sum,
    Term,
    children,
    rebuild,
    walk,
)

MEANS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda v: v.mean(),
    "min": lambda v: v.min(),
    "gmean": lambda v: v.log().mean().exp(),
    "hmean": lambda v: 1 / (1 / v).mean(),
    "qmean": lambda v: 1 - (1 - v).square().mean().sqrt(),
}
VECTOR = "classes"
#: metrics of a sentence that are one number; the cost is read off a table that is bound to the sentence
NUMBERS = (*NUMBER_METRICS, "cost")
#: groups that are derived from the training prior unless groups of these names are bound
FREQUENCY_GROUPS = ("head", "tail")


def is_constant(node: Node) -> bool:
    return not any(isinstance(n, (Metric, Each)) for n in walk(node))


def shape(node: Node, text: str) -> str:
    """Return "" for a number, "classes" for one value per class, "each <group>" for one value per group member."""
    if isinstance(node, Metric):
        return "" if node.name in NUMBERS or node.index is not None else VECTOR
    if isinstance(node, Each):
        return f"each {node.group}"
    shapes = [(shape(child, text), child) for child in children(node)]
    if isinstance(node, Call):
        return ""
    vectors = [(s, child) for s, child in shapes if s]
    for kind, child in vectors[1:]:
        if kind != vectors[0][0]:
            why = "vectors over different classes cannot be combined; take mean(...) of one of them"
            raise ObjectiveError(why, text, child.start, child.end)
    return vectors[0][0] if vectors else ""


def entries(node: Node, binding: Binding, text: str) -> int:
    """Return the number of entries: 1, K, or the size of a group."""
    kind = shape(node, text)
    if kind == VECTOR:
        assert binding.classes is not None
        return binding.classes
    if not kind:
        return 1
    vector = next(n for n in walk(node) if isinstance(n, Each))
    return len(members(Group(vector.group), vector, binding, text))


def members(index: int | str | Group, node: Node, binding: Binding, text: str, may_wait: bool = False) -> list[int]:
    """Return the classes an index refers to; with `may_wait`, head and tail may be bound later (empty until then)."""
    try:
        if not isinstance(index, Group):
            return [binding.class_index(index)]
        indices = binding.group(index.name)
        if indices is not None:
            strangers = [m for m in indices if binding.classes is not None and m >= binding.classes]
            if strangers:
                last_class = (binding.classes or 0) - 1
                raise InputError(f"group {index.name!r} names classes {strangers}, beyond 0 .. {last_class}")
            return list(indices)
        if may_wait and index.name in FREQUENCY_GROUPS:
            return []
        group_names = [name for name, _ in binding.groups]
        if binding.class_names is not None and index.name in binding.class_names:
            raise InputError(f"{index.name!r} is a class, not a group: write for instance recall[{index.name!r}]")
        # The word may also be a class whose name is written without quotes.
        hint = nearest(index.name, {*group_names, *FREQUENCY_GROUPS, *(binding.class_names or ())} - {index.name})
        raise InputError(
            f"group {index.name!r} is not known"
            f"{hint or ': bind the objective with groups={...}, or to a training prior'}"
        )
    except InputError as error:
        raise ObjectiveError(str(error), text, node.start, node.end) from None


def evaluate(node: Node, c: Confusion | None, binding: Binding, text: str) -> Tensor:
    """Return the value for a confusion, differentiable in its rates; constants need no confusion."""

    def value(child: Node) -> Tensor:
        return evaluate(child, c, binding, text)

    if isinstance(node, Number):
        return torch.tensor(float(node.value), dtype=torch.float64)
    if isinstance(node, ClassCount):
        return torch.tensor(float(binding.classes or 0), dtype=torch.float64)
    if isinstance(node, Metric):
        values = _read_metric(node, c, binding, text)
        return values if node.index is None else values[members(node.index, node, binding, text)].mean()
    if isinstance(node, Each):
        return getattr(c, node.metric)[members(Group(node.group), node, binding, text)]
    if isinstance(node, Call):
        return MEANS[node.function](torch.cat([torch.atleast_1d(value(arg)) for arg in node.args]))
    if isinstance(node, Negative):
        return -value(node.of)
    if isinstance(node, Sum):
        total = value(node.terms[0][1])
        for sign, term in node.terms[1:]:
            total = total + value(term) if sign == "+" else total - value(term)
        return total
    assert isinstance(node, Term)
    product = value(node.factors[0][1])
    for sign, factor in node.factors[1:]:
        if sign == "/" and is_constant(factor) and float(value(factor)) == 0:
            raise ObjectiveError("this divides by zero", text, factor.start, factor.end)
        product = product * value(factor) if sign == "*" else product / value(factor)
    return product


def _read_metric(node: Metric, c: Confusion | None, binding: Binding, text: str) -> Tensor:
    """Return the values of a metric, (K,) or a scalar."""
    assert c is not None
    if node.name == "cost":
        if binding.costs is None:
            why = "cost needs a table of costs: pass costs=..., or --costs costs.csv on the command line"
            raise ObjectiveError(why, text, node.start, node.end)
        return (binding.costs.matrix(binding.class_names, c.classes).to(c.matrix) * c.matrix).sum()
    if node.beta is not None:
        return c.fbeta(node.beta)
    if node.name == "abstain" and node.index is not None:
        return torch.zeros_like(c.prior) if c.abstained is None else c.abstained
    return getattr(c, node.name)


def at_class(node: Node, k: int, binding: Binding) -> Node:
    """Return the tree of the k-th entry of a vector: recall → recall['cat']."""
    if isinstance(node, Metric):
        is_vector = node.index is None and node.name not in NUMBERS
        return replace(node, index=binding.named(k)) if is_vector else node
    if isinstance(node, Each):
        indices = binding.group(node.group)
        assert indices is not None
        return Metric(node.metric, binding.named(indices[k]))
    if isinstance(node, Call):
        return node  # a number already
    return rebuild(node, lambda child: at_class(child, k, binding))


def name_classes(node: Node, binding: Binding) -> Node:
    """Return the tree with recall['fraud'] for recall[fraud] if fraud is the name of a class and of no group."""
    if isinstance(node, Metric) and isinstance(node.index, Group):
        word = node.index.name
        is_group = binding.group(word) is not None or word in FREQUENCY_GROUPS
        return node if is_group or word not in (binding.class_names or ()) else replace(node, index=word)
    return rebuild(node, lambda child: name_classes(child, binding))
