"""Whether any classifier at all could meet the constraints of a sentence: asked before anything is trained.

Under class fractions pi a classifier is a confusion C >= 0 whose rows sum to pi, and a sentence reads its hits
d_k = C_kk and its coverage q_k = sum_i C_ik only. Such numbers belong to a confusion if and only if

    0 <= d_k <= min(pi_k, q_k),     sum_k q_k = 1,     (pi_k - d_k) + (q_k - d_k) <= 1 - sum_j d_j,

the last because what is wrong about class k, missed or predicted, needs another class. Constraints that are linear in d
and q, or compare a ratio of such with a number (precision, F1, Jaccard), make this a linear program. Others are left
alone, so that a sentence is refused only if it contradicts itself for certain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import Any, Literal

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from csst.errors import InputError
from csst.maths.language import Sentence
from csst.maths.language.meaning import NUMBERS, at_class, entries, evaluate, is_constant, members
from csst.maths.language.tree import By, Call, Constraint, Metric, Negative, Node, Number, Sum, Term, render, walk
from csst.maths.objectives import Objective

#: what rounding may cost: a sum of bounds that is 1 by intention
TOLERANCE = 1e-7
#: the nearest bound is searched to this, among those at most so far away
SMALL_STEP = 1e-5
FARTHEST = 1e6
#: the status of `linprog` for a program without a solution
INFEASIBLE = 2


@dataclass(frozen=True, eq=False)
class Fraction:
    """(top . x) / (bottom . x) of x = (d, q, 1), with bottom . x >= 0.

    Args:
        top: (2 K + 1,).
        bottom: (2 K + 1,); None for 1.
    """

    top: np.ndarray
    bottom: np.ndarray | None = None

    def times(self, factor: float) -> Fraction:
        return replace(self, top=factor * self.top)

    def plus(self, other: Fraction) -> Fraction | None:
        """The sum, where it is such a fraction again: of linear terms, or of one ratio and a number."""
        if self.bottom is None and other.bottom is None:
            return Fraction(self.top + other.top)
        ratio, number = (self, other) if self.bottom is not None else (other, self)
        if number.bottom is not None or number.top[:-1].any():
            return None
        assert ratio.bottom is not None
        return Fraction(ratio.top + number.top[-1] * ratio.bottom, ratio.bottom)


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads the parts of a bound sentence as fractions under a class prior pi, (K,)."""

    sentence: Sentence
    prior: np.ndarray

    def read(self, node: Node) -> Fraction | None:
        """A scalar part as a fraction; None where it is not one."""
        if is_constant(node):
            return self.number(self.value(node))
        if isinstance(node, Metric):
            return self._metric(node)
        if isinstance(node, Negative):
            fraction = self.read(node.of)
            return None if fraction is None else fraction.times(-1)
        if isinstance(node, Sum):
            return self._add([Negative(part) if sign == "-" else part for sign, part in node.terms])
        if isinstance(node, Term):
            return self._product(node)
        if isinstance(node, Call) and node.function == "mean":
            parts = [at_class(arg, k, self.sentence.binding) for arg in node.args for k in range(self.size(arg))]
            total = self._add(parts)
            return None if total is None else total.times(1 / len(parts))
        return None

    def number(self, value: float) -> Fraction:
        top = np.zeros(2 * len(self.prior) + 1)
        top[-1] = value
        return Fraction(top)

    def value(self, node: Node) -> float:
        return float(evaluate(node, None, self.sentence.binding, self.sentence.text))

    def size(self, node: Node) -> int:
        return entries(node, self.sentence.binding, self.sentence.text)

    def _metric(self, node: Metric) -> Fraction | None:
        if node.name == "accuracy":
            return Fraction(self._vector(hits=np.arange(len(self.prior))))
        if node.name in NUMBERS:
            return None
        assert node.index is not None
        classes = np.array(members(node.index, node, self.sentence.binding, self.sentence.text))
        if node.name == "recall":
            return Fraction(self._vector(hits=classes, weight=1 / (len(classes) * self.prior[classes])))
        if node.name == "coverage":
            return Fraction(self._vector(coverage=classes, weight=1 / len(classes)))
        if len(classes) > 1:  # a mean of ratios
            return None
        hits = self._vector(hits=classes)
        coverage = self._vector(coverage=classes)
        share = float(self.prior[classes[0]])
        if node.name == "specificity":
            return Fraction(self.number(1.0).top - (coverage - hits) / (1 - share))
        if node.beta is not None:
            weight = node.beta**2
            return Fraction((1 + weight) * hits, coverage + self.number(weight * share).top)
        union = coverage + self.number(share).top
        tops = {"precision": hits, "f1": 2 * hits, "jaccard": hits}
        bottoms = {"precision": coverage, "f1": union, "jaccard": union - hits}
        return Fraction(tops[node.name], bottoms[node.name])

    def _vector(self, hits: Any = (), coverage: Any = (), weight: Any = 1.0) -> np.ndarray:
        """The coefficients of the hits or the coverage of these classes, (2 K + 1,)."""
        top = self.number(0.0).top
        classes = len(self.prior)
        top[[*hits, *(classes + k for k in coverage)]] = weight
        return top

    def _add(self, nodes: list[Node]) -> Fraction | None:
        total: Fraction | None = self.number(0.0)
        for node in nodes:
            part = self.read(node)
            total = None if total is None or part is None else total.plus(part)
        return total

    def _product(self, node: Term) -> Fraction | None:
        metrics = [(sign, part) for sign, part in node.factors if not is_constant(part)]
        if len(metrics) != 1 or metrics[0][0] == "/":
            return None
        factor = 1.0
        for sign, part in node.factors:
            if is_constant(part):
                factor = factor * self.value(part) if sign == "*" else factor / self.value(part)
        fraction = self.read(metrics[0][1])
        return None if fraction is None else fraction.times(factor)


