"""The first screen of a run's page: what was asked, what to expect, whether it is met, from how many labels."""

from __future__ import annotations

from collections import Counter
from math import isnan
from pathlib import Path
from typing import NamedTuple

from csst.report.figures.svg import shorten
from csst.report.result import Interval, Result
from csst.report.run_tables import LOWEST_RECALL, format_number, read_goal
from csst.report.run_view import RunView
from csst.training.evaluation import constraints_met

#: the state of a bound in words
STATES = {"met": "met", "unsure": "in doubt", "missed": "missed"}


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
    interval = _format_interval(
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
    interval = _format_interval(expected_results.min_recall_interval, expected_results)
    if run.rule.results.get("validation") is not None:
        return Fact("Expect of the lowest class recall", format_number(expected_results.expected_min_recall), interval)
    return Fact(f"Lowest class recall ({name})", format_number(deployed_results.min_recall), interval)


def _count_labels(run: RunView) -> Fact:
    counts = run.class_counts
    if not counts:
        return Fact("Known from", "?")
    detail = f"{min(counts):,} to {max(counts):,} per class; {run.unlabeled_count:,} unlabeled rows"
    return Fact("Known from", f"{sum(counts):,} labels", detail)


def _format_interval(interval: Interval | None, result: Result) -> str:
    if interval is None:
        return ""
    return f"{100 * result.level:.0f} % interval {interval.low:.2f} to {interval.high:.2f}"
