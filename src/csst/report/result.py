"""The results that metrics.json holds, with types; with run_view.py the only module that knows its keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import nan
from typing import Any, NamedTuple

from csst.maths.language.words import is_minimized
from csst.rules.claims import Certificate, certificate_from_dict
from csst.rules.feasibility import Bound
from csst.training.evaluation import constraints_met

PARTS = ("validation", "test")


class Interval(NamedTuple):
    """Both ends of a confidence interval."""

    low: float
    high: float


class Constraint(NamedTuple):
    """A constraint in words, its slack (negative if violated), and the interval of the slack."""

    constraint: str
    slack: float
    low: float
    high: float


class FrontierPoint(NamedTuple):
    """The metrics that one decision rule attains."""

    mean_recall: float
    min_recall: float
    min_coverage: float


@dataclass(frozen=True)
class Result:
    """Metrics measured on one part of the data; nan or empty if the run does not have them."""

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
        """Read the metrics of one part; missing and null metrics take their defaults."""
        names = [attribute.name for attribute in fields(cls)]
        return cls(**{name: values[name] for name in names if values.get(name) is not None})

    @property
    def negated(self) -> Result:
        """The same with the negative of the objective's value."""
        interval = self.intervals.get("value")
        if interval is None:
            return replace(self, objective_value=0.0 - self.objective_value)
        ends = {"low": -interval["high"], "high": -interval["low"]}
        negative_interval = {**interval, "estimate": -interval["estimate"], **ends}
        return replace(
            self, objective_value=0.0 - self.objective_value, intervals={**self.intervals, "value": negative_interval}
        )

    @property
    def lowest_class(self) -> int:
        """The index of the class with the lowest recall."""
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
        """The interval of the lowest recall."""
        return self._read_interval("min_recall")

    @property
    def value_interval(self) -> Interval | None:
        """The interval of the objective's value."""
        return self._read_interval("value")

    @property
    def expected_min_recall(self) -> float:
        """The estimated lowest recall on new data; the measured one if there is no estimate."""
        return (self.intervals.get("min_recall") or {}).get("estimate", self.min_recall)

    @property
    def recall_intervals(self) -> list[Interval]:
        """The intervals of the recalls, one per class; empty without."""
        return [Interval(interval["low"], interval["high"]) for interval in self.intervals.get("recall") or ()]

    @property
    def constraints(self) -> list[Constraint]:
        """The constraints that have an interval, the tightest first."""
        rows = self.intervals.get("constraints") or ()
        constraints = [Constraint(*(row[key] for key in Constraint._fields)) for row in rows]
        return sorted(constraints, key=lambda constraint: constraint.slack)

    def _read_interval(self, key: str) -> Interval | None:
        interval = self.intervals.get(key)
        return Interval(interval["low"], interval["high"]) if interval else None


@dataclass(frozen=True)
class RuleView:
    """The decision rule of a run; empty without one.

    Attributes:
        results: metrics with the rule, by part.
        unadjusted: metrics of the same model without the rule, by part; without a rule, the metrics as trained.
        expected_value: the expected value of the objective; nan if unknown.
        bounds: the expected slack of each constraint.
        certificate: whether the bounds are promised; None if no confidence was asked for.
        basis: the data behind the expected values, as a phrase.
        frontier: metrics of other rules for the same model.
        trades: the trades of mean recall for another number, as stored; empty without any.
        feasibility: whether rules can meet the constraints, as a sentence; "" without constraints, or if all are met.
    """

    results: dict[str, Result] = field(default_factory=dict)
    unadjusted: dict[str, Result] = field(default_factory=dict)
    expected_value: float = nan
    bounds: list[Bound] = field(default_factory=list)
    certificate: Certificate | None = None
    basis: str = ""
    frontier: list[FrontierPoint] = field(default_factory=list)
    trades: dict[str, Any] = field(default_factory=dict)
    feasibility: str = ""


def read_rule(metrics: Mapping[str, Any]) -> RuleView:
    """Return the decision rule that metrics.json describes."""
    rule = metrics.get("adjusted")
    minimizes = is_minimized(metrics.get("objective") or "")
    if not rule:
        return RuleView(unadjusted=read_parts(metrics, minimizes))
    value = rule.get("value", nan)
    return RuleView(
        results=read_parts(rule, minimizes),
        unadjusted=read_parts(rule.get("unadjusted") or metrics, minimizes),
        expected_value=0.0 - value if minimizes else value,
        bounds=[
            Bound(**{key.name: bound[key.name] for key in fields(Bound) if key.name in bound})
            for bound in rule.get("bounds") or ()
        ],
        certificate=certificate_from_dict(rule["certificate"]) if rule.get("certificate") else None,
        basis=str((rule.get("estimate") or {}).get("basis", "")),
        frontier=read_frontier(rule.get("frontier") or ()),
        trades=rule.get("trades") or {},
        feasibility=str(rule.get("frontier_sentence") or "") if _is_in_doubt(rule) else "",
    )


def read_parts(values: Mapping[str, Any], negates: bool = False) -> dict[str, Result]:
    """Return the results on validation and test, each if it is there.

    Args:
        values: entries of metrics.json, in which a higher value of the objective is better.
        negates: whether the sentence minimizes, so that results have what it says: its negative.
    """
    results = {part: Result.read(values[part]) for part in PARTS if values.get(part)}
    return {part: result.negated for part, result in results.items()} if negates else results


def read_frontier(points: Iterable[Mapping[str, Any]]) -> list[FrontierPoint]:
    """Return the points of a frontier, ordered by mean recall; points with missing numbers are left out."""
    keys = FrontierPoint._fields
    complete_points = [point for point in points if all(point.get(key) is not None for key in keys)]
    return sorted(FrontierPoint(*(point[key] for key in keys)) for point in complete_points)


def _is_in_doubt(rule: Mapping[str, Any]) -> bool:
    """Return whether a rule has constraints that are not all reported as met."""
    if "bounds" in rule:
        return any(bound["status"] != "met" for bound in rule["bounds"])
    return any((rule.get(part) or {}).get("constraint_slack") for part in PARTS)
