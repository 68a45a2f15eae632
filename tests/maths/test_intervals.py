"""Confidence intervals and shrinkage: references by loops, and their promise checked by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import csst
from csst.errors import InputError
from csst.intervals import (
    beta_binomial,
    certainty,
    coverage_intervals,
    intervals,
    least,
    needed,
    precision_intervals,
    recall_intervals,
    share,
    shrunk,
    too_small,
)


def at_least(k: int, n: int, p: float) -> float:
    """P(X >= k) for X ~ Binomial(n, p), by adding up."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize(("k", "n"), [(0, 5), (5, 5), (3, 5), (1, 20), (17, 40)])
def test_ends_are_where_the_tails_say(k, n):
    found = share(k, n, 0.9, together=3)
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
            minimum += least(found).low <= min(recalls) <= least(found).high
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
    assert stored["min_recall"]["high"] == pytest.approx(share(0, 10, 0.95, 3).high)
    assert stored["precision"][2] is None
    assert str(share(34, 48)) == "0.71 (0.56–0.83, n = 48)"


def test_needed_is_the_smallest_that_is_enough():
    n = needed(0.7, 0.1, 10)
    found = share(round(0.7 * n), n, 0.95, 10)
    assert max(found.high - found.estimate, found.estimate - found.low) <= 0.1
    smaller = share(round(0.7 * (n - 10)), n - 10, 0.95, 10)
    assert max(smaller.high - smaller.estimate, smaller.estimate - smaller.low) > 0.1
    assert too_small(torch.diag(torch.tensor([900, 900])) + 100) is None
    said = too_small(torch.tensor([[3, 2], [1, 4]]))
    assert "rests on 5 examples" in said
    assert f"about {needed(0.6, 0.1, 2)} per class" in said


def log_likelihood(a: float, b: float, hits: list[int], totals: list[int]) -> float:
    total = 0.0
    for k, n in zip(hits, totals, strict=True):
        total += math.lgamma(k + a) + math.lgamma(n - k + b) - math.lgamma(n + a + b)
        total -= math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return total


def test_the_most_likely_beta_is_found():
    hits, totals = [1, 14, 9, 40, 3], [3, 15, 15, 50, 5]
    a, b = beta_binomial(torch.tensor(hits).double(), torch.tensor(totals).double())
    best = log_likelihood(a, b, hits, totals)
    for mean in np.linspace(0.05, 0.95, 40):
        for size in np.geomspace(0.5, 10_000, 40):
            assert log_likelihood(mean * size, (1 - mean) * size, hits, totals) <= best + 1e-6


def test_shrinkage_follows_the_formula_and_keeps_the_kinds_of_error():
    counts = torch.tensor([[1, 2, 0], [3, 45, 2], [0, 0, 4]])
    found = shrunk(counts)
    a, b = beta_binomial(counts.diagonal().double(), counts.sum(1).double())
    for i in range(3):
        k, n = int(counts[i, i]), int(counts[i].sum())
        assert float(found.recall[i]) == pytest.approx((k + a) / (n + a + b))
    assert float(found.rates[1, 0] / found.rates[1, 2]) == pytest.approx(1.5)
    assert float(found.rates[0, 2]) == 0
    assert float(found.rates[2, 0]) == pytest.approx(float(found.rates[2, 1]))
    assert found.rates.sum(1).tolist() == pytest.approx([1, 1, 1])
    plain = csst.Confusion.from_counts(counts)
    assert abs(float(found.recall[0] - found.recall[1])) < abs(float(plain.recall[0] - plain.recall[1]))
    many = torch.tensor([[700, 300], [100, 900]]) * 100
    assert shrunk(many).recall.tolist() == pytest.approx([0.7, 0.9], abs=1e-3)
    with pytest.raises(InputError, match="classes"):
        shrunk(torch.tensor([[1, 0], [0, 0]]))


def test_equal_classes_of_few_examples_are_drawn_together():
    """The minimum of ten noisy recalls of .75 reads .57 on average with 15 examples each; shrunk it is much nearer."""
    rng, raw, drawn = np.random.default_rng(1), [], []
    for _ in range(60):
        hits = torch.from_numpy(rng.binomial(15, 0.75, 10))
        counts = torch.diag(hits) + torch.diag(15 - hits).roll(1, 1)
        raw.append(float(csst.Confusion.from_counts(counts).recall.min()))
        drawn.append(float(shrunk(counts).recall.min()))
    assert np.mean(raw) < 0.6
    assert np.mean(drawn) > 0.67


def test_certainty_grows_with_examples():
    few, many = torch.full((2, 2), 2), torch.full((2, 2), 500)
    assert certainty(few) == pytest.approx(0.5)
    assert 0.99 < certainty(many) < 1


@pytest.mark.parametrize(("k", "n", "level"), [(3, 2, 0.95), (0, 0, 0.95), (-1, 5, 0.95), (1, 2, 1.0)])
def test_bad_shares_are_refused(k, n, level):
    with pytest.raises(InputError):
        share(k, n, level)
