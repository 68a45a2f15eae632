"""The page of a run with a decision rule shows the numbers of the model that csst predict uses."""

from __future__ import annotations

import json
import re

import pytest
from matplotlib.figure import Figure

import csst
from csst.estimation.expectation import describe_minimum
from csst.report import report_page
from csst.report.bounds import find_limits, read_sentence
from csst.report.figures import classes, comparison, tradeoff
from csst.report.run_tables import STATES, list_facts, tabulate_deployed, title_run
from csst.report.run_view import MINIMUM_NOTE, read_run, view_run
from tests.report.samples import read_limits, write_run


def numbers(level: float) -> dict:
    return {
        "recall": [level, 1.0],
        "mean_recall": (1 + level) / 2,
        "min_recall": level,
        "min_coverage": level,
    }


def a_run(**lowest):
    point = {"mean_recall": 0.7, "min_recall": 0.5, "min_coverage": 0.2, **lowest}
    posthoc = {"test": numbers(0.3), "validation": numbers(0.3), "frontier": [point, point]}
    posthoc["unadjusted"] = {"validation": numbers(0.2)}
    return view_run("run", {"test": numbers(0.1), "validation": numbers(0.1), "adjusted": posthoc}, [])


def test_the_deployed_numbers_are_the_adjusted_ones_where_there_are_any():
    run = a_run()
    assert (run.result.min_recall, run.adjusted.min_recall, run.deployed.min_recall) == (0.1, 0.3, 0.3)
    both = {"test": numbers(0.3), "unadjusted": {"test": numbers(0.2)}}
    assert view_run("run", {"test": numbers(0.1), "adjusted": both}, []).without_rule.min_recall == 0.2
    plain = view_run("run", {"test": numbers(0.1)}, [])
    assert plain.adjusted is None
    assert plain.deployed is plain.result


def test_the_first_screen_says_what_to_expect_of_the_deployed_model(tmp_path):
    folder = write_run(tmp_path / "run", 3, updates=0, posthoc=True)
    run = read_run(folder)
    facts = {fact.heading: fact for fact in list_facts(run)}
    metrics = json.loads((folder / "metrics.json").read_text())
    expected = facts["Expect of the goal"]
    assert expected.answer == f"{metrics['adjusted']['value']:.3f}"
    assert f"on test {metrics['adjusted']['test']['objective_value']:.3f}" in expected.detail
    answer = facts["Are the bounds met?"].answer
    states = [STATES[bound.status] for bound in run.rule.bounds]
    assert answer == ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    assert facts["Known from"].answer == f"{sum(metrics['labeled_counts']):,} labels"
    recipe = {"data": {"path": "/somewhere/mine.csv"}}
    assert title_run(view_run("run", metrics, [], recipe=recipe)) == f"mine.csv: {metrics['objective']}"
    assert list_facts(read_run(write_run(tmp_path / "unfinished", 3, finished=False))) == []


@pytest.mark.usefixtures("real_figures")
def test_what_is_shown_below_the_sentence_is_of_the_deployed_model(tmp_path):
    folder = write_run(tmp_path / "run", 3, updates=0, posthoc=True)
    metrics = json.loads((folder / "metrics.json").read_text())
    trained, adjusted = metrics["test"], metrics["adjusted"]["test"]
    page = report_page([folder])
    details = page.split("<details>")

    def rows_of(result):
        columns = zip(*(result[key] for key in ("recall", "precision", "coverage")), strict=True)
        return ["".join(f"<td>{value:.3f}</td>" for value in row) for row in columns]

    classes = next(part for part in details if "The classes in numbers" in part)
    assert all(row in classes for row in rows_of(adjusted))
    assert not any(row in classes for row in rows_of(trained))
    constraints = next(part for part in details if "Confidence intervals of the constraints" in part)
    assert f"<td>{adjusted['intervals']['constraints'][0]['slack']:+.3f}</td>" in constraints
    assert f"<td>{trained['intervals']['constraints'][0]['slack']:+.3f}</td>" not in constraints
    confusion = re.search(r'<svg role="img" aria-label="Confusion matrix.*?</svg>', page, re.DOTALL)[0]
    shown = re.findall(r">(\d+)</text>", confusion)
    assert shown == [str(cell) for row in adjusted["confusion"] for cell in row if cell]
    missed = sum(slack < -1e-9 for slack in adjusted["constraint_slack"])
    assert f"Coverage against its bound: {missed} of 3 miss the bound" in page


