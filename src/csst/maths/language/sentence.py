"""The objective of a sentence: its checks, its values and the names of its multipliers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.confusion import Confusion, head_tail
from csst.maths.costs import format_amount
from csst.maths.domains import Domain, NonNegative, Product, Simplex
from csst.maths.language.binding import Binding
from csst.maths.language.meaning import (
    addends,
    compare_groups,
    drop_groups,
    entries,
    evaluate,
    flatten,
    has_groups,
    has_pairs,
    is_about_groups,
    is_constant,
    list_entries,
    members,
    name_classes,
    reads,
    shape,
)
from csst.maths.language.tree import (
    By,
    Call,
    ClassCount,
    Constraint,
    Each,
    Group,
    Metric,
    Negative,
    Node,
    Number,
    Sum,
    render,
    walk,
)
from csst.maths.language.units import divide_by_units, measure_units
from csst.maths.objectives import MetricPrior, Objective

# Ratios whose denominator mixes classes: under two different priors the two players would play different games.
PRIOR_SENSITIVE = {"precision", "f1", "fbeta", "jaccard", "specificity", "mcc", "cost"}


@dataclass(frozen=True)
class Worst:
    """One min(...) of the objective with its constant factor, e.g. 0.5*min(recall)."""

    factor: Node
    call: Call


@dataclass(frozen=True, eq=False)
class Sentence(Objective):
    """max <objective> s.t. <constraints>. Made by `csst.objective`; two sentences are equal if they mean the same."""

    expression: Node
    constraints: tuple[Constraint, ...]
    binding: Binding = field(default_factory=Binding)
    epsilon: float = 1e-3
    floor: float = Simplex.floor
    metric_prior: MetricPrior = "train"
    confidence: float | None = None
    #: whether the sentence says "min"; its expression is then the negative of what it says
    minimizes: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < 1:
            raise InputError(f"epsilon must lie between 0 and 1; found {self.epsilon}")
        self._check_confidence()
        # A frozen dataclass sets its own fields this way; the tree is the same but for names in brackets.
        object.__setattr__(self, "expression", name_classes(self.expression, self.binding))
        self._check_column()
        constraints = tuple(compare_groups(name_classes(c, self.binding), self._is_negative) for c in self.constraints)
        object.__setattr__(self, "constraints", constraints)
        if shape(self.expression, self.binding) or has_groups(self.expression):
            unit = "group" if has_groups(self.expression) else "class"
            raise self.binding.error(
                f"the objective is a vector, one value per {unit}: choose mean(...) or min(...) of it", self.expression
            )
        if is_constant(self.expression):
            raise self.binding.error("the objective holds no metric, so there is nothing to maximize", self.expression)
        for constraint in self.constraints:
            shape(constraint, self.binding)
            if is_constant(constraint):
                raise self.binding.error("this constraint holds no metric, so no classifier can change it", constraint)
            for node in walk(constraint):
                if isinstance(node, Call) and node.function == "min":
                    raise self.binding.error(
                        "min cannot stand in this constraint: only 'min(...) >= number' and 'max(...) <= number' ask "
                        "something of every part",
                        node,
                    )
        self._check_references()
        _ = self.parts  # raises for a min that is not part of a max-min game

    @cached_property
    def reads_margins(self) -> bool:  # type: ignore[override]
        """Whether recall and coverage are all that the sentence reads: true unless a cost or abstention occurs."""
        return not self.mentions("cost") and not self.abstains

    @cached_property
    def abstains(self) -> bool:  # type: ignore[override]
        """Whether the classifier may give no answer: it may if the sentence says how often."""
        return self.mentions("abstain")

    @cached_property
    def column(self) -> str | None:  # type: ignore[override]
        """The column whose groups of rows the sentence names with "by"; None if it names none."""
        return next((node.column for node in self.walk() if isinstance(node, By)), None)

    @cached_property
    def ungrouped(self) -> Sentence:
        """The sentence as if all rows were one group: without "by", and without bounds that compare groups."""
        if self.column is None:
            return self
        constraints = tuple(drop_groups(c) for c in self.constraints if not has_pairs(c) and not _names_group(c))
        return replace(
            self,
            expression=drop_groups(self.expression),
            constraints=constraints,
            binding=replace(self.binding, row_groups=()),
        )

    @cached_property
    def of_one_group(self) -> Sentence:
        """What the sentence asks of each group by itself: its goal, and the bounds in which each metric has a "by"."""
        bounds = [c for c in self.constraints if not has_pairs(c) and not _names_group(c) and is_about_groups(c)]
        return replace(self, constraints=tuple(bounds)).ungrouped if self.column is not None else self

    @property
    def unpromised(self) -> Sentence:
        return self if self.confidence is None else replace(self, confidence=None)

    def bind_row_groups(self, row_groups: Sequence[str]) -> Sentence:
        """Return the sentence for the groups of rows of its column.

        Args:
            row_groups: the values of the column, A of them.

        Returns:
            The bound sentence.
        """
        if self.column is None:
            raise InputError(f"'{self}' names no groups of rows: write for instance max min(recall by region)")
        return replace(self, binding=self.binding.with_row_groups(row_groups))

    @cached_property
    def answering(self) -> Sentence:
        """The sentence for a classifier that always answers: without bounds on abstention.

        A sentence that minimizes abstention becomes the mean recall under its other bounds.
        """
        if not self.abstains:
            return self
        goal = self.expression
        is_goal = reads(goal, "abstain")
        constraints = tuple(constraint for constraint in self.constraints if not reads(constraint, "abstain"))
        plain = Call("mean", (Metric("recall"),))
        return replace(
            self,
            expression=plain if is_goal else goal,
            minimizes=False if is_goal else self.minimizes,
            constraints=constraints,
            confidence=self.confidence if constraints else None,
        )

    def walk(self) -> Iterator[Node]:
        """Yield all parts of the goal and of the constraints."""
        for tree in (self.expression, *self.constraints):
            yield from walk(tree)

    def mentions(self, metric: str) -> bool:
        """Return whether a metric occurs in the sentence."""
        return any(reads(tree, metric) for tree in (self.expression, *self.constraints))

    def as_stated(self, value: float) -> float:
        return -value if self.minimizes else value

    def describe_value(self, value: float) -> str:
        has_cost = reads(self.expression, "cost")
        # A cost in a large unit is a small number.
        number = format_amount(self.as_stated(value), min(1.0, abs(value)) if has_cost and value else 1.0)
        # Only a goal that is the cost itself has its unit.
        is_cost = self.minimizes and self.expression == Negative(Metric("cost"))
        unit = self.binding.costs.unit if is_cost and self.binding.costs is not None else ""
        return f"{number} {unit} a row" if unit else number

    @cached_property
    def parts(self) -> tuple[tuple[tuple[Node, Node], ...], tuple[Worst, ...]]:
        """The objective as a sum: (factor, smooth term)s, and the worst cases."""
        smooth_terms = []
        worst_cases = []
        for factor, node in addends(self.expression, Number(1)):
            if isinstance(node, Call) and node.function == "min":
                if self._is_negative(factor):
                    raise self.binding.error(
                        "min with a negative factor is not a max-min game: it would reward the worst class", node
                    )
                worst_cases.append(Worst(factor, node))
                node = Sum(tuple(("+", arg) for arg in node.args))  # only its insides are searched below
            else:
                smooth_terms.append((factor, node))
            for child in walk(node):
                if isinstance(child, Call) and child.function == "min":
                    why = "it may carry a constant factor >= 0 and be added to other terms, no more"
                    raise self.binding.error(f"min inside another expression is not a max-min game: {why}", child)
        return tuple(smooth_terms), tuple(worst_cases)

    def _is_negative(self, factor: Node) -> bool:
        """Return whether a constant factor is negative; False while it depends on an unknown K."""
        needs_classes = any(isinstance(n, ClassCount) for n in walk(factor))
        if needs_classes and not self.binding.classes:
            return False
        return float(evaluate(factor, None, self.binding)) < 0

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        worst_cases = self.parts[1]
        simplex = Simplex(self.floor)
        # One worst case, or constraints alone, need no sizes, so that the classes may still be unknown.
        if len(worst_cases) == 1 and not self.constraints:
            return simplex
        if self.constraints and not worst_cases:
            return NonNegative()
        parts: list[tuple[Domain, int | None]] = [(simplex, self._size(case)) for case in worst_cases]
        if self.constraints:
            parts.append((NonNegative(), None))
        return Product(tuple(parts))

    def utility(self, c: Confusion) -> Tensor:
        binding = self._binding_for(c)
        total = c.rates.new_zeros(())
        for factor, node in self.parts[0]:
            total = total + evaluate(factor, c, binding) * evaluate(node, c, binding)
        return total

    def payoff(self, c: Confusion) -> Tensor:
        binding = self._binding_for(c)
        pieces = [c.rates.new_zeros(0)]
        for case in self.parts[1]:
            factor = evaluate(case.factor, c, binding)
            pieces += [factor * flatten(evaluate(arg, c, binding), arg) for arg in case.call.args]
        for constraint in self.constraints:
            left = evaluate(constraint.left, c, binding)
            right = evaluate(constraint.right, c, binding)
            pieces.append(flatten(left - right if constraint.sign == ">=" else right - left, constraint))
        return torch.cat(pieces)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """recall['cat'] for an entry of a worst case, coverage['cat'] >= 0.95/K for a constraint."""
        self._need_classes()
        nodes = [arg for case in self.parts[1] for arg in case.call.args]
        trees = [entry for node in (*nodes, *self.constraints) for entry in list_entries(node, self.binding)]
        return tuple(map(render, trees))

    def measure_units(self, prior: Tensor) -> tuple[float, tuple[float, ...]]:
        return measure_units(self, prior)

    def divide_by_units(self, prior: Tensor) -> Sentence:
        return divide_by_units(self, prior)

    def value(self, c: Confusion) -> Tensor:
        return Objective.value(self._bound_to(c), c)

    def slack(self, c: Confusion) -> Tensor:
        return Objective.slack(self._bound_to(c), c)

    def bind(
        self, classes: int, class_names: Sequence[str] | None = None, groups: Mapping[str, Sequence[Any]] | None = None
    ) -> Sentence:
        return replace(self, binding=self.binding.extended(classes, class_names, groups))

    def bind_prior(self, train_prior: Tensor) -> Sentence:
        groups = {name: group for name, group in head_tail(train_prior).items() if self.binding.group(name) is None}
        return self.bind(len(train_prior), groups=groups)

    def __str__(self) -> str:
        constraints = ", ".join(map(render, self.constraints))
        bounds = f" s.t. {constraints}" if constraints else ""
        promise = "" if self.confidence is None else f" with confidence {self.confidence!r}"
        if self.minimizes:
            assert isinstance(self.expression, Negative)
            return f"min {render(self.expression.of)}{bounds}{promise}"
        return f"max {render(self.expression)}{bounds}{promise}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sentence) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        meaning = (self.expression, self.constraints, self.confidence, self.minimizes)
        return (*meaning, self.binding, self.epsilon, self.floor, self.metric_prior)

    def _size(self, case: Worst) -> int:
        self._need_classes()
        return sum(entries(arg, self.binding) for arg in case.call.args)

    def _need_classes(self) -> None:
        if self.binding.classes is None:
            raise InputError(f"the classes of '{self}' are not known yet: call objective.bind(classes) first")

    def _bound_to(self, c: Confusion) -> Sentence:
        return self if self.binding.classes is not None else self.bind(c.classes)

    def _binding_for(self, c: Confusion) -> Binding:
        return self.binding if self.binding.classes == c.classes else self.binding.extended(c.classes, None, None)

    def _check_confidence(self) -> None:
        if self.confidence is None:
            return
        if not 0 < self.confidence < 1:
            raise InputError(f"a confidence lies between 0 and 1, such as 0.95; found {self.confidence!r}")
        if not self.constraints:
            raise InputError(
                f"a confidence is for bounds, and '{replace(self, confidence=None)}' has none: add s.t. and a bound, "
                "or leave it out"
            )

    def _check_column(self) -> None:
        """Raise an error if the groups of rows are of two columns, or stand where they cannot."""
        nodes = [node for node in self.walk() if isinstance(node, By)]
        for node in nodes:
            if node.column != nodes[0].column:
                raise self.binding.error(
                    f"a sentence has groups of one column; found {nodes[0].column!r} and {node.column!r}: join both "
                    "into one column",
                    node,
                )
            if node.group is not None and self.binding.row_groups:
                self.binding.row_group_index(node.group)
        if self.abstains and self.mentions("cost"):
            raise InputError(
                f"abstain and cost cannot stand in one sentence: a table of costs has no price of no answer; found "
                f"'{self}': leave one out"
            )
        for metric in ("abstain", "cost"):
            if nodes and self.mentions(metric):
                why = f"groups of rows and {metric} cannot stand in one sentence: leave one out"
                raise self.binding.error(why, nodes[0])

    def _check_references(self) -> None:
        for node in self.walk():
            index = getattr(node, "index", None)
            if isinstance(node, Each):
                index = Group(node.group)
            if isinstance(index, Group) and (self.binding.class_names or self.binding.groups):
                members(index, node, self.binding, may_wait=True)
            elif isinstance(index, int) or (isinstance(index, str) and self.binding.class_names is not None):
                members(index, node, self.binding)


def _names_group(constraint: Constraint) -> bool:
    """Return whether a bound is about a single group of rows."""
    return any(isinstance(node, By) and node.group is not None for node in walk(constraint))


def default_metric_prior(goal: Node, constraints: Sequence[Constraint]) -> MetricPrior:
    """Return "evaluation" if precision, F1 or Jaccard occurs, else "train", as in the paper."""
    nodes = [node for tree in (goal, *constraints) for node in walk(tree)]
    names = {node.name for node in nodes if isinstance(node, Metric)}
    names |= {node.metric for node in nodes if isinstance(node, Each)}
    return "evaluation" if names & PRIOR_SENSITIVE else "train"
