"""A model measured on labeled rows of several groups: the sentence's value and bounds, and every group and class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from csst.estimation.bootstrap import DRAWS, WIDER, bootstrap_counts
from csst.estimation.intervals import clopper_pearson
from csst.fitting.evaluation import Evaluation
from csst.maths.grouped_confusion import GroupedConfusion
from csst.maths.language import Sentence
from csst.maths.objectives import Objective


@dataclass(frozen=True, eq=False)
class GroupEvaluation(Evaluation):
    """What a model does on labeled rows of several groups.

    Args:
        sentence: bound to its classes and groups; `objective` is the sentence as if all rows were one group.
        group_counts: rows by group, true class and predicted class, (A, K, K).
    """

    sentence_of_groups: Sentence | None = None
    group_counts: Tensor | None = None

    @classmethod
    def of_groups(cls, sentence: Sentence, group_counts: Tensor, level: float = 0.95) -> GroupEvaluation:
        """Return the evaluation of counts in each group, (A, K, K)."""
        names = sentence.binding.class_names or ()
        GroupedConfusion.from_counts(group_counts, names, sentence.binding.row_groups)  # names a class without a row
        return cls(sentence.ungrouped, names, group_counts.sum(0), level, sentence, group_counts)

    @property
    def stated(self) -> Objective:
        assert self.sentence_of_groups is not None
        return self.sentence_of_groups

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """The numbers as plain values: numbers of all rows, and the sentence's own numbers of groups."""
        sentence = self.sentence_of_groups
        assert sentence is not None
        assert self.group_counts is not None
        numbers = Evaluation.numbers.func(self)  # type: ignore[attr-defined]
        confusion = GroupedConfusion.from_counts(self.group_counts)
        draws = [GroupedConfusion.from_counts(counts) for counts in draw_counts(self.group_counts)]
        value = float(sentence.value(confusion))
        slack = sentence.slack(confusion).numpy()
        value_reach = self._reach(np.array([[float(sentence.value(c))] for c in draws]))[0]
        slack_reach = self._reach(np.stack([sentence.slack(c).numpy() for c in draws]))
        names = sentence.labels[len(sentence.labels) - len(slack) :]
        intervals = {
            **numbers["intervals"],
            "objective_value": {"low": value - value_reach, "high": value + value_reach},
            "constraints": [
                {"constraint": name, "slack": float(s), "low": float(s - r), "high": float(s + r)}
                for name, s, r in zip(names, slack, slack_reach, strict=True)
            ],
        }
        return {
            **numbers,
            "objective_value": value,
            "constraint_slack": slack.tolist(),
            "intervals": intervals,
            "groups": self._describe_groups(),
        }

    def _reach(self, draws: np.ndarray) -> np.ndarray:
        """Return how far simultaneous intervals reach to either side, by the spread of draws (B, P)."""
        return WIDER * norm.ppf(1 - (1 - self.level) / 2 / max(1, draws.shape[1])) * draws.std(0)

    def _describe_groups(self) -> dict[str, Any]:
        """Return recall with simultaneous intervals, and rows, of every group and class."""
        assert self.group_counts is not None
        assert self.sentence_of_groups is not None
        rows = self.group_counts.sum(2)
        level = 1 - (1 - self.level) / rows.numel()
        recall = []
        for counts, totals in zip(self.group_counts, rows.tolist(), strict=True):
            ends = [clopper_pearson(int(hits), n, level) for hits, n in zip(counts.diagonal(), totals, strict=True)]
            rates = (counts.diagonal() / counts.sum(1)).tolist()
            recall.append([[rate, end.low, end.high] for rate, end in zip(rates, ends, strict=True)])
        return {
            "column": self.sentence_of_groups.column,
            "names": list(self.sentence_of_groups.binding.row_groups),
            "rows": rows.tolist(),
            "recall": recall,
        }

    @property
    def tables(self) -> dict[str, list[list[str]]]:
        """All tables by their titles, with one of groups and classes."""
        groups = self.numbers["groups"]
        return {**super().tables, f"recall by {groups['column']}": tabulate_groups(groups, self.class_names)}


def tabulate_groups(groups: dict[str, Any], class_names: tuple[str, ...]) -> list[list[str]]:
    """Return cells: recall of every group and class with its interval and the rows behind it."""
    counts = groups["rows"] if "rows" in groups else groups["labels"]
    return [
        [groups["column"], *class_names],
        *(
            [name, *(f"{r[0]:.2f} ({r[1]:.2f} to {r[2]:.2f}), {n}" for r, n in zip(row, totals, strict=True))]
            for name, row, totals in zip(groups["names"], groups["recall"], counts, strict=True)
        ),
    ]


def draw_counts(counts: Tensor) -> Iterator[Tensor]:
    """Yield counts (A, K, K) as they might have come out with other examples, one draw at a time."""
    for draws in zip(*(bootstrap_counts(part, DRAWS) for part in counts), strict=True):
        yield torch.stack(draws)
