"""Which labels to buy next: classes that may be the worst get more, and rows are drawn as the posterior says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from csst.estimation.class_rates import RateEstimate
from csst.estimation.labeling import SHARED, allocate_labels, rank_rows
from csst.maths.confusion import Confusion


def made(recall, n):
    recall = np.array(recall)
    rates = np.diag(recall) + (1 - recall)[:, None] * (1 - np.eye(len(recall))) / (len(recall) - 1)
    prior = torch.full((len(recall),), 1 / len(recall), dtype=torch.float64)
    confusion = Confusion(torch.from_numpy(rates), prior)
    return RateEstimate(confusion, rates, rates, np.array(n), np.full(len(recall), 1.0), 0, prior.numpy())


def test_the_worst_class_and_the_least_known_one_get_labels():
    found = allocate_labels(made([0.3, 0.9, 0.9], [400, 400, 400]))
    np.testing.assert_allclose(found, [1 - SHARED + SHARED / 3, SHARED / 3, SHARED / 3], atol=1e-12)
    found = allocate_labels(made([0.6, 0.62, 0.9], [400, 4, 400]))
    assert found[1] > 0.3 > found[2], "what little is known of class 1 does not rule out that it is the worst"
    assert found.sum() == pytest.approx(1)
    rng = np.random.default_rng(3)
    size = 0.5 * (np.array([10, 4, 30]) + 1)
    recall = np.array([0.6, 0.7, 0.8])
    drawn = [
        int(np.argmin([rng.beta(s * r, s * (1 - r)) for s, r in zip(size, recall, strict=True)])) for _ in range(4000)
    ]
    wanted = [(1 - SHARED) * drawn.count(k) / 4000 + SHARED / 3 for k in range(3)]
    np.testing.assert_allclose(allocate_labels(made(recall, [10, 4, 30])), wanted, atol=0.04)


def test_rows_are_drawn_as_the_allocation_and_the_posterior_say():
    rng = np.random.default_rng(0)
    truth = rng.choice(3, 3000, p=[0.8, 0.15, 0.05])
    posterior = np.full((3000, 3), 0.05) + 0.85 * np.eye(3)[truth]
    fractions = np.array([0.1, 0.3, 0.6])
    posterior[::2] = (posterior[::2] + 0.5) / 2.5  # every second row is less sure
    variance = [[q * (1 - q) for q in row] for row in posterior]
    mass, wanted = np.sum(variance, axis=0), np.zeros(3)
    for i in range(3000):
        chance = sum(fractions[k] * variance[i][k] / mass[k] for k in range(3))
        wanted[truth[i]] += chance
    counts = np.mean([np.bincount(truth[rank_rows(posterior, fractions, 20, s)], minlength=3) for s in range(300)], 0)
    np.testing.assert_allclose(counts / 20, wanted, atol=0.03)
    first = rank_rows(posterior, fractions, 50, seed=1)
    assert len(set(first.tolist())) == 50
    np.testing.assert_array_equal(first[:20], rank_rows(posterior, fractions, 20, seed=1))


def test_a_class_that_no_row_may_be_of():
    posterior = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert sorted(rank_rows(posterior, np.array([0.5, 0.5]), 2).tolist()) == [0, 1]
