"""Weighted error and its weights, against plain loops."""

from __future__ import annotations

import random

import pytest
import torch

import csst
from csst.errors import InputError
from csst.theory import (
    class_fractions,
    least_error,
    sampling_weights,
    shifted,
    total_weight,
    weighted_error,
    weights_of_gain,
)
from csst.theory.weighted_errors import measured_error, weighted_rate


def random_case(seed, signed=False):
    rng = random.Random(seed)
    K = rng.choice([2, 3, 5])
    w = [[rng.uniform(-1 if signed else 0, 1) for _ in range(K)] for _ in range(K)]
    y = [k for k in range(K) for _ in range(rng.randrange(2, 7))]
    F = [rng.randrange(K) for _ in y]
    return K, w, y, F


def err_by_loops(K, w, y, F):
    """sum_ij w_ij E_{x ~ P_i} 1(F(x) != j)"""
    total = 0.0
    for i in range(K):
        mine = [f for label, f in zip(y, F, strict=True) if label == i]
        for j in range(K):
            total += w[i][j] * sum(f != j for f in mine) / len(mine)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_weighted_error(seed):
    """Paper, Sec. 3.1, err_w; and the identity sum G*C = sum w - err_w with w_ij = G_ij pi_i."""
    K, w, y, F = random_case(seed, signed=True)
    c = csst.Confusion.from_predictions(y, F, K)
    assert weighted_error(c, w) == pytest.approx(err_by_loops(K, w, y, F))
    G = torch.tensor(w) / c.prior[:, None]
    back = weights_of_gain(G, c.prior)
    assert back.tolist() == [pytest.approx(row) for row in w]
    gained = sum(float(G[i, j] * c.matrix[i, j]) for i in range(K) for j in range(K))
    assert gained == pytest.approx(sum(map(sum, w)) - weighted_error(c, back))


def test_balanced_error():
    """Paper, Sec. 3.1: err_w is the balanced error for w = diag(1/K)."""
    c = csst.Confusion.from_counts([[3, 1], [1, 1]])
    assert weighted_error(c, torch.eye(2) / 2) == pytest.approx(1 - (0.75 + 0.5) / 2)


def test_weights_of_the_papers_gains():
    """w of worst-case recall is diag(lambda)."""
    prior, lam = torch.tensor([0.8, 0.2], dtype=torch.float64), [0.3, 0.7]
    gain = csst.gain_matrix(csst.objective("max min(recall)"), lam, csst.Confusion.uniform(prior), prior)
    assert weights_of_gain(gain, prior).tolist() == [[pytest.approx(0.3), 0], [0, pytest.approx(0.7)]]


@pytest.mark.parametrize("seed", range(10))
def test_shift_changes_no_ranking_and_is_the_smallest(seed):
    """Paper, Sec. 3.1: rows may be shifted; each by its minimum gives the smallest |w|_1."""
    K, w, y, F = random_case(seed, signed=True)
    moved = shifted(w)
    assert float(moved.min()) == 0.0
    assert moved.amin(1).tolist() == [0.0] * K
    H = [(f + 1) % K for f in F]
    before = err_by_loops(K, w, y, F) - err_by_loops(K, w, y, H)
    after = err_by_loops(K, moved.tolist(), y, F) - err_by_loops(K, moved.tolist(), y, H)
    assert before == pytest.approx(after)
    assert total_weight(moved) == pytest.approx(sum(v - min(row) for row in w for v in row))
    # on purpose not the gain's canonical form, which only adds: a coverage gain keeps its constant rows
    gain = csst.Gain(torch.tensor([[3.0, 1.0], [1.0, 2.0]]))
    assert shifted(gain.matrix).tolist() == [[2, 0], [0, 1]]


@pytest.mark.parametrize("seed", range(10))
def test_sampling_weights(seed):
    """Paper, assump:c-exp: P_w draws an example of class i with sum_j w_ij / |w|_1, spread over its examples."""
    K, w, y, F = random_case(seed)
    total = sum(map(sum, w))
    result = sampling_weights(w, torch.tensor(y))
    for at, label in enumerate(y):
        assert float(result[at]) == pytest.approx(sum(w[label]) / total / y.count(label))
    assert float(result.sum()) == pytest.approx(1)
    assert class_fractions(w).tolist() == pytest.approx([sum(row) / total for row in w])
    # L_w and R_{B,w} are |w|_1 times probabilities under P_w
    event = torch.tensor([f == 0 for f in F])
    assert weighted_rate(event, torch.tensor(y), w)[0] == pytest.approx(total * float(result[event].sum()))
    assert measured_error(torch.tensor(F), torch.tensor(y), w)[0] == pytest.approx(err_by_loops(K, w, y, F))


def test_standard_error_is_that_of_the_mean():
    y = torch.tensor([0] * 40 + [1] * 10)
    F = torch.tensor([0] * 30 + [1] * 10 + [1] * 10)
    value, error = measured_error(F, y, torch.eye(2) / 2)
    assert value == pytest.approx(0.125)
    assert error == pytest.approx(0.5 * (0.25 * 0.75 / 40) ** 0.5)


@pytest.mark.parametrize("seed", range(10))
def test_no_classifier_is_below_the_least_error(seed):
    K, w, y, _ = random_case(seed)
    best = min(
        err_by_loops(K, w, y, [rule[label] for label in y])
        for rule in ([(a * 7 + b) % K for a in range(K)] for b in range(K))
    )
    perfect = [max(range(K), key=lambda j: w[label][j]) for label in y]
    assert least_error(w) == pytest.approx(err_by_loops(K, w, y, perfect))
    assert least_error(w) <= best + 1e-12
    assert least_error(torch.eye(K)) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: total_weight([[1.0, -0.1], [0, 1]]), "csst.theory.shifted"),
        (lambda: total_weight([[0.0, 0], [0, 0]]), "all zero"),
        (lambda: shifted([[1.0, 1.0], [2.0, 2.0]]), "nothing to learn"),
        (lambda: total_weight([[1.0, 2.0]]), "shape"),
        (lambda: total_weight([[1.0, float("nan")], [0, 1]]), "finite"),
        (lambda: weighted_error(csst.Confusion.uniform([0.5, 0.5]), torch.eye(3)), "2 are needed"),
        (lambda: sampling_weights(torch.eye(2), torch.tensor([0, 0])), r"classes \[1\] have none"),
        (lambda: sampling_weights(torch.eye(2), torch.tensor([0, 2])), "lie in 0 .. 1"),
        (lambda: sampling_weights(torch.eye(2), torch.tensor([0.0, 1.0])), "vector of integers"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()
