"""What one class can trade: points that its sentence attains, from high recall to high precision."""

from __future__ import annotations

import numpy as np
import pytest

import csst
from csst.estimation.held_out_scores import HeldOutScores
from csst.rules import trades
from csst.rules.frontier import fit_point
from csst.rules.trades import ClassPoint, keep_trade, trace_classes, write_sentence
from tests.helpers import toys

EVEN = np.full(3, 1 / 3)


@pytest.fixture(scope="module")
def evidence():
    x, labels = toys.sample(400, seed=1)
    return HeldOutScores.from_probs(
        toys.probs(x), labels, toys.probs(toys.sample(1500, seed=2)[0]), train_prior=toys.PRIOR
    )


@pytest.fixture(scope="module")
def traced(evidence):
    return trace_classes(evidence, EVEN)


def test_every_class_gives_up_recall_for_precision(traced):
    assert list(traced) == [0, 1, 2]
    for points in traced.values():
        assert len(points) > 2
        recall, precision = ([getattr(point, name) for point in points] for name in ("recall", "precision"))
        assert recall == sorted(recall, reverse=True)
        assert precision == sorted(precision)
        assert all(point.precision > point.asked for point in points)
        assert min(recall) >= trades.LEAST_RECALL
        for point in points:
            assert point.coverage == pytest.approx(point.recall / 3 / point.precision)


def test_the_sentence_attains_the_point_or_more_on_these_rows(evidence, traced):
    """Beside a cliff, where a little more precision costs a class most of its recall, the margin decides the side."""
    beside_cliff = 0
    for k, points in traced.items():
        for point in points:
            goal = csst.objective(write_sentence(point.asked, k)).bind(3)
            confusion = fit_point(evidence, EVEN, goal).estimate.confusion
            recall = float(confusion.recall[k])
            precision = float(confusion.precision[k])
            if -0.02 < recall - point.recall < 0.2:
                assert precision == pytest.approx(point.precision, abs=0.06), (k, point)
            else:
                beside_cliff += 1
                assert precision > point.asked, (k, point)
                assert point.recall < 0.2, (k, point)
    assert beside_cliff <= 2


def test_many_classes_are_not_traced(evidence, monkeypatch):
    monkeypatch.setattr(trades, "MOST_CLASSES", 2)
    assert trace_classes(evidence, EVEN) == {}


def test_a_sentence_names_the_class_as_it_can_be_read_back():
    text = write_sentence(0.95, "it's a \\ name")
    goal = csst.objective(text).bind(2, ["other", "it's a \\ name"])
    assert goal.labels == ("precision['it\\'s a \\\\ name'] >= 0.95",)
    assert write_sentence(0.5, 1) == "max recall[1] s.t. precision[1] >= 0.5"


def test_a_point_that_another_beats_is_left_out():
    good, worse, careful = (
        ClassPoint(*values) for values in ((0.5, 0.9, 0.6, 1), (0.6, 0.8, 0.6, 1), (0.7, 0.5, 0.9, 1))
    )
    assert keep_trade([careful, worse, good], lambda point: (point.recall, point.precision)) == (good, careful)
