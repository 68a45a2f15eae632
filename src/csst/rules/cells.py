"""Sentences about groups of rows: scores and objectives of cells, one for every group and class.

A row has scores in the block of its group and `NEVER` elsewhere, so that rules for classes become rules for groups:
with one bias per cell, one rule for each group; with tied biases, one rule for all.

    one rule for all       s_ak = T z_k + a_k                                       the group is not looked at
    one rule per group     s_ak = log q_ak - log P(k | a),     q_a = softmax(tau_a (T z + a + log pi) + delta_a)

q_a are the class probabilities in group a: tau_a and delta_a correct them as far as the labels of the group say, and a
ridge draws them to 1 and 0, for a model that has seen the group already, or few labels. An unlabeled row without a
group counts for each group as often as rows of its class are in it.

A classifier that knows the group a of a row answers with a cell (a, j). The confusion of cells is 0 between groups, its
prior is P_ak = P(group a, y = k), and what a sentence reads follows from recall and coverage of the cells:

    recall_ak, precision_ak, f1_ak ... in group a     are those of the cell
    coverage_ak in group a                            q_ak / sum_k P_ak
    recall_k of all rows                              sum_a P_ak r_ak / sum_a P_ak
    coverage_k of all rows                            sum_a q_ak

So rules, errors and intervals for classes serve groups as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import softmax
from torch import Tensor

from csst.errors import InputError
from csst.estimation.calibration import RIDGE, Calibration, calibration_loss
from csst.estimation.held_out_scores import Blocks, HeldOutScores
from csst.maths.confusion import Confusion, confusion_from_margins
from csst.maths.domains import Domain
from csst.maths.language import Sentence
from csst.maths.objectives import Objective

#: the score of a row in the block of another group
NEVER = -1e4
#: unlabeled rows at most, after each row without a group was taken once for every group
MOST_ROWS = 10_000
#: metrics that a cell has as a class has them, each read from the confusion of cells
CELL_METRICS = ("recall", "coverage", "precision", "f1", "jaccard")


@dataclass(frozen=True, eq=False)
class RowGroups:
    """The groups of the rows that a rule is fitted on.

    Args:
        column: the column that the groups are of.
        names: its values, A of them.
        labeled: the group of every labeled row, (n,).
        unlabeled: the group of every unlabeled row, (m,); -1 where it is not known.
    """

    column: str
    names: tuple[str, ...]
    labeled: np.ndarray
    unlabeled: np.ndarray

    def __post_init__(self) -> None:
        if len(self.names) < 2:
            raise InputError(
                f"groups need a column with at least 2 values; {self.column!r} has {list(self.names)}: leave "
                f"'by {self.column}' out"
            )
        if (self.labeled < 0).any():
            count = int((self.labeled < 0).sum())
            raise InputError(f"each labeled row needs its {self.column}; {count} of {len(self.labeled)} have none")
        counts = np.bincount(self.labeled, minlength=len(self.names))
        if not counts.all():
            name = self.names[int(counts.argmin())]
            raise InputError(f"{self.column} {name!r} has no labeled row: label some, or merge it with another group")

    def sample(self, limit: int, seed: int) -> RowGroups:
        """Return the groups of the unlabeled rows that `HeldOutScores.from_probs` samples with this seed.

        Args:
            limit: unlabeled rows that are used.
            seed: seed of the choice.

        Returns:
            The groups of labeled rows and of those unlabeled rows.
        """
        if len(self.unlabeled) <= limit:
            return self
        order = np.random.default_rng(seed).permutation(len(self.unlabeled))
        return replace(self, unlabeled=self.unlabeled[np.sort(order[:limit])])

    def require_rows(self, evidence: HeldOutScores) -> None:
        """Raise an error unless there is one group for each row.

        Args:
            evidence: scores of labeled rows, (n, K), and of unlabeled rows, (m, K).
        """
        sizes = (len(self.labeled), len(self.unlabeled))
        if sizes != (len(evidence.labels), len(evidence.unlabeled_scores)):
            raise InputError(
                f"each row needs one {self.column}; found {sizes[0]} for {len(evidence.labels)} labeled rows and "
                f"{sizes[1]} for {len(evidence.unlabeled_scores)} unlabeled rows"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class CellScores(HeldOutScores):
    """Scores of cells, calibrated; labels are cells, too.

    Args:
        layout: how cells fall into groups.
        labeled_weights: how far each labeled row is in each cell, as if unlabeled, (n, A K).
        unlabeled_weights: how far each unlabeled row is in each cell, (m, A K).
        plain: the scores of classes behind them.
        groups: the groups of the rows.
        class_prior: the deployment prior, (K,).
        temperature: factor of z in each group, (A,).
        shift: what is added to it, (A, K).
    """

    layout: Blocks
    labeled_weights: np.ndarray
    unlabeled_weights: np.ndarray
    plain: HeldOutScores
    groups: RowGroups
    class_prior: np.ndarray
    temperature: np.ndarray
    shift: np.ndarray
    labeled_fields = ("scores", "labels", "labeled_weights")
    unlabeled_fields = ("unlabeled_scores", "unlabeled_weights")

    @property
    def cell_prior(self) -> np.ndarray:
        """P_ak, (A, K), of sum 1."""
        return self.labeled_prior.reshape(self.shift.shape)

    @property
    def blocks(self) -> Blocks:
        return self.layout

    @cached_property
    def calibration(self) -> Calibration:
        return Calibration.identity(self.classes)

    @cached_property
    def unlabeled_prior(self) -> np.ndarray:
        weights = self.soft_posterior.sum(0)
        return weights / weights.sum()

    @cached_property
    def posterior(self) -> np.ndarray:
        return self.unlabeled_weights

    @cached_property
    def labeled_posterior(self) -> np.ndarray:
        return self.labeled_weights

    @property
    def information(self) -> float:
        return self.plain.information

    @property
    def information_error(self) -> float:
        return self.plain.information_error

    @property
    def is_constant(self) -> bool:
        return self.plain.is_constant


@dataclass(frozen=True, eq=False)
class GroupCalibration:
    """tau_a, (A,), and delta_a, (A, K), by which the class probabilities of groups differ from those of all rows."""

    factor: np.ndarray
    bias: np.ndarray

    @classmethod
    def fit(cls, logits: np.ndarray, labels: np.ndarray, groups: RowGroups) -> GroupCalibration:
        """Fit labels (n,) with logits of all rows (n, K), each group for itself."""
        start = np.zeros(logits.shape[1] + 1)
        solutions = []
        for group in range(len(groups.names)):
            rows = groups.labeled == group
            data = (logits[rows], labels[rows], np.ones(rows.sum()), RIDGE)
            solutions.append(minimize(calibration_loss, start, args=data, jac=True, method="L-BFGS-B").x)
        parameters = np.stack(solutions)
        return cls(np.exp(parameters[:, -1]), parameters[:, :-1])

    def apply(self, logits: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Return class probabilities of rows in their groups, (N, K), from logits of all rows."""
        return softmax(self.factor[groups][:, None] * logits + self.bias[groups], axis=1)


