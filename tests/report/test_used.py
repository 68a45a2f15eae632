"""The page of a finished run shows the numbers of the model that csst predict uses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from csst.report import page, tradeoff
from csst.report.shown import ShownRun


def numbers(level: float) -> dict:
    slack = [{"constraint": "c", "slack": level, "low": level, "high": level}]
    return {
        "recall": [level, 1.0],
        "coverage": [level, 1 - level],
        "precision": [level, 1.0],
        "mean_recall": (1 + level) / 2,
        "min_recall": level,
        "min_coverage": level,
        "objective_value": level,
        "constraint_slack": [level],
        "confusion": [[10 * level, 10 - 10 * level], [0, 10]],
        "intervals": {"level": 0.95, "constraints": slack},
    }


def a_run() -> ShownRun:
    point = {"mean_recall": 0.7, "min_recall": 0.5, "min_coverage": 0.2}
    posthoc = {"test": numbers(0.3), "validation": numbers(0.3), "frontier": [point, point]}
    posthoc["unadjusted"] = {"validation": numbers(0.2)}
    metrics = {"test": numbers(0.1), "validation": numbers(0.1), "adjusted": posthoc}
    return ShownRun("run", {**metrics, "objective": "max mean(recall) s.t. coverage >= 0.2", "class_names": ["a", "b"]})


def test_what_is_shown_below_the_sentence_is_of_the_finished_model(monkeypatch):
    seen = {}
    for name in ("confusion_figure", "coverage_figure", "class_table", "constraint_table"):
        real = getattr(page, name)

        def spy(run, *more, real=real, name=name):
            seen[name] = run.result["min_recall"]
            return real(run, *more)

        monkeypatch.setattr(page, name, spy)
    page._section(a_run(), page._Numbered(), alone=True, recall_shown=False)
    assert seen == dict.fromkeys(("confusion_figure", "coverage_figure", "class_table", "constraint_table"), 0.3)
    run = a_run()
    plain = replace(run, metrics={key: value for key, value in run.metrics.items() if key != "posthoc"})
    assert plain.as_used is plain


def test_the_frontier_is_drawn_around_the_model_whose_rules_it_is_of(monkeypatch):
    painted = []

    def draw(paint, *rest):
        class Axes:
            def plot(self, x, y, *style, **more):
                painted.append((x[0], y[0]))

            def __getattr__(self, name):
                return lambda *given, **more: None

        class Figure:
            def subplots(self, *given, **more):
                return [Axes(), Axes()]

        paint(Figure())

    monkeypatch.setattr(tradeoff, "draw", draw)
    tradeoff.frontier_figure(a_run())
    assert (pytest.approx(0.6), 0.2) in painted  # the last model without a rule
    assert (pytest.approx(0.55), 0.1) not in painted  # the selected one
