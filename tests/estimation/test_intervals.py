"""Confidence intervals and shrinkage: references by loops, and their promise checked by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from csst.errors import InputError
from csst.estimation.intervals import (
    clopper_pearson,
    coverage_intervals,
    intervals,
    minimum_interval,
    precision_intervals,
    recall_intervals,
)


def at_least(k: int, n: int, p: float) -> float:
    """P(X >= k) for X ~ Binomial(n, p), by adding up."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize(("k", "n"), [(0, 5), (5, 5), (3, 5), (1, 20), (17, 40)])
def test_ends_are_where_the_tails_say(k, n):
    found = clopper_pearson(k, n, 0.9, simultaneous=3)
    tail = 0.1 / 6
    if k:
        assert at_least(k, n, found.low) == pytest.approx(tail, rel=1e-6)
    else:
        assert found.low == 0
    if k < n:
        assert 1 - at_least(k + 1, n, found.high) == pytest.approx(tail, rel=1e-6)
    else:
        assert found.high == 1
    assert found.low <= found.estimate <= found.high


def test_all_intervals_hold_together_as_often_as_promised():
    """The simulation of the acceptance: simultaneous coverage of the recalls, and of their minimum, is >= 95 %."""
    rng = np.random.default_rng(0)
    for totals, recalls in (([3, 5, 15, 50], [0.3, 0.9, 0.75, 0.6]), ([15] * 10, [0.75] * 10), ([5, 500], [0.5, 0.99])):
        together = minimum = 0
        for _ in range(600):
            hits = rng.binomial(totals, recalls)
            counts = torch.zeros(len(totals), len(totals), dtype=torch.int64)
            for i, (k, n) in enumerate(zip(hits, totals, strict=True)):
                counts[i, i], counts[i, (i + 1) % len(totals)] = int(k), int(n - k)
            found = recall_intervals(counts)
            together += all(one.low <= p <= one.high for one, p in zip(found, recalls, strict=True))
            minimum += minimum_interval(found).low <= min(recalls) <= minimum_interval(found).high
        assert together >= 0.95 * 600 - 3 * math.sqrt(600 * 0.95 * 0.05)
        assert minimum >= together


def test_coverage_and_precision_are_shares_of_predictions():
    counts = torch.tensor([[8, 2, 0], [1, 9, 0], [0, 10, 0]])
    coverage, precision = coverage_intervals(counts), precision_intervals(counts)
    assert [one.estimate for one in coverage] == pytest.approx([9 / 30, 21 / 30, 0])
    assert precision[0].estimate == pytest.approx(8 / 9)
    assert precision[0].n == 9
    assert precision[2] is None
    stored = intervals(counts)
    assert stored["min_recall"]["estimate"] == 0
    assert stored["min_recall"]["high"] == pytest.approx(clopper_pearson(0, 10, 0.95, 3).high)
    assert stored["precision"][2] is None
    assert str(clopper_pearson(34, 48)) == "0.71 (0.56–0.83, n = 48)"


@pytest.mark.parametrize(("k", "n", "level"), [(3, 2, 0.95), (0, 0, 0.95), (-1, 5, 0.95), (1, 2, 1.0)])
def test_bad_shares_are_refused(k, n, level):
    with pytest.raises(InputError):
        clopper_pearson(k, n, level)
