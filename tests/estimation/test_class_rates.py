"""Class rates from labels and unlabeled rows: plain loops, both limits, and what is said about them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from csst.estimation.class_rates import (
    UNLABELED_WORTH,
    RateEstimate,
    count_labels,
    decide_rates,
    estimate_rates,
    pool_rates,
)
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.confusion import Confusion

PRIOR = np.array([0.5, 0.3, 0.2])


def random_evidence(n=18, m=60, seed=0):
    rng = np.random.default_rng(seed)
    unlabeled = rng.dirichlet(np.ones(3), m) if m else None
    return HeldOutScores.from_probs(rng.dirichlet(np.ones(3), n), np.arange(n) % 3, unlabeled, train_prior=PRIOR)


def plain_estimate(evidence, decisions, soft_decisions, worth=20.0):
    """R_k = (n_k R^L_k + kappa_k R^U_k) / (n_k + kappa_k), by loops."""
    K = evidence.classes
    posterior = evidence.posterior if len(evidence.unlabeled_scores) else evidence.labeled_posterior
    rates = np.zeros((K, K))
    for k in range(K):
        n = sum(1 for y in evidence.labels if y == k)
        mass = sum(q[k] for q in posterior)
        kappa = min(worth, mass)
        for j in range(K):
            hits = sum(1 for y, d in zip(evidence.labels, decisions, strict=True) if y == k and d == j)
            soft = sum(q[k] for q, d in zip(posterior, soft_decisions, strict=True) if d == j) / mass
            rates[k, j] = (hits + kappa * soft) / (n + kappa)
    return rates


@pytest.mark.parametrize("m", [200, 6, 0])
def test_the_estimate_is_the_formula(m):
    evidence = random_evidence(m=m)
    rng = np.random.default_rng(1)
    decisions, soft = rng.integers(0, 3, 18), rng.integers(0, 3, m or 18)
    found = estimate_rates(evidence, decisions, soft, PRIOR)
    assert found.confusion.rates.numpy() == pytest.approx(plain_estimate(evidence, decisions, soft), abs=1e-12)
    assert found.confusion.prior.tolist() == PRIOR.tolist()
    assert found.n.tolist() == [6, 6, 6]
    assert found.unlabeled == m
    assert found.unlabeled_prior == pytest.approx(evidence.unlabeled_prior)
    counts = [[sum((evidence.labels == k) & (decisions == j)) / 6 for j in range(3)] for k in range(3)]
    assert found.labeled_rates == pytest.approx(np.array(counts))
    assert UNLABELED_WORTH == 20


@pytest.mark.parametrize("K", [4, 60])
def test_tables_by_loops(K):
    rng = np.random.default_rng(2)
    weights, decisions = rng.uniform(size=(30, K)), rng.choice([0, 1, 3], 30)  # class 2 is never predicted
    labels = rng.integers(0, K, 30)
    found, counted = decide_rates(weights, decisions, K), count_labels(labels, decisions, K)
    assert found.shape == counted.shape == (K, K)
    for k in range(K):
        for j in range(K):
            assert found[k, j] == pytest.approx(sum(weights[i, k] for i in range(30) if decisions[i] == j))
            assert counted[k, j] == sum(1 for i in range(30) if labels[i] == k and decisions[i] == j)
    assert not decide_rates(np.zeros((0, K)), np.zeros(0, dtype=int), K).any()


def test_without_unlabeled_rows_counts_are_drawn_to_the_labels_own_posterior():
    evidence = random_evidence(m=0)
    decisions = evidence.scores.argmax(1)
    found = estimate_rates(evidence, decisions, decisions, PRIOR)
    own = decide_rates(evidence.labeled_posterior, decisions, 3)
    own /= own.sum(1, keepdims=True)
    assert found.unlabeled_rates == pytest.approx(own)
    mass = evidence.labeled_posterior.sum(0)
    share = (6 / (6 + np.minimum(20, mass)))[:, None]
    assert (mass < 20).all()  # 18 labels are not worth 20 of every class
    expected = share * found.labeled_rates + (1 - share) * own
    assert found.confusion.rates.numpy() == pytest.approx(expected)


@pytest.mark.parametrize("m", [0, 5000])
def test_many_labels_are_the_counts_whatever_the_unlabeled_rows_say(m):
    rng = np.random.default_rng(3)
    n = 20_000
    labels = rng.integers(0, 3, n)
    evidence = HeldOutScores.from_probs(
        rng.dirichlet(np.ones(3), n), labels, rng.dirichlet(np.ones(3), m) if m else None, train_prior="uniform"
    )
    decisions = np.where(rng.uniform(size=n) < 0.8, labels, (labels + 1) % 3)
    soft = np.zeros(m, dtype=int) if m else decisions  # unlabeled rows: always class 0
    found = estimate_rates(evidence, decisions, soft, PRIOR)
    counts = count_labels(labels, decisions, 3)
    counts /= counts.sum(1, keepdims=True)
    assert np.abs(found.confusion.rates.numpy() - counts).max() < 0.01
    if m:
        assert found.unlabeled_rates[:, 0] == pytest.approx([1, 1, 1])
        assert np.abs(found.confusion.rates.numpy() - counts).max() > 1e-4


def test_unlabeled_rows_are_worth_no_more_than_their_mass():
    counts, soft = np.diag([4.0, 4.0, 0.0]), np.array([[3.0, 1.0, 0], [0, 0.5, 0.5], [60, 0, 40]])
    rates, expected, worth = pool_rates(counts, soft)
    assert worth.tolist() == [4, 1, 20]
    assert expected == pytest.approx(np.array([[0.75, 0.25, 0], [0, 0.5, 0.5], [0.6, 0, 0.4]]))
    assert rates == pytest.approx(np.array([[7 / 8, 1 / 8, 0], [0, 4.5 / 5, 0.5 / 5], [0.6, 0, 0.4]]))


def test_a_class_of_which_nothing_is_known_is_predicted_at_random():
    rates, expected, worth = pool_rates(np.array([[2.0, 0], [0, 0]]), np.array([[1.0, 0], [0, 0]]))
    assert rates.tolist() == [[1, 0], [0.5, 0.5]]
    assert expected.tolist() == [[1, 0], [0.5, 0.5]]
    assert worth[1] == 1


def made(labeled, unlabeled_rates, n=20, worth=20.0, unlabeled=1000):
    """An estimate whose recalls by labels and by unlabeled rows are given; errors go to the next class."""
    K = len(labeled)

    def rates(recalls):
        table = np.diag(np.asarray(recalls, dtype=float))
        for k in range(K):
            table[k, (k + 1) % K] = 1 - recalls[k]
        return table

    sizes = np.full(K, n) if np.isscalar(n) else np.array(n)
    pooled = (sizes[:, None] * rates(labeled) + worth * rates(unlabeled_rates)) / (sizes + worth)[:, None]
    prior = torch.full((K,), 1 / K, dtype=torch.float64)
    return RateEstimate(
        Confusion(torch.from_numpy(pooled), prior),
        rates(labeled),
        rates(unlabeled_rates),
        sizes,
        np.full(K, worth),
        unlabeled,
        prior.numpy(),
    )


def test_differences_are_in_standard_errors():
    found = made([0.9, 0.5], [0.6, 0.5], n=10, worth=20.0)
    recall = (10 * 0.9 + 20 * 0.6) / 30
    expected = 0.3 / (recall * (1 - recall) * (1 / 10 + 1 / 20)) ** 0.5
    assert found.differences == pytest.approx([expected, 0])
    assert found.dispersion == pytest.approx(max(1, expected**2 / 2))
    sure = made([1.0, 0.5], [1.0, 0.5])
    assert np.isfinite(sure.differences).all()
    assert sure.dispersion == 1


def test_dispersion_is_the_mean_square_and_at_least_one():
    assert made([0.8, 0.8, 0.8], [0.8, 0.8, 0.8]).dispersion == 1
    far = made([0.2, 0.8, 0.8], [0.9, 0.8, 0.8], n=200)
    assert far.dispersion == pytest.approx((far.differences**2).sum() / 3)
    assert far.dispersion > 3


def test_agreement_is_said():
    agree = made([0.8, 0.75, 0.8], [0.8, 0.8, 0.8], n=[5, 10, 20]).agreement()
    assert agree.startswith("labels and unlabeled rows agree as far as chance allows; at most, the recall of class 1")
    assert "is 0.75 by its 10 labels and 0.80 by the 1,000 unlabeled rows" in agree
    disagree = made([0.1, 0.8, 0.8], [0.9, 0.8, 0.8], n=50).agreement(["cat", "dog", "owl"])
    assert disagree.startswith("labels and unlabeled rows disagree by more than chance: the recall of class 'cat'")
    assert "is 0.10 by its 50 labels and 0.90 by the 1,000 unlabeled rows; label more rows" in disagree
    alone = made([0.1, 0.8], [0.9, 0.8], unlabeled=0).agreement()
    assert alone.startswith("there are no unlabeled rows")


def test_one_class_far_apart_among_many_is_a_disagreement():
    found = made([0.1] + [0.8] * 29, [0.8] * 30)
    assert found.dispersion < 3
    assert abs(found.differences[0]) > 4
    assert "disagree" in found.agreement()


def test_the_basis_names_the_numbers():
    assert made([0.9, 0.6], [0.9, 0.6], n=[5, 1200]).basis == (
        "estimated from 1,205 labels (5 to 1200 per class) and 1,000 unlabeled rows"
    )
    assert made([0.9, 0.6], [0.9, 0.6], n=7, unlabeled=1).basis.endswith("(7 per class) and 1 unlabeled row")
    assert made([0.9, 0.6], [0.9, 0.6], n=7, unlabeled=0).basis == "estimated from 14 labels (7 per class)"


def test_plain_values_for_json():
    found = made([0.9, 0.6], [0.9, 0.6], n=[5, 12]).as_dict()
    assert found["recall"] == pytest.approx([0.9, 0.6])
    assert found["coverage"] == pytest.approx([0.65, 0.35])
    assert found["n"] == [5, 12]
    assert found["unlabeled"] == 1000
    assert found["prior"] == found["unlabeled_prior"] == [0.5, 0.5]


def test_counts_and_another_prior():
    found = made([0.9, 0.6], [0.5, 0.5], n=[10, 5])
    assert found.counts.tolist() == [[9, 1], [2, 3]]
    other = found.with_prior(np.array([0.2, 0.8]))
    assert other.confusion.prior.tolist() == [0.2, 0.8]
    assert torch.equal(other.confusion.rates, found.confusion.rates)
    assert other.confusion.coverage[0] != found.confusion.coverage[0]
