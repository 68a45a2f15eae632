"""Bounds that compare groups of rows with each other, and sums as their terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from csst.maths.language.meaning import has_groups, is_constant
from csst.maths.language.tree import (
    By,
    Call,
    Constraint,
    EveryOther,
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
