"""What was asked of the deployed model, what is expected of it and what is promised, in the cells of a table."""

from __future__ import annotations

from typing import NamedTuple

from csst.maths.language import ALIASES
from csst.report.bounds import Limit, find_limits
from csst.report.figures.svg import shorten
from csst.report.result import Interval, Result
from csst.report.run_tables import format_number
from csst.report.run_view import RunView
from csst.rules.judging import SAFE

#: bounds in the table: those that are nearest to being missed
MOST_BOUNDS = 5
STATUS = {"met": "met", "unsure": "may be met or not", "missed": "missed"}
LOWEST_RECALL = "max min(recall)"
NOTHING = "–"


class DeployedTable(NamedTuple):
    """Cells, the first row being the head, and what is said of them."""

    rows: list[list[str]]
    caption: str


def tabulate_deployed(run: RunView) -> DeployedTable | None:
    """The goal and the bounds of a run with a decision rule: asked, expected, promised, measured; None without a rule.

    The lowest recall has a row of its own where it is not the goal.
    """
    expected = run.adjusted_results.get("validation")
    if expected is None or run.adjusted is None:
        return None
    level = f" ({100 * expected.level:.0f} % interval)" if expected.intervals else ""
    confidence = "" if run.certificate is None else f" with confidence {run.certificate.confidence:g}"
    head = [
        "asked",
        f"expected{level}",
        "status",
        f"promised{confidence}",
        "on test",
        f"without the rule, on {run.part}",
    ]
    rows = [head, *_tabulate_goal(run, expected), *_tabulate_bounds(run, expected)]
    columns = [column for column in zip(*rows, strict=True) if {*column[1:]} != {NOTHING}]
    others = len(run.bounds) - MOST_BOUNDS
    parts = [
        "The deployed model: the decision rule is in use",
        *([f"expected values are {run.basis}"] if run.basis else []),
        *([f"{others} more bounds are farther from being missed"] if others > 0 else []),
    ]
    return DeployedTable([list(row) for row in zip(*columns, strict=True)], "; ".join(parts))


def _tabulate_goal(run: RunView, expected: Result) -> list[list[str]]:
    """A row for the goal and, where it is not the lowest recall, one for that."""
    goal = ALIASES.get(run.objective.strip(), run.objective).split(" s.t. ")[0].split(" with confidence ")[0]
    test = run.adjusted_results.get("test", Result())
    without = run.without_rule
    deployed = run.deployed
    lowest = [
        _format_expected(expected.expected_min_recall, expected.min_recall_interval),
        NOTHING,
        NOTHING,
        format_number(test.min_recall),
        format_number(without.min_recall),
    ]
    name = f"{shorten(run.class_names[deployed.lowest_class], 40)} on {run.part}"
    if goal.strip() == LOWEST_RECALL:
        return [[f"{goal} (lowest: {name})", *lowest]]
    value = [
        _format_expected(run.expected_value, expected.value_interval),
        NOTHING,
        NOTHING,
        format_number(test.objective_value),
        format_number(without.objective_value),
    ]
    return [[shorten(goal, 200), *value], [f"lowest recall (not asked for; {name})", *lowest]]


def _tabulate_bounds(run: RunView, expected: Result) -> list[list[str]]:
    """A row for each of the bounds that are nearest to being missed, the nearest first."""
    limits = find_limits(run.objective, run.class_names, run.class_counts, run.settings.get("groups"))
    intervals = {row.constraint: row for row in expected.constraints}
    test = run.adjusted_results.get("test", Result()).constraint_slack
    without = run.without_rule.constraint_slack
    order = sorted(range(len(run.bounds)), key=lambda n: run.bounds[n].slack - SAFE * run.bounds[n].error)
    rows = []
    for n in order[:MOST_BOUNDS]:
        bound = run.bounds[n]
        limit = limits[n] if len(limits) == len(run.bounds) else None
        interval = intervals.get(bound.constraint)
        ends = None if interval is None else sorted(_place(limit, slack) for slack in (interval.low, interval.high))
        # No rate is below 0 or above 1; a slack may be.
        within = None if ends is None else Interval(*(ends if limit is None else (max(0, ends[0]), min(1, ends[1]))))
        rows.append(
            [
                shorten(bound.constraint, 120),
                _format_expected(_place(limit, bound.slack), within, is_slack=limit is None),
                STATUS[bound.status],
                _describe_promise(run, bound.constraint),
                *(
                    _format_expected(_place(limit, slack[n]), None, is_slack=limit is None) if slack else NOTHING
                    for slack in (test, without)
                ),
            ]
        )
    return rows


def _place(limit: Limit | None, slack: float) -> float:
    """The value that has this slack, or the slack where the bound is no number."""
    return slack if limit is None else limit.find_value(slack)


def _describe_promise(run: RunView, constraint: str) -> str:
    """The number that is promised for a bound, "no", or nothing where no confidence was asked for."""
    if run.certificate is None:
        return NOTHING
    asked = {result.bound: result.asked for result in run.certificate.bounds}
    return format_number(asked.get(constraint)) if run.certificate.is_certified else "no"


def _format_expected(value: float, interval: Interval | None, is_slack: bool = False) -> str:
    ends = "" if interval is None else f" ({interval.low:.2f} to {interval.high:.2f})"
    return f"slack {value:+.3f}{ends}" if is_slack else f"{format_number(value)}{ends}"
