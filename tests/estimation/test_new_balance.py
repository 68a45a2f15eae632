"""The class balance of new rows: near the truth, within its interval, and the labels' where chance explains it."""

from __future__ import annotations

import numpy as np
import pytest

from csst.estimation import new_balance
from csst.estimation.held_out_scores import HeldOutScores
from csst.estimation.new_balance import estimate_new_balance

MEANS = np.array([0.0, 2.0, 4.0])
LABELED = np.array([0.6, 0.3, 0.1])


def score(x: np.ndarray) -> np.ndarray:
    return -0.5 * (x[:, None] - MEANS) ** 2


def make_evidence(labels_count: int, seed: int) -> HeldOutScores:
    rng = np.random.default_rng(seed)
    labels = np.append(rng.choice(3, labels_count, p=LABELED), [0, 1, 2])
    fractions = np.bincount(labels) / len(labels)
    scores = score(MEANS[labels] + rng.normal(size=len(labels)))
    return HeldOutScores(scores, labels, np.zeros((0, 3)), fractions, fractions)


def draw_scores(prior: np.ndarray, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size, p=prior)
    return score(MEANS[labels] + rng.normal(size=size)), np.bincount(labels, minlength=3) / size


def test_a_tenfold_change_is_within_the_interval():
    prior = np.array([0.2, 0.2, 0.6])
    errors = []
    widths = []
    hits = 0
    for seed in range(20):
        new_scores, truth = draw_scores(prior, 1000, 100 + seed)
        balance = estimate_new_balance(make_evidence(300, seed), new_scores)
        low, high = balance.interval()
        errors.append(np.abs(balance.prior - truth).max())
        hits += bool(((low <= truth) & (truth <= high)).all())
        widths.append(high - low)
    assert hits >= 18
    assert np.mean(widths) < 0.3
    assert np.mean(errors) < 0.05


def test_noise_draws_the_balance_to_that_of_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = make_evidence(100, 0)
    new_scores = draw_scores(np.array([0.2, 0.2, 0.6]), 500, 1)[0]
    distances = []
    for caution in (0.0, 0.2, 5.0, 1e6):
        monkeypatch.setattr(new_balance, "CAUTION", caution)
        distances.append(np.abs(estimate_new_balance(evidence, new_scores).prior - evidence.labeled_prior).sum())
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.7
    assert distances[-1] < 1e-6


def test_fewer_labels_and_rows_are_known_worse():
    def width(labels_count: int, rows: int) -> float:
        balance = estimate_new_balance(make_evidence(labels_count, 3), draw_scores(LABELED, rows, 4)[0])
        low, high = balance.interval()
        return float((high - low).sum())

    assert width(20, 1000) > 1.5 * width(400, 1000)
    assert width(400, 50) > 1.5 * width(400, 1000)


def test_draws_are_balances_around_the_estimate():
    balance = estimate_new_balance(make_evidence(100, 0), draw_scores(LABELED, 500, 0)[0])
    draws = balance.draw(400)
    assert draws.sum(1) == pytest.approx(np.ones(400))
    assert draws.mean(0) == pytest.approx(balance.prior, abs=0.03)
    assert balance.as_dict()["rows"] == 500
