"""The facts and tables of a run's page; of cells, the first row is the head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

from csst.maths.costs import format_amount
from csst.maths.language import ALIASES
from csst.report.bounds import Limit, find_limits
from csst.report.figures.svg import shorten
from csst.report.result import Constraint, Interval, Result
from csst.report.run_view import RunView
from csst.rules.feasibility import Bound
from csst.rules.judging import SAFE
from csst.training.evaluation import constraints_met

#: what `format_result` tells
RESULT_COLUMNS = ("mean recall", "min recall", "min coverage", "objective", "constraints")
#: the largest number of bounds in the table of the deployed model: those closest to a miss
MOST_BOUNDS = 5
#: the largest number of settings in the table of those that differ
MOST_SETTINGS = 60
#: states of a bound in words
STATES = {"met": "met", "unsure": "may be met or not", "missed": "missed"}
LOWEST_RECALL = "max min(recall)"
#: an empty cell
NOTHING = "–"


class DeployedTable(NamedTuple):
    """Cells, the first row being the head, and their caption."""

    rows: list[list[str]]
    caption: str


def tabulate_runs(runs: Sequence[RunView]) -> list[list[str]]:
    """Return the metrics of every run as deployed and, with a rule, without it; of a single run on validation too.

    Columns that are empty, or the same in all runs, are left out, and for a single run the lowest recall, which the
    sentence above the table states.
    """
    rows = [["run", "measured on", *RESULT_COLUMNS, "seconds"]]
    for run in runs:
        rows += _tabulate_run(run, run.results if len(runs) == 1 else {run.part: run.result})

    def is_informative(name: str, *column: str) -> bool:
        if name == "measured on":
            return len({*column}) > 1
        if name == "min recall" and len(runs) == 1:
            return False
        return {*column} != {NOTHING}

    columns = [column for column in zip(*rows, strict=True) if is_informative(*column)]
    return [list(row) for row in zip(*columns, strict=True)]


def _tabulate_run(run: RunView, parts: Mapping[str, Result]) -> list[list[str]]:
    name = shorten(run.name, 120)
    if not run.is_complete:
        return [[name, "incomplete", *[NOTHING] * 6]]
    seconds = NOTHING if run.seconds is None else f"{run.seconds:,.1f}"
    if run.adjusted:
        return [
            [f"{name} + rule", run.part, *format_result(run.adjusted), seconds],
            [f"{name}, without the rule", run.part, *format_result(run.without_rule), NOTHING],
        ]
    return [[name, part, *format_result(result), seconds] for part, result in parts.items()]


def tabulate_differing_settings(runs: Sequence[RunView]) -> list[list[str]]:
    """Return the settings that differ between runs, one row each, of many the first; empty if none does."""
    settings = [_flatten(run.settings) for run in runs]
    names = sorted({name for run_settings in settings for name in run_settings})
    rows = [[name, *(shorten(run_settings.get(name, NOTHING), 60) for run_settings in settings)] for name in names]
    rows = [row for row in rows if len({*row[1:]}) > 1]
    return [["setting", *(shorten(run.name, 60) for run in runs)], *rows[:MOST_SETTINGS]] if rows else []


def tabulate_deployed(run: RunView) -> DeployedTable | None:
    """Return goal and bounds of a run with a decision rule: asked, expected, promised, measured; None without a rule.

    The lowest recall has its own row unless it is the goal.
    """
    expected_results = run.rule.results.get("validation")
    if expected_results is None or run.adjusted is None:
        return None
    level = f" ({100 * expected_results.level:.0f} % interval)" if expected_results.intervals else ""
    certificate = run.rule.certificate
    confidence = "" if certificate is None else f" with confidence {certificate.confidence:g}"
    head = [
        "asked",
        f"expected{level}",
        "status",
        f"promised{confidence}",
        "on test",
        f"without the rule, on {run.part}",
    ]
    rows = [head, *_tabulate_goal(run, expected_results), *_tabulate_bounds(run, expected_results)]
    columns = [column for column in zip(*rows, strict=True) if {*column[1:]} != {NOTHING}]
    sentences = ["The deployed model: the decision rule is in use"]
    if run.rule.basis:
        sentences.append(f"expected values are {run.rule.basis}")
    if len(run.rule.bounds) > MOST_BOUNDS:
        sentences.append(f"{len(run.rule.bounds) - MOST_BOUNDS} more bounds are farther from being missed")
    return DeployedTable([list(row) for row in zip(*columns, strict=True)], "; ".join(sentences))


def read_goal(run: RunView) -> str:
    """Return the sentence of a run without its bounds and its confidence."""
    sentence = ALIASES.get(run.objective.strip(), run.objective)
    return sentence.split(" s.t. ")[0].split(" with confidence ")[0].strip()


def _tabulate_goal(run: RunView, expectation: Result) -> list[list[str]]:
    """Return a row for the goal and, unless it is the lowest recall, one for the lowest recall."""
    goal = read_goal(run)
    test = run.rule.results.get("test", Result())
    lowest_recall = [
        _format_expected(expectation.expected_min_recall, expectation.min_recall_interval),
        NOTHING,
        NOTHING,
        format_number(test.min_recall),
        format_number(run.without_rule.min_recall),
    ]
    name = f"{shorten(run.class_names[run.deployed.lowest_class], 40)} on {run.part}"
    if goal == LOWEST_RECALL:
        return [[f"{goal} (lowest: {name})", *lowest_recall]]
    value = [
        _format_expected(run.rule.expected_value, expectation.value_interval),
        NOTHING,
        NOTHING,
        format_number(test.objective_value),
        format_number(run.without_rule.objective_value),
    ]
    return [[shorten(goal, 200), *value], [f"lowest recall (not asked for; {name})", *lowest_recall]]


def _tabulate_bounds(run: RunView, expectation: Result) -> list[list[str]]:
    """Return a row for each of the bounds closest to a miss, the closest first."""
    bounds = run.rule.bounds
    limits = [limit for _, limit in find_limits(run.sentence)]
    if len(limits) != len(bounds):
        limits = [None] * len(bounds)
    intervals = {row.constraint: row for row in expectation.constraints}
    test_slack = run.rule.results.get("test", Result()).constraint_slack
    slack_without_rule = run.without_rule.constraint_slack
    rows = []
    for n in sorted(range(len(bounds)), key=lambda n: _measure_distance(bounds[n]))[:MOST_BOUNDS]:
        bound = bounds[n]
        limit = limits[n]
        interval = _place_interval(limit, intervals.get(bound.constraint), bound.unit)
        rows.append(
            [
                shorten(bound.constraint, 120),
                _format_slack(limit, bound.slack, interval, bound.unit),
                STATES[bound.status],
                _describe_promise(run, bound.constraint),
                _format_slack(limit, test_slack[n]) if test_slack else NOTHING,
                _format_slack(limit, slack_without_rule[n]) if slack_without_rule else NOTHING,
            ]
        )
    return rows


def _measure_distance(bound: Bound) -> float:
    return (bound.slack - SAFE * bound.error) / bound.unit


def _place_interval(limit: Limit | None, interval: Constraint | None, unit: float) -> Interval | None:
    """Return the interval of the metric from the interval of its slack; without a limit, of the slack itself."""
    if interval is None:
        return None
    if limit is None:
        return Interval(interval.low, interval.high)
    low, high = sorted(limit.find_value(slack) for slack in (interval.low, interval.high))
    # No rate is below 0 or above 1; a cost has a unit.
    return Interval(max(0, low), min(1, high)) if unit == 1.0 else Interval(low, high)


def _format_slack(limit: Limit | None, slack: float, interval: Interval | None = None, unit: float = 1.0) -> str:
    """Return the metric that has this slack, or the slack itself if the bound is not a number."""
    if limit is None:
        return f"slack {format_amount(slack, unit, '+')}{_format_interval(interval, unit)}"
    return _format_expected(limit.find_value(slack), interval, unit)


def _describe_promise(run: RunView, constraint: str) -> str:
    """Return the number promised for a bound, "no", or nothing if no confidence was asked for."""
    certificate = run.rule.certificate
    if certificate is None:
        return NOTHING
    if not certificate.is_certified:
        return "no"
    return format_number({result.bound: result.asked for result in certificate.bounds}.get(constraint))


def describe_constraints(result: Result) -> str:
    """Return "met", "missed by …", or – without constraints."""
    if result.is_feasible is None:
        return NOTHING
    return "met" if result.is_feasible else f"missed by {format_number(-min(result.constraint_slack))}"


def format_number(value: float | None) -> str:
    """Return three decimals; two digits of a small number, as coverages of many classes are."""
    if value is None or isnan(value):
        return NOTHING
    return f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.2g}"


def format_signed(value: float) -> str:
    """Return three decimals with a sign; two digits of a small number, as a cost in a large unit is."""
    return f"{value:+.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:+.2g}"


def _format_expected(value: float, interval: Interval | None, unit: float = 1.0) -> str:
    return f"{format_number(value)}{_format_interval(interval, unit)}"


def _format_interval(interval: Interval | None, unit: float = 1.0) -> str:
    if interval is None:
        return ""
    return f" ({format_amount(interval.low, unit, digits=2)} to {format_amount(interval.high, unit, digits=2)})"


def format_result(result: Result) -> list[str]:
    """Return mean recall, lowest recall, lowest coverage, the objective's value and the constraints, as cells."""
    values = (result.mean_recall, result.min_recall, result.min_coverage, result.objective_value)
    return [*map(format_number, values), describe_constraints(result)]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings with dotted names."""
    settings: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            settings |= _flatten(value, f"{prefix}{name}.")
        else:
            settings[f"{prefix}{name}"] = value
    return settings


class Fact(NamedTuple):
    """A heading, the answer, and a line below it."""

    heading: str
    answer: str
    detail: str = ""


def title_run(run: RunView) -> str:
    """Return the file that a run learned from, and its sentence."""
    data = run.settings.get("data")
    path = data.get("path") if isinstance(data, dict) else ""
    return f"{Path(str(path)).name or run.data}: {run.objective}"


def list_facts(run: RunView) -> list[Fact]:
    """Return the facts of a complete run about the deployed model; none while training."""
    if not run.is_complete:
        return []
    facts = [_expect(run), _judge_bounds(run), _find_lowest(run), _count_labels(run)]
    # Where the goal is the lowest recall, it stands there already.
    return [facts[0], facts[1], facts[3]] if read_goal(run) == LOWEST_RECALL else facts


def _expect(run: RunView) -> Fact:
    expected_results = run.rule.results.get("validation")
    test = run.rule.results.get("test") or run.results.get("test")
    test_words = "" if test is None else f"on test {format_number(test.objective_value)}"
    if expected_results is None or isnan(run.rule.expected_value):
        return Fact(f"The goal on {run.part}", format_number(run.deployed.objective_value), "")
    is_lowest = read_goal(run) == LOWEST_RECALL  # with the interval of the table below
    interval = _describe_interval(
        expected_results.min_recall_interval if is_lowest else expected_results.value_interval, expected_results
    )
    detail = ", ".join(filter(None, [interval, test_words]))
    return Fact("Expect of the goal", format_number(run.rule.expected_value), detail)


def _judge_bounds(run: RunView) -> Fact:
    if run.rule.bounds:
        states = Counter(STATES[bound.status] for bound in run.rule.bounds)
        answer = ", ".join(f"{count} {state}" for state, count in states.items())
        if set(states) == {"met"}:
            answer = "yes"
        if run.rule.certificate is not None:
            detail = "promised" if run.rule.certificate.is_certified else "not promised: too few labels, or missed"
        else:
            detail = "an estimate, no promise"
        return Fact("Are the bounds met?", answer, detail)
    is_met = constraints_met(run.deployed.constraint_slack)
    if is_met is None:
        return Fact("Are the bounds met?", "none asked for")
    return Fact("Are the bounds met?", "yes" if is_met else "no", f"on {run.part}")


def _find_lowest(run: RunView) -> Fact:
    deployed_results = run.deployed
    name = shorten(run.class_names[deployed_results.lowest_class], 40)
    expected_results = run.rule.results.get("validation", deployed_results)
    interval = _describe_interval(expected_results.min_recall_interval, expected_results)
    if run.rule.results.get("validation") is not None:
        return Fact("Expect of the lowest class recall", format_number(expected_results.expected_min_recall), interval)
    return Fact(f"Lowest class recall ({name})", format_number(deployed_results.min_recall), interval)


def _count_labels(run: RunView) -> Fact:
    counts = run.class_counts
    if not counts:
        return Fact("Known from", "?")
    detail = f"{min(counts):,} to {max(counts):,} per class; {run.unlabeled_count:,} unlabeled rows"
    return Fact("Known from", f"{sum(counts):,} labels", detail)


def _describe_interval(interval: Interval | None, result: Result) -> str:
    if interval is None:
        return ""
    return f"{100 * result.level:.0f} % interval {interval.low:.2f} to {interval.high:.2f}"
