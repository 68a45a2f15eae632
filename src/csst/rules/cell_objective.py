"""A sentence about groups of rows as an objective of cells, one for every group and class.

A classifier that knows the group a of a row answers with a cell (a, j). The confusion of cells is 0 between groups, its
prior is P_ak = P(group a, y = k), and what a sentence reads follows from recall and coverage of the cells:

    recall_ak, precision_ak, f1_ak ... in group a     are those of the cell
    coverage_ak in group a                            q_ak / sum_k P_ak
    recall_k of all rows                              sum_a P_ak r_ak / sum_a P_ak
    coverage_k of all rows                            sum_a q_ak

So rules, errors and intervals for classes serve groups as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from csst.maths.confusion import Confusion, confusion_from_margins
from csst.maths.domains import Domain
from csst.maths.language import Sentence
from csst.maths.objectives import Objective

#: metrics that a cell has as a class has them, each read from the confusion of cells
CELL_METRICS = ("recall", "coverage", "precision", "f1", "jaccard")


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
