"""The page of a run with a decision rule shows the numbers of the model that csst predict uses."""

from __future__ import annotations

import json
import re

import pytest

from csst.report import report_page
from csst.report.figures import tradeoff
from csst.report.run_view import view_run
from tests.report.samples import write_run


def numbers(level: float) -> dict:
    return {
        "recall": [level, 1.0],
        "mean_recall": (1 + level) / 2,
        "min_recall": level,
        "min_coverage": level,
    }


def a_run():
    point = {"mean_recall": 0.7, "min_recall": 0.5, "min_coverage": 0.2}
    posthoc = {"test": numbers(0.3), "validation": numbers(0.3), "frontier": [point, point]}
    posthoc["unadjusted"] = {"validation": numbers(0.2)}
    return view_run("run", {"test": numbers(0.1), "validation": numbers(0.1), "adjusted": posthoc}, [])


def test_the_deployed_numbers_are_the_adjusted_ones_where_there_are_any():
    run = a_run()
    assert (run.result.min_recall, run.adjusted.min_recall, run.deployed.min_recall) == (0.1, 0.3, 0.3)
    plain = view_run("run", {"test": numbers(0.1)}, [])
    assert plain.adjusted is None
    assert plain.deployed is plain.result


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


def test_the_frontier_is_drawn_around_the_model_whose_rules_it_is_of(monkeypatch):
    painted = []

    def draw(paint, *rest):
        class Axes:
            def plot(self, x, y, *style, **more):
                painted.append((x, y))

            def __getattr__(self, name):
                return lambda *given, **more: None

        class Figure:
            def subplots(self, *given, **more):
                return [Axes(), Axes()]

        paint(Figure())

    monkeypatch.setattr(tradeoff, "draw", draw)
    tradeoff.draw_frontier(a_run())
    assert (pytest.approx(0.6), 0.2) in painted  # the last model without a rule
    assert (pytest.approx(0.55), 0.1) not in painted  # the selected one
