"""The frontier: points that no other beats, and a sentence about the constraints."""

from __future__ import annotations

import re

import numpy as np
import pytest

import csst
from csst.posthoc import fit, frontier
from csst.posthoc.fitting import fitted
from csst.posthoc.problem import Problem
from csst.posthoc.tradeoff import feasibility
from tests.posthoc.examples import coverages, noisy, recalls

PROBS, LABELS = noisy(0, 200, 3, signal=1.5)


@pytest.fixture(scope="module")
def found():
    return frontier(PROBS, LABELS)


def told(text, probs=PROBS, labels=LABELS):
    problem = Problem.of(probs, labels, text, None, 1e-6)
    best = fitted(problem)
    return best, feasibility(problem, best)


def three(point):
    return (point.mean_recall, point.min_recall, point.min_coverage)


def test_no_point_beats_another(found):
    for one in found.points:
        for other in found.points:
            if one is not other:
                assert any(a > b for a, b in zip(three(one), three(other), strict=True))
    means = [p.mean_recall for p in found.points]
    assert means == sorted(means, reverse=True)
    assert len(found.points) > 3


def test_the_points_are_what_their_rules_do(found):
    for point in (*found.points, found.unadjusted):
        predictions = point.rule.predict(PROBS).tolist()
        recall = recalls(LABELS.tolist(), predictions, 3)
        assert three(point) == pytest.approx((sum(recall) / 3, min(recall), min(coverages(predictions, 3))))
        assert point.accuracy == pytest.approx(np.mean(np.array(predictions) == LABELS))
        assert point.as_dict()["min_recall"] == point.min_recall


def test_the_ends_are_the_best_of_each_kind(found):
    for text, number in (("max mean(recall)", 0), ("max min(recall)", 1)):
        best = fit(PROBS, LABELS, text).deterministic_value
        assert max(three(p)[number] for p in found.points) >= best - 0.01
    assert max(p.min_coverage for p in found.points) > 0.31
    assert found.unadjusted.min_recall < max(p.min_recall for p in found.points) - 0.1


def test_fewer_points_keep_the_extremes(found):
    few = frontier(PROBS, LABELS, points=2)
    assert len(few.points) <= 5
    for number in range(3):
        assert max(three(p)[number] for p in few.points) == max(three(p)[number] for p in found.points)


def test_without_constraints_nothing_is_said_about_them(found):
    assert found.feasible is None
    assert found.best is None
    assert "highest worst recall" in found.sentence
    own = frontier(PROBS, LABELS, "max min(recall)")
    assert own.feasible is None
    assert own.best.min_recall == pytest.approx(fit(PROBS, LABELS, "max min(recall)").deterministic_value)


def test_constraints_that_can_be_met():
    known = frontier(PROBS, LABELS, "max mean(recall) s.t. coverage >= 0.9/K")
    assert known.feasible is True
    assert known.best.min_coverage >= 0.3 - 1e-6
    assert "All constraints of 'max mean(recall) s.t. coverage >= 0.9/K' can be met" in known.sentence


def test_a_constraint_that_cannot_be_met_alone_and_the_nearest():
    known = frontier(PROBS, LABELS, "max mean(recall) s.t. recall >= 0.95", points=2)
    assert known.feasible is False
    reached, worst = known.best.min_recall, int(known.best.rule.confusion(PROBS, LABELS).recall.argmin())
    what = f"recall >= 0.95 for every class cannot be met: the nearest is {reached:.3g} instead of 0.95"
    assert f"{what}, for recall[{worst}]." in known.sentence


def test_constraints_that_cannot_be_met_together():
    goal = csst.objective("max accuracy s.t. recall['a'] >= 0.9, recall['c'] >= 0.9", class_names=["a", "b", "c"])
    told_together = "recall['a'] >= 0.9 cannot be met together with recall['c'] >= 0.9: the nearest is 0."
    assert told_together in told(goal)[1]
    assert "even alone" in told("max accuracy s.t. recall >= 0.95, accuracy >= 0.1")[1]
    assert "can be met" in told("max accuracy s.t. recall[0] >= 0.9, recall[2] <= 2")[1]


def test_what_comes_nearest_alone_is_that_of_the_constraint_alone():
    joint, sentence = told("max accuracy s.t. coverage[2] >= 2, accuracy >= 0.99")
    alone = told("max accuracy s.t. accuracy >= 0.99")[0].deterministic_value
    assert f"accuracy >= 0.99 cannot be met, even alone: the nearest is {alone:.3g} instead of 0.99" in sentence
    assert alone > float(joint.confusion.accuracy) + 0.1


def test_the_nearest_of_constraints_from_either_side_and_between_metrics():
    for text, bound in (("coverage <= 0.2", 0.2), ("0.5 <= coverage", 0.5), ("0.2 >= coverage", 0.2)):
        best, sentence = told(f"max accuracy s.t. {text}")
        reached = float(re.search(rf"the nearest is ([\d.]+) instead of {bound}, for coverage", sentence)[1])
        coverage = best.confusion.coverage
        assert reached == pytest.approx(float(coverage.max() if bound == 0.2 else coverage.min()), abs=1e-3)
    assert "the nearest misses it by" in told("max accuracy s.t. recall[0] - recall[1] >= recall[2] + 1.1")[1]


class Gap(csst.Objective):
    domain = csst.NonNegative()

    def utility(self, c):
        return c.recall.mean()

    def payoff(self, c):
        return (c.recall[2] - 2).reshape(1)


def test_a_lottery_that_meets_them_and_an_objective_without_names():
    alike, labels = np.tile([[0.6, 0.4]], (10, 1)), np.array([0] * 6 + [1] * 4)
    sentence = told("max accuracy s.t. coverage >= 0.3", alike, labels)[1]
    assert "A randomised rule meets all of them, with a value of 0.540" in sentence
    assert "constraint 0 cannot be met: the nearest misses it by 1" in told(Gap())[1]