@dataclass(frozen=True, eq=False)
class Condition:
    """A constraint as fractions that are to be >= 0, one for each of its entries.

    bound: the side that is a number, if one is, and its value.
    """

    constraint: Constraint
    payoffs: tuple[Fraction, ...]
    bound: tuple[Literal["left", "right"], float] | None

    @classmethod
    def read(cls, constraint: Constraint, reader: Reader) -> Condition | None:
        """None for a constraint that no linear program can hold, or that is about groups of rows."""
        if any(isinstance(node, By) for node in walk(constraint)):
            return None
        payoffs = []
        for k in range(reader.size(constraint)):
            entry = at_class(constraint, k, reader.sentence.binding)
            assert isinstance(entry, Constraint)
            high, low = (entry.left, entry.right) if entry.sign == ">=" else (entry.right, entry.left)
            high_side = reader.read(high)
            low_side = reader.read(low)
            payoff = None if high_side is None or low_side is None else high_side.plus(low_side.times(-1))
            if payoff is None:
                return None
            payoffs.append(payoff)
        if is_constant(constraint.right):
            return cls(constraint, tuple(payoffs), ("right", reader.value(constraint.right)))
        if is_constant(constraint.left):
            return cls(constraint, tuple(payoffs), ("left", reader.value(constraint.left)))
        return cls(constraint, tuple(payoffs), None)

    def rows(self, loosened: float = 0.0) -> np.ndarray:
        """a with a . x >= 0 for each entry, (entries, 2 K + 1): payoff + loosened >= 0, multiplied out."""
        unit = np.zeros(len(self.payoffs[0].top))
        unit[-1] = 1
        return np.stack([p.top + loosened * (unit if p.bottom is None else p.bottom) for p in self.payoffs])

    def describe(self, loosened: float = 0.0) -> str:
        """Its text, with the bound loosened by so much."""
        constraint = self.constraint
        if loosened and self.bound is not None:
            side, value = self.bound
            is_least = (constraint.sign == ">=") == (side == "right")
            bound = Number(round_bound(value - loosened if is_least else value + loosened, is_least))
            constraint = replace(constraint, right=bound) if side == "right" else replace(constraint, left=bound)
        return render(constraint) + (" for every class" if len(self.payoffs) > 1 else "")


