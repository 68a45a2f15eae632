"""The class balance of unlabeled rows: EM against plain loops, and what it recovers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from csst.estimation.shift import CLOSE, estimate_prior

MEANS = np.array([0.0, 1.5, 4.0])
START = np.array([0.7, 0.2, 0.1])


def log_density(x):
    """Exact scores: log p(x | k) up to a constant of the row."""
    return -0.5 * (x[:, None] - MEANS) ** 2


def sample(n, prior, seed):
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, n, p=prior)
    return MEANS[labels] + rng.normal(size=n), labels


def plain_em(scores, start, rounds, extra, weights):
    K, prior = len(start), list(start)
    for _ in range(rounds):
        sums = [0.0] * K
        for row, w in zip(scores, weights, strict=True):
            q = [prior[k] * math.exp(row[k]) for k in range(K)]
            for k in range(K):
                sums[k] += w * q[k] / sum(q)
        moved = [(sums[k] + extra * start[k]) / (sum(weights) + extra) for k in range(K)]
        far = max(abs(a - b) for a, b in zip(moved, prior, strict=True))
        prior = moved
        if far < CLOSE:
            break
    return prior


@pytest.mark.parametrize("rounds", [1, 2, 50])
@pytest.mark.parametrize("pseudo_rows", [None, 0.0, 12.0])
def test_em_is_the_formula(rounds, pseudo_rows):
    scores = log_density(sample(40, [0.2, 0.3, 0.5], 0)[0])
    extra = 3 if pseudo_rows is None else pseudo_rows
    found = estimate_prior(scores, START, rounds=rounds, pseudo_rows=pseudo_rows)
    assert found == pytest.approx(plain_em(scores, START, rounds, extra, [1.0] * 40), abs=1e-12)
    assert found.sum() == pytest.approx(1)


def test_row_weights_count_as_copies():
    scores = log_density(sample(15, [0.2, 0.3, 0.5], 1)[0])
    weights = np.arange(15) % 3.0
    expected = plain_em(scores, START, 50, 3, weights)
    assert estimate_prior(scores, START, row_weights=weights) == pytest.approx(expected, abs=1e-12)
    copied = np.repeat(scores, weights.astype(int), axis=0)
    assert estimate_prior(copied, START) == pytest.approx(expected, abs=1e-12)


def test_a_reversed_balance_is_recovered():
    x, labels = sample(20_000, START[::-1], 2)
    fractions = np.bincount(labels, minlength=3) / len(labels)
    found = estimate_prior(log_density(x), START)
    assert found == pytest.approx(fractions, abs=0.01)
    assert np.abs(found - START).max() > 0.5


def test_without_rows_it_is_the_start():
    assert estimate_prior(np.zeros((0, 3)), START) == pytest.approx(START, abs=1e-12)


def test_few_rows_are_drawn_to_the_start():
    scores = log_density(np.array([4.0, 4.1, 3.9]))
    far = [np.abs(estimate_prior(scores, START, pseudo_rows=extra) - START).max() for extra in (0.3, 3.0, 300.0)]
    assert far[0] > far[1] > far[2]
    assert far[2] < 0.01 < 0.3 < far[0]


def test_a_constant_of_the_row_changes_nothing():
    scores = log_density(sample(30, [0.2, 0.3, 0.5], 3)[0])
    moved = scores + np.linspace(-2000, 2000, 30)[:, None]
    assert estimate_prior(moved, START) == pytest.approx(estimate_prior(scores, START), abs=1e-9)


def test_it_begins_where_it_is_told():
    scores = log_density(sample(500, [0.2, 0.3, 0.5], 4)[0])
    end = estimate_prior(scores, START, rounds=400)
    warm = estimate_prior(scores, START, rounds=1, begin=end)
    assert warm == pytest.approx(end, abs=1e-4)
    assert np.abs(estimate_prior(scores, START, rounds=1) - end).max() > 0.05
