"""The class balance that is believed: in plain formulas, its error against repeated draws, and what it recovers."""

from __future__ import annotations

import numpy as np
import pytest

from csst.estimation.held_out_scores import HeldOutScores
from csst.estimation.unlabeled_prior import (
    PSEUDO_ROWS,
    draw_balances,
    estimate_balance,
    estimate_class_balance,
    measure_posteriors,
    noise_bound,
    solve_balance,
    spread_bound,
)
from tests.helpers.toys import PRIOR, probs, sample

REVERSED = PRIOR[::-1]
MEANS = np.array([[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.05, 0.25, 0.7]])


def draw(seed, unlabeled_prior, labels=90, rows=400):
    """HeldOutScores of a model that is badly calibrated: its log-probabilities are stretched and shifted."""
    x, y = sample(labels, [1 / 3] * 3, seed)
    u, truth = sample(rows, unlabeled_prior, 1000 + seed)

    def spoil(values):
        raw = np.exp(1.5 * np.log(probs(values)) + np.array([0.5, -0.5, 0.0]) * np.sin(values)[:, None])
        return raw / raw.sum(1, keepdims=True)

    return HeldOutScores.from_probs(spoil(x), y, spoil(u), train_prior=PRIOR), np.bincount(truth, minlength=3) / rows


def plain_solution(target, noise, label_noise):
    """The likeliest variance among those tried, then the posterior mean and error, by inverting matrices."""
    tangent, design, residual = np.eye(3) - 1 / 3, MEANS.T[:2], (target - PRIOR @ MEANS)[:2]

    def total(v):
        return design @ (label_noise + v * tangent) @ design.T + noise[:2, :2]

    variances = np.geomspace(1e-4, 1, 20_000)
    totals = total(variances[:, None, None])
    deviances = np.linalg.slogdet(totals)[1] + residual @ np.linalg.inv(totals) @ residual
    best = variances[deviances.argmin()]
    before = label_noise + best * tangent
    weight = before @ design.T @ np.linalg.inv(total(best))
    return best, PRIOR + weight @ residual, before - weight @ design @ before


@pytest.mark.parametrize("labels", [None, 60])
@pytest.mark.parametrize("n", [30, 300, 3000])
def test_the_solution_is_the_formula(n, labels):
    label_noise = np.zeros((3, 3)) if labels is None else spread_bound(PRIOR) / labels
    target = np.array([0.2, 0.3, 0.5]) @ MEANS
    noise = spread_bound(target) / n
    variance, mean, covariance = plain_solution(target, noise, label_noise)
    found = solve_balance(MEANS, target, noise, PRIOR, None if labels is None else label_noise)
    assert found.variance == pytest.approx(variance, rel=1e-3)
    assert found.covariance == pytest.approx(covariance, rel=1e-3, abs=1e-9)
    assert found.error == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-3)
    draws = np.random.default_rng(0).normal(mean, found.error, size=(200_000, 3)).clip(min=0).mean(0)
    assert found.prior == pytest.approx(draws / draws.sum(), abs=2e-3)


def test_the_bound_holds_for_any_distribution_of_probabilities():
    rows = np.random.default_rng(0).dirichlet([0.3, 0.5, 2.0], size=500)
    slack = np.linalg.eigvalsh(spread_bound(rows.mean(0)) - np.cov(rows.T, bias=True))
    assert slack.min() > -1e-12
    hard = np.eye(3)[[0, 0, 1, 2]]
    assert spread_bound(hard.mean(0)) == pytest.approx(np.cov(hard.T, bias=True))


def test_the_noise_is_that_of_means_of_so_many_rows():
    """Hard predictions attain the bound: the noise of their fractions, by drawing them again and again."""
    rng, size, prior = np.random.default_rng(0), np.array([8, 15, 30]), np.array([0.5, 0.3, 0.2])
    target = prior @ MEANS
    fractions = rng.multinomial(50, target, size=40_000) / 50
    means = [rng.multinomial(n, m, size=40_000) / n for n, m in zip(size, MEANS, strict=True)]
    noise = fractions - sum(p * m for p, m in zip(prior, means, strict=True))
    assert noise_bound(target, 50, MEANS, size, prior) == pytest.approx(np.cov(noise.T), abs=3e-4)


def test_a_class_that_seems_negative_stays_positive():
    target = np.array([-0.02, 0.4, 0.62]) @ MEANS
    found = solve_balance(MEANS, target, spread_bound(np.full(3, 1 / 3)) / 2000, PRIOR)
    assert 0 < found.prior[0] < 0.03
    assert found.prior.sum() == pytest.approx(1)


@pytest.mark.parametrize("prior", [PRIOR, REVERSED, np.full(3, 1 / 3)])
def test_errors_are_at_most_as_large_as_they_are_said_to_be(prior):
    errors, said = [], []
    for seed in range(60):
        found = estimate_balance(draw(seed, prior)[0])
        errors.append(found.prior - prior)
        said.append(found.error)
    size, claimed = np.sqrt((np.array(errors) ** 2).mean(0)), np.sqrt((np.array(said) ** 2).mean(0))
    assert (size < 1.25 * np.maximum(claimed, 0.02)).all(), (size, claimed)
    assert (size > 0.25 * claimed).all(), "the claim is no empty one"


