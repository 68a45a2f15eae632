"""What the parts of a sentence mean: their shape, their value for a confusion, one entry of them, their terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from csst.errors import InputError, nearest
from csst.maths.confusion import NUMBER_METRICS, Confusion
from csst.maths.language.binding import Binding
from csst.maths.language.tree import (
    By,
    Call,
    ClassCount,
    Constraint,
    Each,
    EveryOther,
    Group,
    Metric,
    Negative,
    Node,
    Number,
    Sum,
    Term,
    children,
    drop_double_minus,
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


def reads(node: Node, metric: str) -> bool:
    """Return whether a metric occurs in a tree."""
    return any(isinstance(part, Metric) and part.name == metric for part in walk(node))


def shape(node: Node, binding: Binding) -> str:
    """Return "" for a number, "classes" for one value per class, "each <group>" for one value per group member."""
    if isinstance(node, Metric):
        return "" if node.name in NUMBERS or node.index is not None else VECTOR
    if isinstance(node, Each):
        return f"each {node.group}"
    shapes = [(shape(child, binding), child) for child in children(node)]
    if isinstance(node, Call):
        return ""
    vectors = [(s, child) for s, child in shapes if s]
    for kind, child in vectors[1:]:
        if kind != vectors[0][0]:
            why = "vectors over different classes cannot be combined; take mean(...) of one of them"
            raise binding.error(why, child)
    return vectors[0][0] if vectors else ""


def has_groups(node: Node) -> bool:
    """Return whether the value is a vector over the groups of rows."""
    if isinstance(node, By):
        return node.group is None
    return not isinstance(node, Call) and any(map(has_groups, children(node)))


def has_pairs(node: Node) -> bool:
    """Return whether groups of rows are compared with each other."""
    return any(isinstance(child, EveryOther) for child in walk(node))


def list_places(node: Node, binding: Binding) -> list[tuple[int, int, int]]:
    """Return the entries of a value in order: which other group, which group and which class each is of.

    A number, or a vector over classes, is of group 0.
    """
    groups = range(len(binding.row_groups)) if has_groups(node) else range(1)
    others = groups if has_pairs(node) else range(1)
    classes = range(count_classes(node, binding))
    is_compared = has_pairs(node)
    return [(b, a, k) for b in others for a in groups for k in classes if not is_compared or a != b]


def entries(node: Node, binding: Binding) -> int:
    """Return the number of entries: 1, K or the size of a group of classes, times the groups of rows."""
    return len(list_places(node, binding))


def list_entries(node: Node, binding: Binding) -> list[Node]:
    """Return the trees of all entries: recall by sex → recall['cat'] by sex['f'], ..."""
    return [at_place(node, place, binding) for place in list_places(node, binding)]


def flatten(value: Tensor, node: Node) -> Tensor:
    """Return the entries of a value of this tree as a vector, in the order of `list_places`."""
    if value.ndim < 3 or not has_pairs(node):
        return value.flatten()
    is_other = ~torch.eye(len(value), dtype=torch.bool, device=value.device)
    return value[is_other].flatten()


def count_classes(node: Node, binding: Binding) -> int:
    """Return the number of entries of each group of rows: 1, K, or the size of a group of classes."""
    kind = shape(node, binding)
    if kind == VECTOR:
        assert binding.classes is not None
        return binding.classes
    if not kind:
        return 1
    vector = next(n for n in walk(node) if isinstance(n, Each))
    return len(members(Group(vector.group), vector, binding))


def members(index: int | str | Group, node: Node, binding: Binding, may_wait: bool = False) -> list[int]:
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
        raise binding.error(str(error), node) from None


def evaluate(node: Node, c: Confusion | None, binding: Binding) -> Tensor:
    """Return the value for a confusion, differentiable in its rates; constants need no confusion.

    A vector over classes has shape (K,), over A groups of rows (A, 1) or (A, K), over pairs of groups (A, A, 1) or
    (A, A, K), the other group first.
    """

    def value(child: Node) -> Tensor:
        return evaluate(child, c, binding)

    if isinstance(node, Number):
        return torch.tensor(float(node.value), dtype=torch.float64)
    if isinstance(node, ClassCount):
        return torch.tensor(float(binding.classes or 0), dtype=torch.float64)
    if isinstance(node, Metric):
        values = _read_metric(node, c, binding)
        return values if node.index is None else values[members(node.index, node, binding)].mean()
    if isinstance(node, Each):
        return getattr(c, node.metric)[members(Group(node.group), node, binding)]
    if isinstance(node, Call):
        return MEANS[node.function](torch.cat([flatten(value(arg), arg) for arg in node.args]))
    if isinstance(node, By):
        return _read_groups(node, c, binding)
    if isinstance(node, EveryOther):
        return value(node.of)[:, None]
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
            raise binding.error("this divides by zero", factor)
        product = product * value(factor) if sign == "*" else product / value(factor)
    return product


def _read_metric(node: Metric, c: Confusion | None, binding: Binding) -> Tensor:
    """Return the values of a metric, (K,) or a scalar."""
    assert c is not None
    if node.name == "cost":
        if binding.costs is None:
            why = "cost needs a table of costs: pass costs=..., or --costs costs.csv on the command line"
            raise binding.error(why, node)
        return (binding.costs.matrix(binding.class_names, c.classes).to(c.matrix) * c.matrix).sum()
    if node.beta is not None:
        return c.fbeta(node.beta)
    if node.name == "abstain" and node.index is not None:
        return torch.zeros_like(c.prior) if c.abstained is None else c.abstained
    return getattr(c, node.name)


def _read_groups(node: By, c: Confusion | None, binding: Binding) -> Tensor:
    """Return the values of all groups of rows, (A, 1) or (A, K), or of one group, (K,) or a scalar."""
    parts = getattr(c, "by_group", None)
    if parts is None:
        why = f"'by {node.column}' needs the rates of each {node.column}: pass the group of every row"
        raise binding.error(why, node)
    if node.group is not None:
        return evaluate(node.of, parts[_find_group(node, binding)], binding)
    return torch.stack([torch.atleast_1d(evaluate(node.of, part, binding)) for part in parts])


def _find_group(node: By, binding: Binding) -> int:
    """Return the place of the group of rows that a tree names."""
    assert node.group is not None
    try:
        return binding.row_group_index(node.group)
    except InputError as error:
        raise binding.error(str(error), node) from None


def at_place(node: Node, place: tuple[int, int, int], binding: Binding) -> Node:
    """Return the tree of one entry: recall by sex → recall['cat'] by sex['f'], for a place of `list_places`."""
    other, group, k = place
    if isinstance(node, EveryOther):
        return at_place(node.of, (other, other, k), binding)
    if isinstance(node, By):
        name = node.group if node.group is not None else binding.row_groups[group]
        return replace(node, of=at_class(node.of, k, binding), group=name)
    if isinstance(node, (Metric, Each, Call)):
        return at_class(node, k, binding)
    return drop_double_minus(rebuild(node, lambda child: at_place(child, place, binding)))


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


def compare_groups(constraint: Any, is_negative: Callable[[Node], bool]) -> Any:
    """Return the bound with min(recall by sex) read as the recall in each other group, class by class.

    recall by sex - min(recall by sex) <= 0.05 holds if and only if it holds against each group instead of the lowest;
    a minimum that is limited from above has no such reading and stays.

    Args:
        constraint: a bound.
        is_negative: tells whether a constant factor is negative.
    """
    if is_whole_side(constraint):
        return constraint
    sides = (constraint.left, constraint.right) if constraint.sign == ">=" else (constraint.right, constraint.left)
    difference = Sum((("+", sides[0]), ("-", sides[1])))
    minima = [
        node
        for factor, node in addends(difference, Number(1))
        if isinstance(node, Call) and node.function == "min" and not is_negative(factor)
        if len(node.args) == 1 and has_groups(node.args[0])
    ]
    for node in minima:
        vector = node.args[0]
        other = EveryOther(vector, start=node.start, end=node.end) if has_groups(constraint) else vector
        constraint = exchange(constraint, node, other)
    return constraint


def drop_groups(tree: Any) -> Any:
    """Return a tree without "by": recall by region → recall."""
    return tree.of if isinstance(tree, By) else rebuild(tree, drop_groups)


def is_about_groups(tree: Node) -> bool:
    """Return whether each metric of a tree has a "by"."""
    if isinstance(tree, By):
        return True
    parts = children(tree)
    return is_constant(tree) or (bool(parts) and all(map(is_about_groups, parts)))


def is_whole_side(constraint: Constraint) -> bool:
    """Return whether a minimum is one side of a bound, so that the bound may be asked of every entry instead."""
    sides = (constraint.left, constraint.right)
    return any(isinstance(side, Call) and side.function == "min" for side in sides) and any(map(is_constant, sides))


def exchange(tree: Any, old: Node, new: Node) -> Any:
    """Return a tree with one part, the very object, exchanged for another."""
    if tree is old:
        return new
    if not any(node is old for node in walk(tree)):
        return tree
    return drop_double_minus(rebuild(tree, lambda child: exchange(child, old, new)))


def addends(node: Node, factor: Node) -> Iterator[tuple[Node, Node]]:
    """Flatten the objective into pairs of a constant factor and a term."""
    if isinstance(node, Sum):
        for sign, term in node.terms:
            yield from addends(term, factor if sign == "+" else Negative(factor))
    elif isinstance(node, Negative):
        yield from addends(node.of, Negative(factor))
    elif isinstance(node, Term) and sum(not is_constant(f) for _, f in node.factors) == 1:
        sign, metric_factor = next((sign, f) for sign, f in node.factors if not is_constant(f))
        if sign == "*":
            constants = tuple((sign, f) for sign, f in node.factors if is_constant(f))
            yield from addends(metric_factor, Term((("*", factor), *constants)))
        else:
            yield factor, node
    else:
        yield factor, node