def refuse_impossible(objective: Objective, prior: np.ndarray) -> None:
    """Raise if no classifier whatever could meet the constraints of a bound sentence under a class prior (K,).

    The error names constraints that contradict each other, none of which could be left out, and the nearest bounds.
    """
    if not isinstance(objective, Sentence) or not objective.constraints or np.min(prior) <= 0:
        return
    reader = Reader(objective, np.asarray(prior, dtype=np.float64))
    all_conditions = [Condition.read(constraint, reader) for constraint in objective.constraints]
    conditions = [condition for condition in all_conditions if condition is not None]
    if not conditions or is_possible([condition.rows() for condition in conditions], reader.prior):
        return
    conflict = conditions
    for condition in conditions:
        remainder = [kept_condition for kept_condition in conflict if kept_condition is not condition]
        if not is_possible([kept_condition.rows() for kept_condition in remainder], reader.prior):
            conflict = remainder
    bounds = [text for text in (find_nearest(condition, conflict, reader.prior) for condition in conflict) if text]
    remark = {1: "", 2: " with the other as it is"}.get(len(conflict), " with the others as they are")
    low = f"{reader.prior.min():.3g}"
    high = f"{reader.prior.max():.3g}"
    raise InputError(
        f"no classifier can meet {' together with '.join(condition.describe() for condition in conflict)}, whatever it "
        f"predicts, where classes have a fraction of {low if low == high else f'{low} to {high}'}: "
        + (f"the nearest is {' or '.join(bounds)}{remark}; " if bounds else "")
        + ("loosen the bound" if len(conflict) == 1 else "loosen one of the bounds")
    )


def is_possible(rows: list[np.ndarray], prior: np.ndarray) -> bool:
    """Whether some confusion under a prior (K,) has a . x >= 0 for all these rows a; True where it is not certain."""
    classes = len(prior)
    unit = sparse.identity(classes)
    column = sparse.csr_matrix(np.ones((classes, 1)))
    # x = (d, q, sum of d), each row at most its bound:  d - q <= 0  and  q - 2 d + sum d <= 1 - pi
    blocks = [sparse.hstack([unit, -unit, 0 * column]), sparse.hstack([-2 * unit, unit, column])]
    bounds = [np.zeros(classes), 1 - prior]
    for part in rows:
        blocks.append(sparse.csr_matrix(np.hstack([-part[:, :-1], np.zeros((len(part), 1))])))
        bounds.append(part[:, -1])
    sums = np.zeros((2, 2 * classes + 1))  # of coverage: 1; of hits less their sum: 0
    sums[0, classes:-1] = 1
    sums[1, :classes] = 1
    sums[1, -1] = -1
    result = linprog(
        np.zeros(2 * classes + 1),
        A_ub=sparse.vstack(blocks),
        b_ub=np.concatenate(bounds) + TOLERANCE,
        A_eq=sparse.csr_matrix(sums),
        b_eq=np.array([1.0, 0.0]),
        bounds=[*((0, p) for p in prior), *[(0, 1)] * (classes + 1)],
    )
    return result.status != INFEASIBLE


def find_nearest(condition: Condition, conflict: list[Condition], prior: np.ndarray) -> str:
    """The constraint with the bound that is nearest and can be met beside the others; "" where there is none."""
    if condition.bound is None:
        return ""
    other_rows = [kept_condition.rows() for kept_condition in conflict if kept_condition is not condition]

    def helps(loosened: float) -> bool:
        return is_possible([*other_rows, condition.rows(loosened)], prior)

    low = 0.0
    high = 1.0
    while not helps(high):
        low = high
        high = 2 * high
        if high > FARTHEST:
            return ""
    while high - low > SMALL_STEP * high:
        middle = (low + high) / 2
        low, high = (low, middle) if helps(middle) else (middle, high)
    return condition.describe(high)


def round_bound(bound: float, is_least: bool) -> float:
    """To three digits, so that it can still be met: down for a least value, up for a greatest."""
    if abs(bound) < SMALL_STEP:
        return 0.0
    unit = 10.0 ** (floor(log10(abs(bound))) - 2)
    steps = bound / unit
    # What is within the search's precision of a round number is meant to be it.
    whole_steps = round(steps) if abs(steps - round(steps)) < 2e-2 else floor(steps) if is_least else ceil(steps)
    return float(f"{whole_steps * unit:.3g}")
