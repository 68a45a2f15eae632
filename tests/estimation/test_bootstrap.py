"""The bootstrap intervals of constraints against plain loops."""

from __future__ import annotations

from statistics import NormalDist, mean, stdev

import numpy as np
import pytest
import torch

import csst
from csst.estimation import intervals
from csst.estimation.intervals import all_intervals, bootstrap_counts, slack_intervals

COUNTS = torch.tensor([[8, 1, 1], [3, 4, 0], [0, 1, 11]])
GOAL = csst.objective("max mean(recall) s.t. recall >= 0.5").bind(3)


def quantile(values, share):
    """Linear between the two values around the place."""
    values = sorted(values)
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def test_an_interval_is_the_widest_of_three_bootstraps(monkeypatch):
    monkeypatch.setattr(intervals, "DRAWS", 50)
    samples = [sample.tolist() for sample in bootstrap_counts(COUNTS, 50)]
    tail = 0.05 / 2 / 3  # simultaneous for three constraints
    for k, found in enumerate(slack_intervals(GOAL, COUNTS)):
        slack = COUNTS[k, k].item() / COUNTS[k].sum().item() - 0.5
        draws = [sample[k][k] / sum(sample[k]) - 0.5 for sample in samples]
        low = quantile(draws, tail)
        high = quantile(draws, 1 - tail)
        reach = 1.1 * NormalDist().inv_cdf(1 - tail) * stdev(draws)
        assert found["slack"] == pytest.approx(slack)
        assert found["low"] == pytest.approx(min(low, 2 * slack - high, slack - reach, mean(draws) - reach), abs=1e-6)
        assert found["high"] == pytest.approx(max(high, 2 * slack - low, slack + reach, mean(draws) + reach), abs=1e-6)


def test_draws_are_of_as_many_examples_with_one_more_right_and_one_more_wrong():
    samples = torch.stack(list(bootstrap_counts(COUNTS, 2000))).double()
    assert (samples.sum(2) == COUNTS.sum(1)).all()
    for i in range(3):
        n = float(COUNTS[i].sum())
        for j in range(3):
            share = (float(COUNTS[i, j]) + (1 if i == j else 0.5)) / (n + 2)
            assert float(samples[:, i, j].mean()) / n == pytest.approx(share, abs=0.02)


def test_the_intervals_of_metrics_are_at_95_percent():
    found = all_intervals(GOAL, COUNTS)
    assert found["level"] == 0.95
    assert found["constraints"] == slack_intervals(GOAL, COUNTS, 0.95)
    wider = all_intervals(GOAL, COUNTS, 0.99)
    assert wider["level"] == 0.99
    assert all(a["low"] < b["low"] for a, b in zip(wider["constraints"], found["constraints"], strict=True))
    assert wider["recall"][0]["low"] < found["recall"][0]["low"]


def test_without_constraints_there_is_no_interval():
    assert slack_intervals(csst.objective("max min(recall)").bind(3), COUNTS) == []
    assert np.isfinite(all_intervals(csst.objective("max min(recall)").bind(3), COUNTS)["min_recall"]["low"])
