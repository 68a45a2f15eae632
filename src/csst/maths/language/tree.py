"""The tree of an objective sentence, and its text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Node:
    """A part of the tree; `start` and `end` are its place in the text, used only to point at it in errors."""

    start: int = field(default=0, compare=False, kw_only=True)
    end: int = field(default=0, compare=False, kw_only=True)


@dataclass(frozen=True)
class Number(Node):
    value: float


@dataclass(frozen=True)
class ClassCount(Node):
    """K."""


@dataclass(frozen=True)
class Metric(Node):
    """recall, recall[3], recall['fraud'], recall[head] or fbeta(2); `index` is None, a class or a `Group`."""

    name: str
    index: int | str | Group | None = None
    beta: float | None = None


@dataclass(frozen=True)
class Group:
    name: str


@dataclass(frozen=True)
class Each(Node):
    """each(recall, head): the metric's vector over a group."""

    metric: str
    group: str


@dataclass(frozen=True)
class By(Node):
    """recall by region: one value for each group of rows; recall by region['north'] is that of one group."""

    of: Node
    column: str
    group: str | None = None


@dataclass(frozen=True)
class EveryOther(Node):
    """min(recall by region) in a bound on differences: the value of each other group, class by class."""

    of: Node


@dataclass(frozen=True)
class Call(Node):
    function: str
    args: tuple[Node, ...]


@dataclass(frozen=True)
class Sum(Node):
    terms: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Term(Node):
    """Factors joined by * and /."""

    factors: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Negative(Node):
    of: Node


@dataclass(frozen=True)
class Constraint(Node):
    left: Node
    sign: str
    right: Node


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Call):
        return node.args
    if isinstance(node, Sum):
        return tuple(n for _, n in node.terms)
    if isinstance(node, Term):
        return tuple(n for _, n in node.factors)
    if isinstance(node, Constraint):
        return (node.left, node.right)
    return (node.of,) if isinstance(node, (Negative, By, EveryOther)) else ()


def rebuild(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the node with `change` applied to each of its children."""
    if isinstance(node, Call):
        return replace(node, args=tuple(map(change, node.args)))
    if isinstance(node, Sum):
        return replace(node, terms=tuple((sign, change(n)) for sign, n in node.terms))
    if isinstance(node, Term):
        return replace(node, factors=tuple((sign, change(n)) for sign, n in node.factors))
    if isinstance(node, Constraint):
        return replace(node, left=change(node.left), right=change(node.right))
    return replace(node, of=change(node.of)) if isinstance(node, (Negative, By, EveryOther)) else node


def name_calls(node: Node, functions: Collection[str], name: str) -> tuple[Node, list[Call]]:
    """Replace every call of some functions by a metric of its own, "NAME 0", "NAME 1" and so on.

    Args:
        node: a tree.
        functions: names of functions.
        name: how the names of the metrics begin.

    Returns:
        The tree, and the calls in the order of their numbers.
    """
    calls: list[Call] = []

    def change(part: Node) -> Node:
        if not isinstance(part, Call) or part.function not in functions:
            return rebuild(part, change)
        calls.append(part)
        return Metric(f"{name} {len(calls) - 1}", 0)

    return change(node), calls


def drop_double_minus(node: Node) -> Node:
    """Return x for -(-x), and any other node itself."""
    return node.of.of if isinstance(node, Negative) and isinstance(node.of, Negative) else node


def read_largest(node: Negative) -> tuple[Node, ...]:
    """Return the parts a, b of max(a, b), which is -min(-a, -b); () for the negative of anything else."""
    if isinstance(node.of, EveryOther):
        args: tuple[Node, ...] = (node.of.of,)
    elif isinstance(node.of, Call) and node.of.function == "min":
        args = node.of.args
    else:
        return ()
    parts = tuple(arg.of for arg in args if isinstance(arg, Negative))
    return parts if len(parts) == len(args) else ()


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in children(node):
        yield from walk(child)


def render(node: Node, level: int = 0) -> str:
    """Return the text of a tree with the fewest brackets; it parses to that tree. level: 0 sum, 1 term, 2 factor."""
    if isinstance(node, Constraint):
        return f"{render(node.left)} {node.sign} {render(node.right)}"
    if isinstance(node, Sum):
        text = render(node.terms[0][1], 1) + "".join(f" {sign} {render(n, 1)}" for sign, n in node.terms[1:])
        return f"({text})" if level >= 1 else text
    if isinstance(node, Term):
        text = render(node.factors[0][1], 2) + "".join(f"{sign}{render(n, 2)}" for sign, n in node.factors[1:])
        return f"({text})" if level >= 2 else text
    if isinstance(node, Negative):
        largest = read_largest(node)
        return f"max({', '.join(map(render, largest))})" if largest else f"-{render(node.of, 2)}"
    if isinstance(node, Metric):
        name = node.name if node.beta is None else f"{node.name}({node.beta:.17g})"
        return name if node.index is None else f"{name}[{_index(node.index)}]"
    if isinstance(node, Each):
        return f"each({node.metric}, {node.group})"
    if isinstance(node, By):
        column = node.column if node.column.isidentifier() else _index(node.column)
        return f"{render(node.of, 2)} by {column}" + ("" if node.group is None else f"[{_index(node.group)}]")
    if isinstance(node, EveryOther):
        return f"min({render(node.of)})"
    if isinstance(node, Call):
        return f"{node.function}({', '.join(render(arg) for arg in node.args)})"
    return repr(node.value) if isinstance(node, Number) else "K"


def _index(index: int | str | Group) -> str:
    if isinstance(index, Group):
        return index.name
    if isinstance(index, int):
        return str(index)
    return "'" + index.replace("\\", "\\\\").replace("'", "\\'") + "'"