def test_bars_are_of_the_deployed_model_and_pale_ones_of_it_as_trained(monkeypatch):
    figure = Figure()
    monkeypatch.setattr(classes, "draw", lambda paint, *rest: paint(figure))
    rule = {"test": numbers(0.3), "unadjusted": {"test": numbers(0.2)}}
    classes.draw_recall(view_run("run", {"test": numbers(0.1), "adjusted": rule}, []))
    axes = figure.axes[0]
    pale, deployed = axes.containers
    assert [bar.get_width() for bar in pale] == [0.2, 1.0]
    assert [bar.get_width() for bar in deployed] == [0.3, 1.0]


def test_the_frontier_is_drawn_around_the_model_whose_rules_it_is_of(monkeypatch):
    painted = []

    def draw(paint, *rest):
        class Axes:
            def plot(self, x, y, *style, **more):
                painted.append((x, y))

            def __getattr__(self, name):
                return lambda *given, **more: (0.0, 1.0)  # limits, for those who ask

        class Figure:
            def subplots(self, *given, **more):
                return [Axes(), Axes()]

        paint(Figure())

    monkeypatch.setattr(tradeoff, "draw", draw)
    tradeoff.draw_frontier(a_run())
    assert (pytest.approx(0.6), 0.2) in painted  # the last model without a rule
    assert (pytest.approx(0.55), 0.1) not in painted  # the selected one


def test_no_axis_of_recalls_begins_below_zero(monkeypatch):
    run = a_run(mean_recall=0.0, min_recall=0.0, min_coverage=0.0)
    never = view_run("never", {"test": {**numbers(0.0), "mean_recall": 0.0}}, [])
    monkeypatch.setattr(tradeoff, "draw", read_limits)
    monkeypatch.setattr(comparison, "draw", read_limits)
    assert {*tradeoff.draw_frontier(run), *tradeoff.draw_tradeoff([run, never])} == {(0, 0)}