def make_cells(evidence: HeldOutScores, groups: RowGroups, prior: np.ndarray, are_tied: bool) -> CellScores:
    """Return the rows of the evidence as rows of cells.

    Args:
        evidence: scores of classes.
        groups: the groups of its rows.
        prior: the deployment prior, (K,).
        are_tied: whether one rule serves all groups.
    """
    number = len(groups.names)
    counts = count_cells(evidence, groups)
    shares = counts.sum(1) / counts.sum()
    # One more row of each class, spread as all rows are: no cell has a prior of 0.
    group_of_class = (counts + shares[:, None]) / (counts.sum(0) + 1)
    cell_prior = prior * group_of_class
    calibration = evidence.calibration
    logits = calibration.apply(evidence.scores) + np.log(np.maximum(evidence.fractions, 1e-12))
    of_groups = GroupCalibration.fit(logits, evidence.labels, groups)
    temperature = np.full(number, calibration.temperature)
    shift = np.tile(calibration.bias, (number, 1))
    if not are_tied:
        temperature = of_groups.factor * temperature
        shift = of_groups.factor[:, None] * (calibration.bias + np.log(np.maximum(evidence.fractions, 1e-12)))
        shift = shift + of_groups.bias - np.log(cell_prior / cell_prior.sum(1, keepdims=True))
    rows, blocks, weights = weigh_unlabeled(evidence, groups, of_groups, group_of_class)
    argmax_bias = temperature[:, None] * np.log(evidence.train_prior) - shift
    return CellScores(
        scores=place_scores(evidence.scores, groups.labeled, temperature, shift),
        labels=groups.labeled * evidence.classes + evidence.labels,
        unlabeled_scores=place_scores(evidence.unlabeled_scores[rows], blocks, temperature, shift),
        train_prior=np.exp(argmax_bias - argmax_bias.max()).ravel(),
        labeled_prior=cell_prior.ravel(),
        is_cross_fitted=evidence.is_cross_fitted,
        layout=Blocks(number, are_tied),
        labeled_weights=place(of_groups.apply(logits, groups.labeled), groups.labeled, number),
        unlabeled_weights=place(weights, blocks, number),
        plain=evidence,
        groups=groups,
        class_prior=prior,
        temperature=temperature,
        shift=shift,
    )


