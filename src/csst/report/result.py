"""What was measured on one part of the data, as metrics.json has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import nan
from typing import Any, NamedTuple

from csst.training.evaluation import constraints_met


class Interval(NamedTuple):
    """Both ends of a confidence interval."""

    low: float
    high: float


class Constraint(NamedTuple):
    """A constraint in words, how far it is from being violated, and the interval of that slack."""

    constraint: str
    slack: float
    low: float
    high: float


@dataclass(frozen=True)
class Result:
    """What was measured on one part of the data; what the run does not say is nan or empty."""

    mean_recall: float = nan
    min_recall: float = nan
    min_coverage: float = nan
    objective_value: float = nan
    recall: list[float] = field(default_factory=list)
    precision: list[float | None] = field(default_factory=list)
    coverage: list[float] = field(default_factory=list)
    confusion: list[list[float]] = field(default_factory=list)
    constraint_slack: list[float] = field(default_factory=list)
    intervals: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Result:
        names = [each.name for each in fields(cls)]
        return cls(**{name: values[name] for name in names if values.get(name) is not None})

    @property
    def lowest_class(self) -> int:
        return self.recall.index(min(self.recall))

    @property
    def is_feasible(self) -> bool | None:
        """Whether all constraints are met; None without any."""
        return constraints_met(self.constraint_slack)

    @property
    def level(self) -> float:
        """The confidence level of the intervals."""
        return self.intervals.get("level", nan)

    @property
    def min_recall_interval(self) -> Interval | None:
        interval = self.intervals.get("min_recall")
        return Interval(interval["low"], interval["high"]) if interval else None

    @property
    def value_interval(self) -> Interval | None:
        interval = self.intervals.get("value")
        return Interval(interval["low"], interval["high"]) if interval else None

    @property
    def expected_min_recall(self) -> float:
        """The lowest recall that is to be expected, where it was estimated."""
        return (self.intervals.get("min_recall") or {}).get("estimate", self.min_recall)

    @property
    def recall_intervals(self) -> list[Interval]:
        return [Interval(interval["low"], interval["high"]) for interval in self.intervals.get("recall") or ()]

    @property
    def constraints(self) -> list[Constraint]:
        """The constraints that have an interval, the tightest first."""
        rows = self.intervals.get("constraints") or ()
        constraints = [Constraint(*(row[key] for key in Constraint._fields)) for row in rows]
        return sorted(constraints, key=lambda constraint: constraint.slack)