def change_rule(folder, **changes):
    """Write other entries of the rule into metrics.json."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    metrics["adjusted"] |= changes
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    return metrics


def test_the_page_leads_with_what_was_asked_of_the_deployed_model(tmp_path):
    folder = write_run(tmp_path / "run", 3, updates=0, posthoc=True, objective="max mean(recall) s.t. coverage >= 0.2")
    names = [f"coverage['class {k}'] >= 0.2" for k in range(3)]
    slacks = [0.05, -0.04, 0.1]
    errors = [0.01, 0.01, 0.2]
    bounds = [
        {"constraint": name, "slack": slack, "error": error, "status": "met"}
        for name, slack, error in zip(names, slacks, errors, strict=True)
    ]
    metrics = change_rule(folder, bounds=bounds, value=0.81)
    rule = metrics["adjusted"]
    rule["validation"]["intervals"] |= {
        "value": {"low": 0.7, "high": 0.9},
        "constraints": [
            {"constraint": name, "slack": slack, "low": slack - 0.3, "high": slack + 0.03}
            for name, slack in zip(names, slacks, strict=True)
        ],
    }
    for part, shift in (("test", 0.02), ("unadjusted", 0.07)):
        result = rule["unadjusted"]["test"] if part == "unadjusted" else rule["test"]
        result["constraint_slack"] = [shift, shift, shift]
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    rows = tabulate_deployed(read_run(folder)).rows
    assert rows[0] == ["asked", "expected (95 % interval)", "status", "on test", "without the rule, on test"]
    trained, test = metrics["test"], rule["test"]
    value, plain = (f"{result['objective_value']:.3f}" for result in (test, trained))
    assert rows[1] == ["max mean(recall)", "0.810 (0.70 to 0.90)", "–", value, plain]
    lowest, plain = (f"{result['min_recall']:.3f}" for result in (test, trained))
    worst = test["recall"].index(min(test["recall"]))
    expected = f"{rule['validation']['min_recall']:.3f} (0.11 to 0.87)"
    assert rows[2] == [f"lowest recall (not asked for; class {worst} on test)", expected, "–", lowest, plain]
    assert rows[3:] == [
        [names[2], "0.300 (0.00 to 0.33)", "may be met or not", "0.220", "0.270"],
        [names[1], "0.160 (0.00 to 0.19)", "missed", "0.220", "0.270"],
        [names[0], "0.250 (0.00 to 0.28)", "met", "0.220", "0.270"],
    ]
    page = report_page([folder])
    assert page.index("on test the mean recall with the decision rule is") < page.index("without the rule it is")
    assert page.index("0.810 (0.70 to 0.90)") < page.index("Recall of every class")


def test_the_lowest_recall_is_said_once(tmp_path):
    folder = write_run(tmp_path / "run", 3, updates=0, posthoc=True, objective="max min(recall)")
    intervals = json.loads((folder / "metrics.json").read_text())["adjusted"]["validation"]["intervals"]
    intervals["min_recall"]["estimate"] = 0.4321
    for n, row in enumerate(intervals["recall"]):
        row["n"] = n
    metrics = change_rule(folder, bounds=[], frontier_sentence="Decision rules reach a lowest recall of 0.4321")
    metrics["warnings"] = [describe_minimum(intervals), "another"]
    metrics["adjusted"]["validation"]["intervals"] = intervals
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    assert metrics["warnings"][0].startswith(MINIMUM_NOTE)
    run, page = read_run(folder), report_page([folder])
    assert run.warnings == ["another"]
    assert [row[1] for row in tabulate_deployed(run).rows[1:]] == ["0.432 (0.11 to 0.87)"]
    assert page.count("0.432") == 1
    assert len(re.findall("lowest (class )?recall", page.split("<script>")[0])) == 0
    assert "min recall</button>" not in page


def test_many_bounds_are_the_nearest_and_a_count(tmp_path):
    folder = write_run(tmp_path / "run", 9, updates=0, posthoc=True)
    bounds = [
        {"constraint": f"b{n}", "slack": 0.1 * n, "error": 0.25 if n == 8 else 0.0, "status": "met"} for n in range(9)
    ]
    change_rule(folder, bounds=bounds)
    table = tabulate_deployed(read_run(folder))
    assert [row[0] for row in table.rows[3:]] == ["b0", "b1", "b2", "b3", "b4"]
    assert table.caption.endswith("estimated from <i>7</i> labels; 4 more bounds are farther from being missed")
    assert "No rule meets" not in report_page([folder])
    bounds[3]["status"] = "unsure"
    change_rule(folder, bounds=bounds)
    assert "No rule meets &lt;all&gt; constraints." in report_page([folder])


@pytest.mark.parametrize(("is_certified", "promised"), [(True, "0.700"), (False, "no")])
def test_what_is_promised_has_a_column(tmp_path, is_certified, promised):
    folder = write_run(tmp_path / "run", 2, updates=0, posthoc=True, objective="max mean(recall) s.t. recall[1] >= 0.7")
    bound = "recall['class 1'] >= 0.7"
    certificate = {"confidence": 0.9, "is_certified": is_certified, "labels": [3, 4], "rules": 1, "passed": 1}
    certificate |= {"basis": "by 7 labels", "price": "9 more labels would", "sentence": ""}
    certificate["bounds"] = [{"bound": bound, "asked": 0.7, "expected": 0.8, "p_value": 0.01, "balance": None}]
    bounds = [{"constraint": bound, "slack": 0.1, "error": 0.01, "status": "met"}]
    change_rule(folder, bounds=bounds, certificate=certificate)
    head, *_, row = tabulate_deployed(read_run(folder)).rows
    assert row[head.index("promised with confidence 0.9")] == promised
    assert ("by 7 labels" if is_certified else "9 more labels would") in report_page([folder])


def test_a_run_without_a_rule_has_no_such_table(tmp_path):
    assert tabulate_deployed(read_run(write_run(tmp_path / "run", 3, updates=0))) is None


def test_limits_of_constraints():
    text = "max mean(recall) s.t. coverage >= 0.5/K, 0.4 >= recall['a'], recall['a'] >= recall['b']"
    lower, second, upper, none = (limit for _, limit in find_limits(read_sentence(text, ["a", "b"], None)))
    assert lower == second == (0.25, True)
    assert (upper, none) == ((0.4, False), None)
    assert (lower.find_value(0.1), upper.find_value(0.1)) == (pytest.approx(0.35), pytest.approx(0.3))
    slack = csst.objective(text).bind(2, ["a", "b"]).slack(csst.Confusion.uniform([0.5, 0.5]))
    assert upper.find_value(float(slack[2])) == pytest.approx(0.5)
    assert find_limits(read_sentence("package.module:Own", ["a"], None)) == []