def count_cells(evidence: HeldOutScores, groups: RowGroups) -> np.ndarray:
    """Return labeled rows of every group and class, (A, K)."""
    shape = (len(groups.names), evidence.classes)
    cells = groups.labeled * evidence.classes + evidence.labels
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)


def weigh_unlabeled(
    evidence: HeldOutScores, groups: RowGroups, of_groups: GroupCalibration, group_of_class: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indices of unlabeled rows (m',), each in one group (m',), and weights of its classes (m', K)."""
    number = len(groups.names)
    has_group = groups.unlabeled >= 0
    strangers = np.flatnonzero(~has_group)[: MOST_ROWS // number]
    rows = np.concatenate([np.flatnonzero(has_group), np.tile(strangers, number)]).astype(np.int64)
    blocks = np.concatenate([groups.unlabeled[has_group], np.repeat(np.arange(number), len(strangers))]).astype(
        np.int64
    )
    logits = evidence.calibration.apply(evidence.unlabeled_scores[rows])
    logits = logits + np.log(np.maximum(evidence.unlabeled_prior, 1e-12))
    count = int(has_group.sum())
    weights = softmax(logits, axis=1)
    weights[:count] = of_groups.apply(logits[:count], blocks[:count])
    weights[count:] *= group_of_class[blocks[count:]]
    return rows, blocks, weights


def place_scores(scores: np.ndarray, groups: np.ndarray, temperature: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return T_a z + shift_a in the block of every row, (N, A K), for z (N, K) and groups a (N,)."""
    return place(temperature[groups][:, None] * scores + shift[groups], groups, len(shift), NEVER)


def place(values: np.ndarray, groups: np.ndarray, number: int, elsewhere: float = 0.0) -> np.ndarray:
    """Return values (N, K) in the block of every row, (N, A K), and another value in other blocks."""
    cells = np.full((len(values), number, values.shape[1]), elsewhere)
    cells[np.arange(len(values)), groups] = values
    return cells.reshape(len(values), number * values.shape[1])


class Part:
    """The rows of a group, or all rows: metrics that are given, and others from recall and coverage."""

    def __init__(self, margins: Confusion, given: dict[str, Tensor], by_group: tuple[Part, ...] | None = None) -> None:
        self.margins = margins
        self.given = given
        self.by_group = by_group

    def __getattr__(self, name: str) -> Any:
        return self.given[name] if name in self.given else getattr(self.margins, name)


@dataclass(frozen=True, eq=False)
class CellObjective(Objective):
    """A sentence about groups of rows, read from the confusion of cells.

    Args:
        sentence: bound to its classes and groups.
        cell_prior: P_ak, (A, K), sums to 1.
    """

    sentence: Sentence
    cell_prior: Tensor

    reads_margins = True

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        return self.sentence.domain

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        return self.sentence.epsilon

    @property
    def labels(self) -> tuple[str, ...]:
        return self.sentence.labels

    def view(self, c: Any) -> Any:
        """Return metrics of all rows and of each group, as the sentence reads them, from a confusion of cells (A K)."""
        prior = self.cell_prior
        metrics = {name: getattr(c, name).reshape(prior.shape) for name in CELL_METRICS}
        shares = prior.sum(1)
        metrics["coverage"] = metrics["coverage"] / shares[:, None]
        parts = []
        for group, share in enumerate(shares):
            given = {name: values[group] for name, values in metrics.items()}
            fractions = prior[group] / share
            given["accuracy"] = fractions @ given["recall"]
            parts.append(Part(confusion_from_margins(given["recall"], given["coverage"], fractions), given))
        totals = prior.sum(0)
        recall = (prior * metrics["recall"]).sum(0) / totals
        coverage = shares @ metrics["coverage"]
        given = {"recall": recall, "coverage": coverage, "accuracy": totals @ recall}
        return Part(confusion_from_margins(recall, coverage, totals), given, tuple(parts))

    def utility(self, c: Confusion) -> Tensor:
        return self.sentence.utility(self.view(c))

    def payoff(self, c: Confusion) -> Tensor:
        return self.sentence.payoff(self.view(c))

    def measure(self, c: Any) -> Tensor:
        """Return utility and payoffs, (1 + m,)."""
        view = self.view(c)
        return torch.cat([self.sentence.utility(view)[None], self.sentence.payoff(view)])

    def as_stated(self, value: float) -> float:
        return self.sentence.as_stated(value)

    def describe_value(self, value: float) -> str:
        return self.sentence.describe_value(value)

    def __str__(self) -> str:
        return str(self.sentence)
