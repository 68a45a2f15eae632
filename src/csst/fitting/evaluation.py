"""A model measured on labeled rows, or on rows of several groups: the confusion, metrics with intervals, bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from csst.estimation.intervals import DRAWS, WIDER, all_intervals, bootstrap_counts, clopper_pearson
from csst.maths.confusion import Confusion
from csst.maths.costs import format_amount
from csst.maths.grouped_confusion import GroupedConfusion
from csst.maths.language import Sentence
from csst.maths.objectives import Objective
from csst.training.evaluation import constraints_met, summarize_counts

#: metrics of the whole table, in this order
OVERALL = ("objective_value", "accuracy", "mean_recall", "min_recall", "mean_f1", "min_coverage")
#: classes up to which the confusion is printed
MOST_CLASSES = 12


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Numbers of a model on labeled rows.

    Args:
        objective: the objective, bound to the classes.
        class_names: K names.
        counts: rows by true class and predicted class, (K, K), or (K, K + 1) with no answers in the last column.
        level: level of the intervals; intervals of several classes or bounds are simultaneous.
    """

    objective: Objective
    class_names: tuple[str, ...]
    counts: Tensor
    level: float = 0.95

    def __post_init__(self) -> None:
        Confusion.from_counts(self.counts, self.class_names)  # a class without a row is refused by its name

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """The numbers as plain values, as in metrics.json, with F1 and further intervals."""
        return self._measure()

    def _measure(self) -> dict[str, Any]:
        confusion = Confusion.from_counts(self.counts)
        numbers = summarize_counts(self.counts, self.objective)
        numbers |= {"f1": confusion.f1.tolist(), "mean_f1": float(confusion.f1.mean())}
        classes = len(self.class_names)
        intervals = all_intervals(self.objective, self.counts, self.level)
        rows = int(self.counts.sum())
        answers = int(self.counts[:, :classes].sum())
        hits = clopper_pearson(int(self.counts.diagonal().sum()), max(answers, 1), self.level)
        intervals["accuracy"] = {"low": hits.low, "high": hits.high}

        def measure(c: Confusion) -> Tensor:
            means = [self.objective.value(c), c.recall.mean(), c.f1.mean()]
            return torch.cat([c.f1.double(), torch.stack([torch.as_tensor(value).double() for value in means])])

        ends = bootstrap_intervals(measure, self.counts, self.level, [classes] * classes + [1] * 3)
        intervals["f1"] = ends[:classes]
        intervals |= dict(zip(("objective_value", "mean_recall", "mean_f1"), ends[classes:], strict=True))
        return {**numbers, "rows": rows, "intervals": intervals}

    @property
    def stated(self) -> Objective:
        """The objective as it was stated."""
        return self.objective

    @property
    def is_met(self) -> bool | None:
        """Whether all bounds of the sentence are met on these rows; None without bounds."""
        return constraints_met(self.numbers["constraint_slack"])

    def tabulate_overall(self) -> list[list[str]]:
        """Return cells: each metric of the whole table with its interval; the first row is the head."""
        rows = [["metric", "value", self._interval_head]]
        intervals = self.numbers["intervals"]
        for name in OVERALL:
            if name == "objective_value":
                unit = self._units[0]
                title = str(self.stated).split(" s.t. ")[0]
                value, interval = self._stated_value
                rows.append([title, _format(value, unit), _format_interval(interval, unit)])
            else:
                title = name.replace("_", " ")
                rows.append([title, _format(self.numbers[name]), _format_interval(intervals.get(name))])
        return rows

    def tabulate_bounds(self) -> list[list[str]]:
        """Return cells: each bound of the sentence, by how much it is met, and whether that is sure."""
        rows = [["bound", "slack", self._interval_head, "met"]]
        bounds = self.numbers["intervals"]["constraints"]
        units = self._units[1] or (1.0,) * len(bounds)
        for bound, unit in zip(bounds, units, strict=True):
            slack = format_amount(bound["slack"], unit, "+")
            rows.append([bound["constraint"], slack, _format_interval(bound, unit), _say_met(bound)])
        return rows

    def tabulate_classes(self) -> list[list[str]]:
        """Return cells: each class with its rows, recall, precision, F1 and coverage, each with its interval."""
        metrics = ("recall", "precision", "f1", "coverage")
        rows = [["class", "rows", *metrics]]
        intervals = self.numbers["intervals"]
        for k, name in enumerate(self.class_names):
            cells = [f"{_format(self.numbers[m][k])} {_format_interval(intervals[m][k])}".strip() for m in metrics]
            rows.append([name, str(int(self.counts[k].sum())), *cells])
        return rows

    def tabulate_confusion(self) -> list[list[str]]:
        """Return cells: rows by true class (down) and predicted class (across)."""
        head = ["truth \\ prediction", *self.class_names, "no answer"][: 1 + self.counts.shape[1]]
        return [head, *([name, *map(str, self.counts[k].tolist())] for k, name in enumerate(self.class_names))]

    @property
    def tables(self) -> dict[str, list[list[str]]]:
        """All tables by their titles; the confusion of few classes only."""
        tables = {f"{self.numbers['rows']:,} labeled rows": self.tabulate_overall()}
        if self.numbers["intervals"]["constraints"]:
            tables["bounds"] = self.tabulate_bounds()
        tables["classes"] = self.tabulate_classes()
        if len(self.class_names) <= MOST_CLASSES:
            tables["confusion"] = self.tabulate_confusion()
        return tables

    @property
    def sentence(self) -> str:
        """The result in words."""
        value, interval = self._stated_value
        unit = self._units[0]
        ends = " to ".join(format_amount(interval[end], unit, digits=2) for end in ("low", "high"))
        words = f"'{self.stated}' is {format_amount(value, unit)} ({100 * self.level:.0f} % interval {ends})"
        if self.is_met is None:
            return f"{words} on {self.numbers['rows']:,} rows"
        states = [_say_met(bound) for bound in self.numbers["intervals"]["constraints"]]
        certainty = "and surely" if set(states) == {"yes"} else "but not surely for all"
        verdict = f"its bounds are met, {certainty}" if self.is_met else "its bounds are not all met"
        return f"{words} on {self.numbers['rows']:,} rows; {verdict}"

    @property
    def _stated_value(self) -> tuple[float, dict[str, float]]:
        """The value as the sentence states it, which is what "min ..." minimizes, and the ends of its interval."""
        ends = [self.numbers["intervals"]["objective_value"][end] for end in ("low", "high")]
        value, *ends = [self.stated.as_stated(number) for number in (self.numbers["objective_value"], *ends)]
        return value, dict(zip(("low", "high"), sorted(ends), strict=True))

    @cached_property
    def _units(self) -> tuple[float, tuple[float, ...]]:
        return self.objective.measure_units(Confusion.from_counts(self.counts).prior)

    @property
    def _interval_head(self) -> str:
        return f"{100 * self.level:.0f} % interval"

    def __str__(self) -> str:
        blocks = [f"{title}\n{align(rows)}" for title, rows in self.tables.items()]
        return "\n\n".join([*blocks, self.sentence])


