"""Which of two models is better: constraints first, then the value."""

import pytest

import csst
from csst.maths.ranking import ValidationScore, score_on

COUNTS = csst.Confusion.from_counts([[8, 2], [4, 6]])  # recalls .8 and .6, coverages .6 and .4


def test_the_largest_miss_beyond_the_tolerance_counts():
    goal = csst.objective("max mean(recall) s.t. coverage >= 0.45, recall >= 0.7").bind(2)
    score = score_on(goal, COUNTS, 0.0)
    assert score.value == pytest.approx(0.7)
    assert score.slack == pytest.approx([0.15, -0.05, 0.1, -0.1])
    assert score.violation == pytest.approx(0.1)
    assert score.score == pytest.approx(0.7 - 10 * 0.1)
    assert score.rank == pytest.approx((-0.1, 0.7))
    assert score_on(goal, COUNTS, 0.11).violation == 0.0
    assert score_on(goal, COUNTS, 0.09).violation == pytest.approx(0.1)


def test_a_miss_of_exactly_the_tolerance_is_met():
    goal = csst.objective("max mean(recall) s.t. recall[0] >= 1").bind(2)
    exact = csst.Confusion.from_counts([[3, 1], [0, 4]])
    assert score_on(goal, exact, 0.25).violation == 0.0
    assert score_on(goal, exact, 0.2).violation == 0.25


def test_without_constraints_and_with_all_met_only_the_value_counts():
    for sentence in ("max mean(recall)", "max mean(recall) s.t. coverage >= 0.3"):
        score = score_on(csst.objective(sentence).bind(2), COUNTS, 0.0)
        assert score.violation == 0.0
        assert score.score == score.value == pytest.approx(0.7)
        assert score.rank == (0.0, score.value)


def test_the_order_of_models():
    met, better = ValidationScore(0.5, [0.0], 0.0), ValidationScore(0.6, [0.1], 0.0)
    missed = ValidationScore(0.9, [-0.1, 0.3], 0.1)
    worse = ValidationScore(0.95, [-0.2], 0.2)
    assert sorted([worse, met, better, missed], key=lambda score: score.rank) == [worse, missed, met, better]
    assert [score.score for score in (met, better)] == [0.5, 0.6]
    assert missed.score == pytest.approx(-0.1)