def test_few_labels_and_few_rows_are_both_known_worse():
    sizes = (900, 4000), (60, 4000), (900, 60)
    full, labels, rows = (estimate_balance(draw(0, REVERSED, *size)[0]).error for size in sizes)
    assert (labels > 1.5 * full).all()
    assert (rows > 1.5 * full).all()


def test_another_balance_is_believed_and_the_same_one_is_kept():
    moved, kept = [], []
    for seed in range(20):
        evidence, truth = draw(seed, REVERSED)
        moved.append(np.abs(estimate_balance(evidence).prior - truth).sum() / 2)
        kept.append(np.array_equal(estimate_balance(draw(seed, PRIOR)[0]).prior, PRIOR))
    assert np.mean(moved) < 0.12 < 0.5 == pytest.approx(np.abs(PRIOR - REVERSED).sum() / 2)
    assert np.mean(kept) > 0.5


def test_without_rows_or_information_it_is_the_labels_balance():
    evidence, _ = draw(0, REVERSED)
    flat = HeldOutScores.from_probs(
        np.tile(PRIOR, (90, 1)), evidence.labels, np.tile(PRIOR, (400, 1)), train_prior=PRIOR
    )
    none = HeldOutScores.from_probs(np.tile(PRIOR, (90, 1)), evidence.labels, train_prior=PRIOR)
    for each in (flat, none):
        assert estimate_balance(each).prior == pytest.approx(PRIOR, abs=1e-9)


def test_the_noise_of_posteriors_is_that_of_plain_loops():
    evidence, _ = draw(0, REVERSED)
    rng = np.random.default_rng(0)
    labeled, new = rng.dirichlet([1, 2, 3], 90), rng.dirichlet([2, 2, 1], 400)
    means, noise = measure_posteriors(evidence, labeled, new, PRIOR)
    expected = np.cov(new.T, bias=True) / 400
    for k in range(3):
        rows = [labeled[i] for i in range(90) if evidence.labels[i] == k]
        own = sum(p[k] * p for p in new) / sum(p[k] for p in new)
        mean = (sum(rows) + PSEUDO_ROWS * own) / (len(rows) + PSEUDO_ROWS)
        squares = sum(np.outer(row - mean, row - mean) for row in rows) + PSEUDO_ROWS * spread_bound(mean)
        degrees = len(rows) - 1 + PSEUDO_ROWS
        expected = expected + PRIOR[k] ** 2 * squares / degrees / degrees
        assert means[k] == pytest.approx(mean)
    assert noise == pytest.approx(expected)


def sample_both(seed, prior, labels=80, rows=1500):
    """Labels and unlabeled rows that are both drawn from one balance, and that balance as EM would see it."""
    x, y = sample(labels, prior, seed)
    u, _ = sample(rows, prior, 1000 + seed)
    y[:3] = range(3)
    return HeldOutScores.from_probs(probs(x), y, probs(u), train_prior=PRIOR, labeled_prior=np.bincount(y) / labels)


def test_unlabeled_rows_correct_the_fractions_of_a_sample_of_labels():
    """Closer than the labels' fractions, within two standard errors as often as it should be, and surer."""
    gaps, label_gaps, within, errors = [], [], [], []
    for seed in range(60):
        evidence = sample_both(seed, PRIOR)
        found = estimate_class_balance(evidence)
        gaps.append(np.abs(found.prior - PRIOR).sum())
        label_gaps.append(np.abs(evidence.fractions - PRIOR).sum())
        within.append(np.abs(found.prior - PRIOR) < 2 * found.error)
        errors.append(found.error)
    assert np.mean(gaps) < 0.8 * np.mean(label_gaps)
    assert np.mean(within) > 0.9
    assert (np.mean(errors, 0) < 0.9 * np.sqrt(PRIOR * (1 - PRIOR) / 80)).all(), "not just the labels' own error"
    moved = [estimate_class_balance(draw(seed, REVERSED)[0]) for seed in range(20)]
    assert np.mean([np.abs(each.prior - REVERSED).sum() / 2 for each in moved]) < 0.12


def test_without_unlabeled_rows_the_labels_are_a_sample():
    _, y = sample(90, PRIOR, 0)
    evidence = HeldOutScores.from_probs(np.tile(PRIOR, (90, 1)), y, train_prior="labels")
    found = estimate_class_balance(evidence)
    assert found.prior.tolist() == evidence.fractions.tolist()
    assert found.error == pytest.approx(np.sqrt(evidence.fractions * (1 - evidence.fractions) / 91), rel=0.05)


def test_balances_are_drawn_with_their_error_and_stay_balances():
    covariance = spread_bound(PRIOR) / 60
    draws = draw_balances(PRIOR, covariance, 20_000)
    assert draws.min() > 0
    assert draws.sum(1) == pytest.approx(1)
    assert np.cov(draws.T) == pytest.approx(covariance, rel=0.06)
