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
import torch
from scipy import sparse
from scipy.optimize import linprog
from torch import Tensor

from csst.errors import InputError
from csst.maths.language import Sentence
from csst.maths.language.meaning import evaluate, is_constant
from csst.maths.language.tree import By, Constraint, Metric, Node, Number, render, walk
from csst.maths.objectives import Objective
from csst.rules.metric_form import read_linear

#: what rounding may cost: a sum of bounds that is 1 by intention
TOLERANCE = 1e-7
#: the nearest bound is searched to this, among those at most so far away
SMALL_STEP = 1e-5
FARTHEST = 1e6
#: the status of `linprog` for a program without a solution
INFEASIBLE = 2
#: metrics that hits and coverage do not give
UNREAD = ("mcc", "abstain", "cost")
#: ratios of one class, (h d) / (a d + q + b pi): h, a and b
RATIOS = {"precision": (1.0, 0.0, 0.0), "f1": (2.0, 0.0, 1.0), "jaccard": (1.0, -1.0, 1.0)}


@dataclass(frozen=True, eq=False)
class Condition:
    """A constraint as fractions (top . x) / (bottom . x) >= 0 of x = (d, q, 1), one for each of its E entries.

    Args:
        constraint: as it is stated.
        tops: (E, 2 K + 1).
        bottoms: (E, 2 K + 1), with bottom . x >= 0.
        bound: the side that is a number, if one is, and its value.
    """

    constraint: Constraint
    tops: np.ndarray
    bottoms: np.ndarray
    bound: tuple[Literal["left", "right"], float] | None

    @classmethod
    def read(cls, constraint: Constraint, sentence: Sentence, prior: np.ndarray) -> Condition | None:
        """Return a constraint of a bound sentence under a class prior (K,); None if no linear program can hold it.

        An entry is a linear form of recall, coverage and specificity, or a number and one ratio of a single class.
        """
        nodes = list(walk(constraint))
        if any(isinstance(node, By) or getattr(node, "name", "") in UNREAD for node in nodes):
            return None
        betas = {node.beta for node in nodes if isinstance(node, Metric) and node.beta is not None}
        ratios = RATIOS | {f"fbeta {beta}": (1 + beta**2, 0.0, beta**2) for beta in betas}

        def value(side: Node, probe: Any = None) -> Tensor:
            return evaluate(side, probe, sentence.binding)

        def measure(probe: Any) -> Tensor:
            distance = value(constraint.left, probe) - value(constraint.right, probe)
            return torch.atleast_1d(distance if constraint.sign == ">=" else -distance)

        form = read_linear(measure, prior, ("recall", "coverage", "specificity", *ratios))
        if form is None:
            return None
        zero = np.zeros((len(form.constant), len(prior)))
        recall, coverage, specificity = (
            form.matrices.get(name, zero) for name in ("recall", "coverage", "specificity")
        )
        mistakes = specificity / (1 - prior)  # specificity = 1 - (q - d) / (1 - pi)
        tops = np.column_stack([recall / prior + mistakes, coverage - mistakes, form.constant + specificity.sum(1)])
        bottoms = np.zeros_like(tops)
        bottoms[:, -1] = 1
        for name, (hits, hits_below, rows_below) in ratios.items():
            matrix = form.matrices.get(name, zero)
            for entry, k in np.argwhere(matrix):
                if tops[entry, :-1].any():
                    return None
                bottoms[entry, [k, len(prior) + k, -1]] = hits_below, 1.0, rows_below * prior[k]
                tops[entry] = tops[entry, -1] * bottoms[entry]
                tops[entry, k] += matrix[entry, k] * hits
        bound: tuple[Literal["left", "right"], float] | None = None
        if is_constant(constraint.right):
            bound = "right", float(value(constraint.right))
        elif is_constant(constraint.left):
            bound = "left", float(value(constraint.left))
        return cls(constraint, tops, bottoms, bound)

    def rows(self, loosened: float = 0.0) -> np.ndarray:
        """Return a with a . x >= 0 for each entry, (E, 2 K + 1): fraction + loosened >= 0, multiplied out."""
        return self.tops + loosened * self.bottoms

    def describe(self, loosened: float = 0.0) -> str:
        """Return its text, with the bound loosened by so much."""
        constraint = self.constraint
        if loosened and self.bound is not None:
            side, value = self.bound
            is_least = (constraint.sign == ">=") == (side == "right")
            bound = Number(round_bound(value - loosened if is_least else value + loosened, is_least))
            constraint = replace(constraint, right=bound) if side == "right" else replace(constraint, left=bound)
        return render(constraint) + (" for every class" if len(self.tops) > 1 else "")


def refuse_impossible(objective: Objective, prior: np.ndarray) -> None:
    """Raise if no classifier whatever could meet the constraints of a bound sentence under a class prior (K,).

    The error names constraints that contradict each other, none of which could be left out, and the nearest bounds.
    """
    if not isinstance(objective, Sentence) or not objective.constraints or np.min(prior) <= 0:
        return
    prior = np.asarray(prior, dtype=np.float64)
    all_conditions = [Condition.read(constraint, objective, prior) for constraint in objective.constraints]
    conditions = [condition for condition in all_conditions if condition is not None]
    if not conditions or is_possible([condition.rows() for condition in conditions], prior):
        return
    conflict = conditions
    for condition in conditions:
        remainder = [member for member in conflict if member is not condition]
        if not is_possible([member.rows() for member in remainder], prior):
            conflict = remainder
    bounds = [text for text in (find_nearest(condition, conflict, prior) for condition in conflict) if text]
    remark = {1: "", 2: " with the other as it is"}.get(len(conflict), " with the others as they are")
    low = f"{prior.min():.3g}"
    high = f"{prior.max():.3g}"
    raise InputError(
        f"no classifier can meet {' together with '.join(condition.describe() for condition in conflict)}, whatever it "
        f"predicts, where classes have a fraction of {low if low == high else f'{low} to {high}'}: "
        + (f"the nearest is {' or '.join(bounds)}{remark}; " if bounds else "")
        + ("loosen the bound" if len(conflict) == 1 else "loosen one of the bounds")
    )


def is_possible(rows: list[np.ndarray], prior: np.ndarray) -> bool:
    """Return whether a confusion under a prior (K,) has a . x >= 0 for all rows a; True if that is uncertain."""
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
    """Return the constraint with the nearest bound that can be met beside the others; "" if there is none."""
    if condition.bound is None:
        return ""
    other_rows = [member.rows() for member in conflict if member is not condition]

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
        midpoint = (low + high) / 2
        low, high = (low, midpoint) if helps(midpoint) else (midpoint, high)
    return condition.describe(high)


def round_bound(bound: float, is_least: bool) -> float:
    """Round to three digits, so that the bound can still be met: down for a least value, up for a greatest."""
    if abs(bound) < SMALL_STEP:
        return 0.0
    unit = 10.0 ** (floor(log10(abs(bound))) - 2)
    steps = bound / unit
    # What is within the search's precision of a round number is meant to be it.
    whole_steps = round(steps) if abs(steps - round(steps)) < 2e-2 else floor(steps) if is_least else ceil(steps)
    return float(f"{whole_steps * unit:.3g}")
