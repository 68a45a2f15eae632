"""The search: soft rates by plain loops, gradients by finite differences, maxima by another search."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import csst
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.domains import Simplex
from csst.maths.objectives import Objective
from csst.rules.bias_search import ANCHOR, UNLABELED_WORTH, WeightedRows, search_bias, soft_bias_margins
from csst.rules.soft_objective import MOST_PENALTY, SoftObjective

PRIOR = np.array([0.6, 0.3, 0.1])


def example(n=30, m=200, seed=0):
    rng = np.random.default_rng(seed)
    means = np.array([[0.0, 0.0], [1.5, 0.0], [0.3, 1.2]])
    labels = rng.permutation(np.arange(n) % 3)
    hidden = rng.choice(3, m, p=PRIOR)

    def probs(y):
        x = means[y] + rng.normal(size=(len(y), 2))
        raw = np.exp(-0.5 * ((x[:, None] - means) ** 2).sum(2)) * PRIOR
        return raw / raw.sum(1, keepdims=True)

    return HeldOutScores.from_probs(probs(labels), labels, probs(hidden) if m else None, train_prior=PRIOR)


def plain_rates(scores, fractions, bias, t):
    """R_kj = sum_i W_ik softmax((z_i + b)/t)_j for fractions W that sum to 1 over rows."""
    K = len(bias)
    rates = np.zeros((K, K))
    for z, w in zip(scores, fractions, strict=True):
        top = max(z[j] + bias[j] for j in range(K))
        raw = [math.exp((z[j] + bias[j] - top) / t) for j in range(K)]
        for k in range(K):
            for j in range(K):
                rates[k, j] += w[k] * raw[j] / sum(raw)
    return rates


def prepared(rows, start, t):
    """What `search_bias` prepares once for all biases."""
    likelihood = np.exp((rows.scores + start) / t - ((rows.scores + start) / t).max(1, keepdims=True))
    return likelihood, rows.fractions * likelihood, rows.fractions @ PRIOR


@pytest.mark.parametrize("t", [0.03, 0.3, 1.0])
def test_soft_rates_by_loops(t):
    rows = WeightedRows.pool(example(m=50))
    start, bias = np.array([0.1, 0.5, -0.2]), np.array([-0.3, 0.2, 0.4])
    move = (bias - start) / t
    recall, coverage, _ = soft_bias_margins(*prepared(rows, start, t), np.exp(move - move.max()))
    expected = plain_rates(rows.scores, rows.fractions, bias, t)
    assert recall == pytest.approx(np.diag(expected), abs=1e-10)
    assert coverage == pytest.approx(PRIOR @ expected, abs=1e-10)
    assert coverage.sum() == pytest.approx(1)


@pytest.mark.parametrize("by_coverage", [[0.0, 0.0, 0.0], [0.3, -1.0, 2.0]])
def test_the_gradient_by_finite_differences(by_coverage):
    rows, t = WeightedRows.pool(example(m=40)), 0.4
    by_recall, by_coverage = np.array([1.0, -0.5, 2.0]), np.array(by_coverage)
    likelihood, fractions, pulls = prepared(rows, np.zeros(3), t)
    bias, step = np.array([0.2, -0.1, 0.5]), 1e-6
    pull_back = soft_bias_margins(likelihood, fractions, pulls, np.exp(bias / t))[2]
    found = pull_back(by_recall, by_coverage) / t
    for k in range(3):
        ends = []
        for sign in (1, -1):
            moved = bias.copy()
            moved[k] += sign * step
            rates = plain_rates(rows.scores, rows.fractions, moved, t)
            ends.append(by_recall @ np.diag(rates) + by_coverage @ (PRIOR @ rates))
        assert found[k] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)
    assert found.sum() == pytest.approx(0, abs=1e-9)  # a common bias decides nothing


@pytest.mark.parametrize(("n", "m"), [(30, 400), (9, 25), (30, 0)])
def test_pooling_by_loops(n, m):
    evidence = example(n, m)
    rows = WeightedRows.pool(evidence)
    soft = evidence.posterior if m else evidence.labeled_posterior
    soft_scores = evidence.unlabeled_scores if m else evidence.scores
    assert np.array_equal(rows.scores, np.vstack([evidence.scores, soft_scores]))
    for k in range(3):
        mass = sum(q[k] for q in soft)
        labels = sum(1 for y in evidence.labels if y == k)
        worth = min(50, mass)
        for i, y in enumerate(evidence.labels):
            assert rows.fractions[i, k] == pytest.approx((1 if y == k else 0) / (labels + worth))
        for i, q in enumerate(soft):
            assert rows.fractions[n + i, k] == pytest.approx(q[k] * worth / mass / (labels + worth))
    assert rows.fractions.sum(0) == pytest.approx(np.ones(3))
    assert UNLABELED_WORTH == 50


def soft_value(rows, bias, t, beta, anchor):
    """The soft minimum of soft recalls, less the pull to the anchor; an implementation of its own."""
    shifted = (rows.scores + bias) / t
    soft = np.exp(shifted - shifted.max(1, keepdims=True))
    soft /= soft.sum(1, keepdims=True)
    recall = (rows.fractions * soft).sum(0)
    return -math.log(np.exp(-beta * recall).mean()) / beta - ANCHOR * float(((bias - anchor) ** 2).sum())


def test_the_search_finds_what_another_search_finds():
    rows, anchor = WeightedRows.pool(example(seed=1)), np.array([0.2, 0.0, -0.2])
    goal = SoftObjective(csst.objective("max min(recall)").bind(3), PRIOR, 12.0)
    found = search_bias(goal, rows, anchor, 0.3).bias
    other = minimize(
        lambda b: -soft_value(rows, b, 0.3, 12.0, anchor), anchor, method="Nelder-Mead", options={"xatol": 1e-5}
    )
    assert soft_value(rows, found, 0.3, 12.0, anchor) == pytest.approx(-other.fun, abs=2e-4)
    assert found - found.mean() == pytest.approx(other.x - other.x.mean(), abs=0.05)
    assert soft_value(rows, anchor, 0.3, 12.0, anchor) < -other.fun - 0.003


def test_the_anchor_holds_what_the_rows_leave_open():
    """A class whose scores are out of reach: only the anchor says where its bias is."""
    rows = WeightedRows.pool(example())
    far = WeightedRows(rows.scores * [1, 1, 0] + [0, 0, -500.0], rows.fractions)
    goal = SoftObjective(csst.objective("max mean(recall)").bind(3), PRIOR, 12.0)
    found = search_bias(goal, far, np.array([0.0, 0.0, 7.0]), 0.3).bias
    assert found[2] == pytest.approx(7.0, abs=0.3)


class Lowest(Objective):
    """max min(recall) as an objective of the user's own, which is given all rates."""

    domain = Simplex()

    def utility(self, c):
        return c.rates.new_zeros(())

    def payoff(self, c):
        return c.recall


