"""Sweeps of single biases: what they see is what decisions give, and two classes are solved exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import csst
from csst.estimation.held_out_scores import HeldOutScores
from csst.rules.bias_search import WeightedRows
from csst.rules.candidates import LEAST_ROWS, fit_pooled
from csst.rules.soft_objective import SoftObjective
from csst.rules.sweeps import MOST_CLASSES, Sweep, order_classes, score_bias, sweep_biases
from tests.helpers.populations import World


def random_rows(n=60, classes=3, seed=0, digits=9):
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=(n, classes)), digits)
    fractions = rng.dirichlet(np.full(classes, 0.5), n)
    return WeightedRows(scores, fractions / fractions.sum(0))


def bind(text, classes, prior=None):
    values = np.full(classes, 1 / classes) if prior is None else np.asarray(prior)
    goal = csst.objective(text).bind_prior(torch.from_numpy(values))
    return SoftObjective(goal, values, 20.0)


@pytest.mark.parametrize("digits", [9, 1])
def test_a_sweep_sees_what_decisions_give(digits):
    """At every rank that a bias can reach: recall and coverage by loops over the rows."""
    rows, bias = random_rows(digits=digits), np.array([0.3, -0.2, 0.1])
    prior = np.array([0.5, 0.3, 0.2])
    for k in range(3):
        sweep = Sweep.of_class(rows, rows.scores + bias, (rows.scores + bias).argmax(1), rows.fractions @ prior, k)
        ranks = sweep.snap_ranks(np.arange(len(rows.scores) + 1))
        assert len(ranks) == len(np.unique(np.round(sweep.thresholds, 6))) + 1
        recall, coverage = sweep.margins_after(ranks)
        for position, rank in enumerate(ranks):
            moved = bias.copy()
            moved[k] = sweep.bias_at(rank)
            decisions = [int(np.argmax(row + moved)) for row in rows.scores]
            assert sum(d == k for d in decisions) == rank
            for j in range(3):
                hits = sum(rows.fractions[i, j] for i, d in enumerate(decisions) if d == j)
                covered = sum(rows.fractions[i] @ prior for i, d in enumerate(decisions) if d == j)
                assert recall[position, j] == pytest.approx(hits, abs=1e-12)
                assert coverage[position, j] == pytest.approx(covered, abs=1e-12)


TWO_CLASSES = [
    "max f1[1]",
    "max recall[1] s.t. precision[1] >= 0.6",
    "max precision[0] s.t. coverage[1] <= 0.3, recall[1] >= 0.2",
    "max accuracy s.t. recall[1] >= 0.9",
    "max jaccard[1] - 0.5*coverage[1]",
    "max gmean(recall) s.t. f1[1] >= 0.3",
    "max recall[1] s.t. precision[1] >= 1.5*recall[0]",
]


@pytest.mark.parametrize("sentence", TWO_CLASSES)
@pytest.mark.parametrize("size", [40, 900])
def test_two_classes_are_solved_as_by_brute_force(sentence, size):
    rows = random_rows(size, 2, seed=size)
    rows.scores[:, 1] += 2 * (rows.fractions[:, 1] > 1 / size)
    goal = bind(sentence, 2, [0.8, 0.2])
    reached = score_bias(goal, rows, sweep_biases(goal, rows, np.zeros(2)))
    thresholds = np.sort(rows.scores[:, 0] - rows.scores[:, 1])
    middles = np.concatenate([[thresholds[0] - 1], (thresholds[1:] + thresholds[:-1]) / 2, [thresholds[-1] + 1]])
    best = max(score_bias(goal, rows, np.array([0.0, middle])) for middle in middles)
    assert reached >= best - 0.0015  # within a plateau


@pytest.mark.parametrize("classes", [3, 5])
def test_many_starts_find_nothing_much_better(classes):
    rows = random_rows(300, classes, seed=4)
    rows.scores[np.arange(300), rows.fractions.argmax(1)] += 1.5
    rng = np.random.default_rng(0)
    for sentence in ("max recall[2] s.t. precision[2] >= 0.7", "max mean(f1) s.t. coverage[0] <= 0.2"):
        goal = bind(sentence, classes)
        reached = score_bias(goal, rows, sweep_biases(goal, rows, np.zeros(classes)))
        others = [sweep_biases(goal, rows, rng.normal(size=classes)) for _ in range(10)]
        assert reached >= max(score_bias(goal, rows, other) for other in others) - 0.03


def test_a_sweep_never_makes_it_worse():
    rng = np.random.default_rng(1)
    for seed in range(10):
        rows = random_rows(80, 4, seed)
        goal = bind("max min(recall) s.t. precision[1] >= 0.4, coverage >= 0.1", 4)
        start = rng.normal(size=4)
        assert score_bias(goal, rows, sweep_biases(goal, rows, start)) >= score_bias(goal, rows, start)


def test_the_smallest_miss_comes_before_the_value():
    """No threshold reaches precision 1 with any recall: the nearest is taken, whatever it is worth."""
    scores = np.array([[0.0, 3.0], [0.0, 2.0], [0.0, 1.0], [0.0, -1.0]])
    fractions = np.array([[0.2, 0.4], [0.1, 0.3], [0.3, 0.2], [0.4, 0.1]])
    goal = bind("max recall[1] s.t. precision[1] >= 0.99, coverage[1] >= 0.1", 2)
    bias = sweep_biases(goal, WeightedRows(scores, fractions), np.zeros(2))
    decisions = (scores + bias).argmax(1)
    assert decisions.tolist() == [1, 1, 0, 0]  # precision .7 of the first two; .667 and .643 of one and three


def test_the_precision_of_hardly_any_row_does_not_count():
    """One row that is right by chance has a precision of 1; where five are needed, the surest twenty are taken."""
    scores = np.zeros((100, 2))
    scores[:, 1] = -np.arange(100.0)
    fractions = np.full((100, 2), [0.9, 0.1])
    fractions[0] = [0.0, 1.0]
    fractions[1:20] = [0.1, 0.9]
    rows = WeightedRows(scores, fractions / fractions.sum(0))
    goal = bind("max precision[1]", 2, fractions.mean(0))
    lone = (scores + sweep_biases(goal, rows, np.zeros(2))).argmax(1)
    assert lone.sum() == 1
    goal.least_coverage = 0.05
    decisions = (scores + sweep_biases(goal, rows, np.zeros(2))).argmax(1)
    assert decisions[:20].sum() == decisions.sum()
    assert decisions.sum() >= 5


@pytest.mark.parametrize("text", ["max precision[2]", "max precision[0] s.t. recall[1] >= 0.8"])
def test_a_fitted_rule_predicts_the_class_whose_precision_counts(text):
    world = World(3, labels=20, unlabeled=2000)
    probs, labels, unlabeled = world.evidence
    evidence = HeldOutScores.from_probs(probs, labels, unlabeled, train_prior=world.prior)
    objective = csst.objective(text).bind_prior(torch.from_numpy(world.prior))
    pooled = fit_pooled(SoftObjective(objective, world.prior, 10.0), evidence, margin=0.0)
    decisions = pooled.decide(np.vstack([evidence.scores, evidence.unlabeled_scores]))
    goal_class = int(text[len("max precision[")])
    assert (decisions == goal_class).sum() >= LEAST_ROWS


def test_of_many_classes_those_that_matter_are_swept():
    classes = MOST_CLASSES + 10
    rows = random_rows(400, classes, seed=2)
    goal = bind(f"max recall[{classes - 1}] s.t. precision[{classes - 3}] >= 0.5", classes)
    order = order_classes(goal, rows, np.zeros(classes))
    assert len(order) == MOST_CLASSES
    assert {classes - 1, classes - 3} <= set(order[:2].tolist())
    assert order_classes(bind("max f1[1]", 3), random_rows(), np.zeros(3)).tolist() == [0, 1, 2]