def bootstrap_intervals(
    measure: Callable[[Confusion], Tensor], counts: Tensor, level: float, simultaneous: Sequence[int]
) -> list[dict[str, float]]:
    """Return the interval of each of several numbers: the widest of percentile, basic and normal bootstrap.

    Args:
        measure: returns the numbers, (M,).
        counts: rows by true and predicted class, (K, K).
        level: the level.
        simultaneous: for each number, how many intervals hold together, (M,).
    """
    value = measure(Confusion.from_counts(counts)).numpy()
    draws = np.stack([measure(Confusion.from_counts(sample)).numpy() for sample in bootstrap_counts(counts, DRAWS)])
    tails = (1 - level) / 2 / np.array(simultaneous)
    columns = range(len(value))
    a = np.array([np.quantile(draws[:, n], tails[n]) for n in columns])
    b = np.array([np.quantile(draws[:, n], 1 - tails[n]) for n in columns])
    quantiles = np.array([NormalDist().inv_cdf(1 - tail) for tail in tails])
    reach = WIDER * quantiles * draws.std(0)
    low = np.min([a, 2 * value - b, value - reach], axis=0)
    high = np.max([b, 2 * value - a, value + reach], axis=0)
    # A rate stays between 0 and 1; a value beyond, such as a cost, has no such ends.
    low = np.where(value >= 0, np.maximum(low, 0), low)
    high = np.where(value <= 1, np.minimum(high, 1), high)
    return [{"low": float(ends[0]), "high": float(ends[1])} for ends in zip(low, high, strict=True)]


