"""The class balance of unlabeled rows: EM against plain loops, and what it recovers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from csst.estimation import shift
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


def plain_em(scores, start, rounds):
    K, prior = len(start), list(start)
    for _ in range(rounds):
        sums = [0.0] * K
        for row in scores:
            q = [prior[k] * math.exp(row[k]) for k in range(K)]
            for k in range(K):
                sums[k] += q[k] / sum(q)
        moved = [(sums[k] + K * start[k]) / (len(scores) + K) for k in range(K)]
        far = max(abs(a - b) for a, b in zip(moved, prior, strict=True))
        prior = moved
        if far < CLOSE:
            break
    return prior


@pytest.mark.parametrize("rounds", [1, 2, 50])
def test_em_is_the_formula(rounds, monkeypatch):
    monkeypatch.setattr(shift, "ROUNDS", rounds)
    scores = log_density(sample(40, [0.2, 0.3, 0.5], 0)[0])
    found = estimate_prior(scores, START)
    assert found == pytest.approx(plain_em(scores, START, rounds), abs=1e-12)
    assert found.sum() == pytest.approx(1)


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
    far = [np.abs(estimate_prior(scores[np.arange(rows) % 3], START) - START).max() for rows in (1, 3, 300)]
    assert far[0] < far[1] < far[2]
    assert far[0] < 0.3 < 0.7 < far[2]


def test_a_constant_of_the_row_changes_nothing():
    scores = log_density(sample(30, [0.2, 0.3, 0.5], 3)[0])
    moved = scores + np.linspace(-2000, 2000, 30)[:, None]
    assert estimate_prior(moved, START) == pytest.approx(estimate_prior(scores, START), abs=1e-9)
