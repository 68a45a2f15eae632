"""What the software is for: on the toy at once, and longer, over seeds and on digits, with `make test-slow`."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, stdev

import pytest

from csst.recipes import recipe
from csst.runs.execute import execute
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

SEEDS = range(3)


def test_two_hundred_steps_on_the_toy_keep_the_coverage_that_fixmatch_gives_up(tmp_path):
    """The same for the lowest recall is in tests/test_tour.py."""
    made = recipe("toy")
    short = replace(made, objective="mean-recall-coverage", training=replace(made.training, steps=200))
    coverage = {
        name: execute(replace(short, method=name), tmp_path / name)["test"]["min_coverage"]
        for name in ("fixmatch", "csst")
    }
    assert coverage["fixmatch"] < 0.1
    assert coverage["csst"] > 0.25


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder, known = tmp_path_factory.mktemp("runs"), {}

    def get(name: str, method: str, goal: str = "min-recall", key: str = "min_recall") -> list[float]:
        if (name, method, goal) not in known:
            made = replace(recipe(name), method=method, objective=goal)
            known[name, method, goal] = [
                execute(replace(made, seed=seed), folder / f"{name}-{method}-{goal}-{seed}")["test"] for seed in SEEDS
            ]
        return [test[key] for test in known[name, method, goal]]

    return get


def clearly_less(low: list[float], high: list[float]) -> bool:
    """By a margin larger than the spread of either."""
    return mean(high) - mean(low) > max(stdev(low), stdev(high))


@pytest.mark.slow
def test_on_the_toy_the_goal_is_reached_in_the_order_of_how_much_is_asked(results):
    erm, la, csl, csst = (results("toy", method) for method in ("erm", "la", "csl", "csst"))
    assert clearly_less(erm, la)
    assert clearly_less(la, csl)
    assert clearly_less(erm, csst)


@pytest.mark.slow
def test_on_the_toy_csl_and_csst_come_near_the_best_possible(results):
    best, _ = recipe("toy").data.gaussians().minimax()
    assert best == pytest.approx(0.7633, abs=1e-3)
    for method in ("csl", "csst"):
        assert best - 0.06 < mean(results("toy", method)) < best + 0.01


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the unlabeled data looks")
def test_on_digits_csst_recalls_the_worst_class_better_than_fixmatch(results):
    assert clearly_less(results("digits", "fixmatch"), results("digits", "csst"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the unlabeled data looks")
def test_on_digits_the_coverage_objective_raises_the_smallest_coverage(results):
    goal = "mean-recall-coverage"
    fixmatch, csst = (results("digits", method, goal, "min_coverage") for method in ("fixmatch", "csst"))
    assert clearly_less(fixmatch, csst)
