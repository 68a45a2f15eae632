"""The multipliers of a run: what its journal says, and how far from a saddle point it ended."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

import csst
from csst.data.toy import SPACINGS, Gaussians
from csst.errors import InputError
from csst.theory import average_multipliers, dual_diagnostics, duality_gap
from csst.theory.dual import DualityGap


def journal(lam, phi=None, size=None):
    phi = phi or [[0.5] * len(lam[0])] * len(lam)
    return [
        {"step": t, "multipliers": list(x), "payoff": list(p), "step_size": 1.0 if size is None else size[t]}
        for t, (x, p) in enumerate(zip(lam, phi, strict=True))
    ]


def settled(rounds=20):
    return [[0.5 + 0.2 * 0.6**t, 0.5 - 0.2 * 0.6**t] for t in range(rounds)]


def test_numbers_by_loops():
    rng = random.Random(0)
    lam = [[rng.random() for _ in range(3)] for _ in range(9)]
    lam = [[v / sum(row) for v in row] for row in lam]
    phi = [[rng.random() for _ in range(3)] for _ in range(9)]
    size = [rng.random() for _ in range(9)]
    result = dual_diagnostics(journal(lam, phi, size))
    average = [sum(size[t] * lam[t][k] for t in range(9)) / sum(size) for k in range(3)]
    assert average_multipliers(journal(lam, phi, size)).tolist() == pytest.approx(average)
    assert result["last"] == lam[-1]
    assert result["average_to_last"] == pytest.approx(sum(abs(average[k] - lam[-1][k]) for k in range(3)) / 2)
    assert result["payoff_average"] == pytest.approx(
        min(sum(size[t] * phi[t][k] for t in range(9)) / sum(size) for k in range(3))
    )
    assert result["payoff_last"] == min(phi[-1])
    way = sum(abs(lam[t][k] - lam[t - 1][k]) for t in range(5, 9) for k in range(3))
    net = sum(abs(lam[8][k] - lam[4][k]) for k in range(3))
    assert result["turning"] == pytest.approx(1 - net / way)
    entropy = -sum(v * math.log(v) for v in lam[-1])
    assert result["entropy"] == pytest.approx(entropy / math.log(3))
    assert result["effective"] == pytest.approx(math.exp(entropy))
    assert result["last_move"] == pytest.approx(sum(abs(lam[8][k] - lam[7][k]) for k in range(3)) / 2)


def test_a_settled_run_has_no_warning():
    assert dual_diagnostics(journal(settled()))["warnings"] == []


@pytest.mark.parametrize(
    ("lam", "words"),
    [
        ([[0.5 + 0.3 * math.cos(t), 0.5 - 0.3 * math.cos(t)] for t in range(40)], "oscillate"),
        ([[1 - 0.5**t * 0.5, 0.5**t * 0.5] for t in range(30)], "multiplier of recall['a'] has held 100.0%"),
        ([[0.2 + 0.02 * t, 0.8 - 0.02 * t] for t in range(31)], "away from their average"),
        ([[0.2 + 0.03 * t, 0.8 - 0.03 * t] for t in range(20)], "still moving"),
    ],
)
def test_warnings(lam, words):
    message = dual_diagnostics(journal(lam), ["recall['a']", "recall['b']"])["warnings"]
    assert any(words in sentence for sentence in message), message


def test_small_wiggles_are_no_oscillation():
    lam = [[0.5 + 0.01 * math.cos(t), 0.5 - 0.01 * math.cos(t)] for t in range(40)]
    result = dual_diagnostics(journal(lam))
    assert result["turning"] > 0.8
    assert result["warnings"] == []


def test_constraints_have_no_entropy():
    """Multipliers that do not sum to 1 are prices of constraints; the caller may say which are which."""
    lam = [[2.0, 0.0, 0.0]] * 6
    result = dual_diagnostics(journal(lam))
    assert result["entropy"] is None
    assert result["warnings"] == []
    mixed = dual_diagnostics(journal([[0.999, 0.001, 3.0]] * 6), ["a", "b", "c"], [True, True, False])
    assert mixed["effective"] == pytest.approx(1.008, abs=1e-3)
    assert "the multiplier of a has held 99.9%" in mixed["warnings"][0]


def test_journals_without_a_game():
    assert dual_diagnostics([]) == {"updates": 0, "warnings": []}
    assert dual_diagnostics(journal([[], []])) == {"updates": 2, "warnings": []}
    assert dual_diagnostics(journal([[0.5, 0.5]]))["warnings"] == []


def test_fixed_multipliers_have_a_plain_mean():
    average = average_multipliers(journal(settled(), size=[0.0] * 20))
    assert average.tolist() == pytest.approx(np.mean(settled(), 0).tolist())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dual_diagnostics([{"step": 0, "multipliers": [1.0]}]), "needs payoff, step_size"),
        (lambda: dual_diagnostics(journal([[0.5, 0.5]]) + journal([[1.0]])), "one length"),
        (lambda: dual_diagnostics(journal([[0.5, 0.5]]), simplex_mask=[True]), "one entry per multiplier"),
        (lambda: average_multipliers([]), "no records"),
        (
            lambda: duality_gap(
                csst.objective("min-recall"), [0.5, 0.5], torch.zeros(3, 2), torch.tensor([0, 1]), torch.tensor([0, 1])
            ),
            "one row per label",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()


def sample(weights, per_class=4000, seed=0):
    """Labels, exact posteriors under equal class fractions, and the Bayes rule for these weights, on the toy."""
    gap = SPACINGS["toy"]
    source = Gaussians((-gap, gap, 0.0))
    points, labels = source.sample([per_class] * 3, np.random.default_rng(seed))
    density = np.exp(-((points[:, :1] - np.array(source.centers)) ** 2) / 2)
    probs = density / density.sum(1, keepdims=True)
    return source, torch.from_numpy(labels), torch.from_numpy(probs), torch.from_numpy((probs * weights).argmax(1))


def test_no_gap_at_the_saddle_point():
    """The exact minimax weights and their Bayes rule are a saddle point; wrong weights or a wrong rule are not."""
    best, weights = Gaussians((-1.9, 1.9, 0.0)).minimax()
    _, labels, probs, rule = sample(weights)
    goal = csst.objective("max min(recall)").bind(3)
    at = duality_gap(goal, weights, probs, labels, rule)
    assert isinstance(at, DualityGap)
    assert 0 <= at.gap < 0.02
    assert at.best_response == pytest.approx(best, abs=0.015)
    assert duality_gap(goal, [0.8, 0.1, 0.1], probs, labels, rule).gap > at.gap + 0.05
    assert duality_gap(goal, weights, probs, labels, probs.argmax(1)).gap > 0.1


def test_gap_by_loops():
    """max over rules of lambda . recall, less the worst recall; the rule is argmax lambda_j p_j / pi_j."""
    rng = random.Random(1)
    labels = [0] * 30 + [1] * 12 + [2] * 8
    probs = [[rng.random() + 0.8 * (k == y) for k in range(3)] for y in labels]
    probs = [[v / sum(row) for v in row] for row in probs]
    lam = [0.2, 0.5, 0.3]
    prior = [30 / 50, 12 / 50, 8 / 50]

    def recalls(predicted):
        hits = zip(predicted, labels, strict=True)
        right = [k == y for k, y in hits]
        return [sum(r for r, y in zip(right, labels, strict=True) if y == k) / labels.count(k) for k in range(3)]

    own = recalls([max(range(3), key=lambda k: row[k]) for row in probs])
    plug_in = recalls([max(range(3), key=lambda k: lam[k] * row[k] / prior[k]) for row in probs])
    value = max(sum(a * r for a, r in zip(lam, element, strict=True)) for element in (own, plug_in))
    posterior = torch.tensor(probs)
    goal = csst.objective("min-recall").bind(3)
    result = duality_gap(goal, lam, posterior, torch.tensor(labels), posterior.argmax(1))
    assert result.best_response == pytest.approx(value)
    assert result.worst == pytest.approx(min(own))
    assert result.gap == pytest.approx(value - min(own))


def test_constraints_in_the_gap():
    """A missed constraint is priced at twice the largest multiplier, at least 1; a met one costs nothing."""
    goal = csst.objective("max mean(recall) s.t. coverage >= 0.95/K").bind(3)
    _, labels, probs, _ = sample(np.ones(3))
    only_left = torch.zeros_like(labels)
    result = duality_gap(goal, [0.0, 0.0, 0.0], probs, labels, only_left)
    assert result.worst == pytest.approx(1 / 3 - 2 * 0.95 / 3)
    result = duality_gap(goal, [2.0, 0.0, 1.0], probs, labels, only_left)
    assert result.worst == pytest.approx(1 / 3 - 4 * 2 * 0.95 / 3)
    free = duality_gap(goal, [0.0, 0.0, 0.0], probs, labels, labels)
    assert free.gap == pytest.approx(0.0)
    assert free.worst == pytest.approx(1.0)
    accuracy = duality_gap(csst.objective("accuracy").bind(3), [], probs, labels, only_left)
    assert accuracy.gap == pytest.approx(accuracy.best_response - 1 / 3)
    assert accuracy.gap > 0.3