def _say_met(bound: dict[str, Any]) -> str:
    if bound["low"] >= 0:
        return "yes"
    if bound["high"] < 0:
        return "no"
    return "yes, not surely" if bound["slack"] >= 0 else "no, not surely"


def _format(value: float | None, unit: float = 1.0) -> str:
    return "–" if value is None else format_amount(value, unit)


def _format_interval(interval: Any, unit: float = 1.0) -> str:
    if interval is None:
        return ""
    return f"({format_amount(interval['low'], unit, digits=2)} to {format_amount(interval['high'], unit, digits=2)})"


def align(rows: Sequence[Sequence[str]]) -> str:
    """Return cells as lines of text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupEvaluation(Evaluation):
    """Numbers of a model on labeled rows of several groups.

    Args:
        goal: the sentence, bound to its classes and groups; `objective` is the same as if all rows were one group.
        group_counts: rows by group, true class and predicted class, (A, K, K).
    """

    goal: Sentence
    group_counts: Tensor

    @classmethod
    def of_groups(cls, goal: Sentence, group_counts: Tensor) -> GroupEvaluation:
        """Return the evaluation of counts in each group, (A, K, K)."""
        names = goal.binding.class_names or ()
        GroupedConfusion.from_counts(group_counts, names, goal.binding.row_groups)  # names a class without a row
        return cls(goal.ungrouped, names, group_counts.sum(0), goal=goal, group_counts=group_counts)

    @property
    def stated(self) -> Objective:
        return self.goal

    def _measure(self) -> dict[str, Any]:
        """Return the numbers of all rows, and the sentence's own numbers of groups."""
        numbers = super()._measure()
        confusion = GroupedConfusion.from_counts(self.group_counts)
        draws = [GroupedConfusion.from_counts(counts) for counts in draw_counts(self.group_counts)]
        value = float(self.goal.value(confusion))
        slack = self.goal.slack(confusion).numpy()
        value_reach = self._measure_reach(np.array([[float(self.goal.value(c))] for c in draws]))[0]
        slack_reach = self._measure_reach(np.stack([self.goal.slack(c).numpy() for c in draws]))
        names = self.goal.labels[len(self.goal.labels) - len(slack) :]
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

    def _measure_reach(self, draws: np.ndarray) -> np.ndarray:
        """Return how far simultaneous intervals reach to either side, by the spread of draws (B, P)."""
        return WIDER * norm.ppf(1 - (1 - self.level) / 2 / max(1, draws.shape[1])) * draws.std(0)

    def _describe_groups(self) -> dict[str, Any]:
        """Return recall with simultaneous intervals, and rows, of every group and class."""
        rows = self.group_counts.sum(2)
        level = 1 - (1 - self.level) / rows.numel()
        recall = []
        for counts, totals in zip(self.group_counts, rows.tolist(), strict=True):
            ends = [clopper_pearson(int(hits), n, level) for hits, n in zip(counts.diagonal(), totals, strict=True)]
            rates = (counts.diagonal() / counts.sum(1)).tolist()
            recall.append([[rate, end.low, end.high] for rate, end in zip(rates, ends, strict=True)])
        return {
            "column": self.goal.column,
            "names": list(self.goal.binding.row_groups),
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