def test_all_rates_and_margins_lead_to_the_same_bias():
    rows = WeightedRows.pool(example(seed=2))
    sentence = SoftObjective(csst.objective("max min(recall)").bind(3), PRIOR, 10.0)
    own = SoftObjective(Lowest(), PRIOR, 10.0)
    assert not own.by_margins
    one, two = (search_bias(goal, rows, np.array([1.0, -1.0, 0.0]), 0.3).bias for goal in (sentence, own))
    assert one == pytest.approx(two, abs=1e-6)
    assert np.abs(one - [1.0, -1.0, 0.0]).max() > 0.3


@pytest.mark.parametrize("low", [0.9, 1.0])
def test_constraints_are_met_by_soft_rates(low):
    rows, zero, flat = WeightedRows.pool(example(seed=3)), np.zeros(3), np.full(3, 1 / 3)
    goal = SoftObjective(csst.objective(f"max accuracy s.t. coverage >= {low}/K").bind(3), flat, 10.0)
    rates = plain_rates(rows.scores, rows.fractions, search_bias(goal, rows, zero, 0.1).bias, 0.1)
    assert (flat @ rates).min() > low / 3 - 2e-3
    free = SoftObjective(csst.objective("max accuracy").bind(3), np.array([0.9, 0.05, 0.05]), 10.0)
    rates = plain_rates(rows.scores, rows.fractions, search_bias(free, rows, zero, 0.1).bias, 0.1)
    assert (flat @ rates).min() < 0.25


def test_huge_scores_stay_finite():
    rows = WeightedRows.pool(example())
    wide = WeightedRows(rows.scores * 1e4, rows.fractions)
    goal = SoftObjective(csst.objective("max min(recall)").bind(3), PRIOR, 10.0)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = search_bias(goal, wide, np.zeros(3), 0.03).bias
    assert np.isfinite(found).all()
    assert torch.isfinite(torch.from_numpy(found)).all()


class Mistakes(Objective):
    """Reads single entries: class 1 must not be taken for class 0."""

    def utility(self, c):
        return c.recall.mean() - 2 * c.rates[1, 0] ** 2


def test_single_mistakes_are_searched_in_the_right_direction():
    rows, zero, t = WeightedRows.pool(example(seed=4)), np.zeros(3), 0.3

    def value(bias):
        shifted = (rows.scores + bias) / t
        soft = np.exp(shifted - shifted.max(1, keepdims=True))
        soft /= soft.sum(1, keepdims=True)
        mistaken = float((rows.fractions[:, 1] * soft[:, 0]).sum())
        return float((rows.fractions * soft).sum()) / 3 - 2 * mistaken**2 - ANCHOR * float(bias @ bias)

    found = search_bias(SoftObjective(Mistakes(), PRIOR, 10.0), rows, zero, t).bias
    other = minimize(lambda b: -value(b), zero, method="Nelder-Mead", options={"xatol": 1e-5})
    assert value(found) == pytest.approx(-other.fun, abs=2e-4)
    assert value(zero) < -other.fun - 0.003


def test_prices_of_a_similar_search_shorten_the_next():
    """They lead to the same soft rates as no prices, with fewer evaluations of the objective."""
    goal = SoftObjective(csst.objective("max accuracy s.t. coverage >= 1/K").bind(3), PRIOR, 10.0)
    rows, zero = WeightedRows.pool(example(seed=3)), np.zeros(3)
    first = search_bias(goal, rows, zero, 0.1)
    other_rows = WeightedRows.pool(example(seed=4))
    evaluations = []
    ends = []
    for prices in (None, first.prices):
        calls = []
        counting = copy.copy(goal)
        counting.from_margins = lambda *args, calls=calls: calls.append(1) or goal.from_margins(*args)
        search = search_bias(counting, other_rows, zero, 0.1, prices)
        assert search.is_feasible
        ends.append(plain_rates(other_rows.scores, other_rows.fractions, search.bias, 0.1))
        evaluations.append(len(calls))
    assert evaluations[1] < 0.8 * evaluations[0]
    assert ends[0] == pytest.approx(ends[1], abs=0.02)


def test_a_search_that_cannot_meet_a_constraint_says_so():
    rows, zero = WeightedRows.pool(example(seed=3)), np.zeros(3)
    goal = SoftObjective(csst.objective("max accuracy s.t. coverage >= 1.2/K").bind(3), np.full(3, 1 / 3), 10.0)
    search = search_bias(goal, rows, zero, 0.1)
    assert not search.is_feasible
    assert search.prices.penalty == MOST_PENALTY
