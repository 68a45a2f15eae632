"""Draws of class rates, against the model they are to follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import betaln, expit, logit
from scipy.stats import norm

import csst
from csst.estimation.expectation import estimate_intervals, estimate_lowest_recall, expected_minimum
from csst.estimation.rate_draws import (
    HALVING_ODDS,
    HALVINGS,
    NEWS_CROSS_FITTED,
    SHIFT_CROSS_FITTED,
    SHIFT_HELD_OUT,
    SHIFTS,
    count_answers,
    count_trust,
    draw_confusions,
    draw_recalls,
    limit_rates,
    shift_recalls,
    weigh_doubts,
)
from csst.maths.confusion import Confusion
from tests.estimation.estimates import make_estimate

#: intervals that rule nothing out
FREE = [{"high": 0.0}]
RECALLS = np.array([0.7, 0.75, 0.8, 0.9])


def test_unlabeled_rows_are_worth_more_with_more_labels_and_less_if_cross_fitted():
    estimate = make_estimate(RECALLS, n=[5, 50, 5, 95], unlabeled=4000)
    assert count_trust(estimate) == pytest.approx([100, 200 * 50 / 55, 100, 190])
    cross_fitted = replace(estimate, is_cross_fitted=True)
    assert count_trust(cross_fitted) == pytest.approx([200 * 5 / 55, 100, 200 * 5 / 55, 200 * 95 / 145])
    few_rows = replace(estimate, unlabeled=100, unlabeled_prior=np.array([0.1, 0.2, 0.3, 0.4]))
    assert count_trust(few_rows) == pytest.approx([10, 20, 30, 40])
    no_rows = replace(estimate, unlabeled=0, worth=np.array([5.0, 20.0, 0.0, 7.0]))
    assert count_trust(no_rows) == pytest.approx([5, 20, 1, 7])


def test_a_shift_adds_to_the_logits():
    shifts = np.array([-0.5, 0.0, 1.2])
    expected = [[expit(logit(recall) + shift) for recall in RECALLS] for shift in shifts]
    assert shift_recalls(RECALLS, shifts) == pytest.approx(np.array(expected))
    assert shift_recalls(np.array([0.0, 1.0]), np.zeros(1)) == pytest.approx(np.array([[0.01, 0.99]]))


@pytest.mark.parametrize("is_cross_fitted", [False, True])
def test_doubts_are_weighed_by_the_beta_binomial(is_cross_fitted):
    estimate = make_estimate(RECALLS, n=10, labeled=[0.5, 0.9, 0.8, 1.0], unlabeled=4000)
    estimate = replace(estimate, is_cross_fitted=is_cross_fitted)
    doubts = weigh_doubts(estimate)
    deviation = SHIFT_CROSS_FITTED if is_cross_fitted else SHIFT_HELD_OUT
    part = NEWS_CROSS_FITTED if is_cross_fitted else 1.0
    chances = np.zeros((HALVINGS + 1, SHIFTS))
    for m in range(HALVINGS + 1):
        for place in range(SHIFTS):
            shift = deviation * norm.ppf((place + 0.5) / SHIFTS)
            worth = count_trust(estimate)[0] / 2**m
            chances[m, place] = HALVING_ODDS**m
            for recall, hits in zip(RECALLS, [5, 9, 8, 10], strict=True):
                u = expit(logit(recall) + shift)
                news = np.array([hits, 10 - hits]) * part
                # The binomial coefficient is the same everywhere; scipy's distribution takes whole numbers only.
                chances[m, place] *= np.exp(betaln(worth * u + news[0], worth * (1 - u) + news[1]))
                chances[m, place] /= np.exp(betaln(worth * u, worth * (1 - u)))
    assert doubts.weights == pytest.approx(chances / chances.sum(), rel=1e-6)


def test_labels_that_disagree_lower_the_worth():
    agreeing = make_estimate(RECALLS, n=40, unlabeled=4000)
    disagreeing = make_estimate(RECALLS, n=40, labeled=[0.2, 1.0, 0.5, 0.9], unlabeled=4000)
    worth_of = [(weigh_doubts(each).weights.sum(1) @ weigh_doubts(each).worths)[0] for each in (agreeing, disagreeing)]
    assert worth_of[0] > 100
    assert worth_of[1] < 20
    # and then the labels are believed
    assert draw_recalls(disagreeing).mean(0) == pytest.approx([0.2, 1.0, 0.5, 0.9], abs=0.1)


def test_recalls_and_confusions_are_drawn_alike():
    estimate = make_estimate(RECALLS, n=[5, 10, 20, 40], labeled=[0.6, 0.9, 0.8, 0.9], prior=[0.4, 0.3, 0.2, 0.1])
    recalls = draw_recalls(estimate, 10_000)
    confusions = list(draw_confusions(estimate, 2000))
    diagonals = np.stack([confusion.recall.numpy() for confusion in confusions])
    assert recalls.shape == (10_000, 4)
    assert diagonals.mean(0) == pytest.approx(recalls.mean(0), abs=0.006)
    assert diagonals.std(0) == pytest.approx(recalls.std(0), rel=0.08)
    assert np.corrcoef(diagonals.T)[0, 3] == pytest.approx(np.corrcoef(recalls.T)[0, 3], abs=0.06)
    assert np.corrcoef(recalls.T)[0, 3] > 0.1  # the shift is common to all classes
    for confusion in confusions[:20]:
        assert confusion.rates.sum(1).numpy() == pytest.approx(np.ones(4))
        assert confusion.prior.tolist() == pytest.approx([0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("is_cross_fitted", [False, True])
@pytest.mark.parametrize("labels", [6, 50])
def test_expectations_and_intervals_hold_where_the_model_does(labels, is_cross_fitted):
    """Truths drawn from the model: the lowest recall is expected without bias and lies in 95 % of the intervals."""
    rng = np.random.default_rng(labels)
    expected = rng.uniform(0.6, 0.85, size=4)
    deviation = SHIFT_CROSS_FITTED if is_cross_fitted else SHIFT_HELD_OUT
    news = int(labels * (NEWS_CROSS_FITTED if is_cross_fitted else 1))
    base = replace(make_estimate(expected, n=labels, unlabeled=4000), is_cross_fitted=is_cross_fitted)
    biases = []
    holds = []
    for _ in range(200):
        halvings = min(rng.geometric(1 - HALVING_ODDS) - 1, HALVINGS)
        worth = count_trust(base) / 2**halvings
        u = expit(logit(expected) + deviation * rng.normal())
        truth = rng.beta(worth * u, worth * (1 - u))
        hits = rng.binomial(news, truth)
        estimate = make_estimate(expected, n=labels, labeled=hits / news, unlabeled=4000)
        interval = estimate_lowest_recall(replace(estimate, is_cross_fitted=is_cross_fitted), FREE)
        biases.append(interval["estimate"] - truth.min())
        holds.append(interval["low"] <= truth.min() <= interval["high"])
    assert abs(np.mean(biases)) < 3 * np.std(biases) / 200**0.5
    assert 0.90 <= np.mean(holds) <= 0.99


def test_cross_fitted_labels_count_in_part():
    """The same labels are worth half as many: draws as of half the labels, whatever else is known being the same."""
    labeled = [0.2, 0.9, 0.4, 1.0]
    estimate = replace(make_estimate(RECALLS, n=40, labeled=labeled, unlabeled=4000), is_cross_fitted=True)
    answers = count_answers(estimate)
    assert answers.hits == pytest.approx(20 * np.array(labeled))
    assert answers.hits + answers.misses == pytest.approx(np.full(4, 20))
    held_out = count_answers(replace(estimate, is_cross_fitted=False))
    assert held_out.hits + held_out.misses == pytest.approx(np.full(4, 40))
    # Where R^U is worth next to nothing, recalls spread as they do after 20 labels.
    no_trust = replace(estimate, unlabeled=0, worth=np.full(4, 1e-6))
    spread = draw_recalls(no_trust, 20_000).std(0)
    assert spread[:3] == pytest.approx([(r * (1 - r) / 21) ** 0.5 for r in labeled[:3]], rel=0.1)


def test_draws_are_the_same_for_a_seed():
    estimate = make_estimate(RECALLS)
    assert np.array_equal(draw_recalls(estimate, 5, seed=1), draw_recalls(estimate, 5, seed=1))
    assert not np.array_equal(draw_recalls(estimate, 5, seed=1), draw_recalls(estimate, 5, seed=2))
    rates = [next(draw_confusions(estimate, 1, seed)).rates for seed in (0, 0, 1)]
    assert torch.equal(rates[0], rates[1])
    assert not torch.equal(rates[0], rates[2])


def test_recalls_of_a_classifier_that_abstains_are_of_its_answers():
    """Recall .8 of the answers, a quarter of the rows without an answer: not .6, and known from fewer labels."""
    answers = make_estimate([0.8, 0.8], n=40, unlabeled=4000)
    rates = np.hstack([0.75 * answers.labeled_rates, np.full((2, 1), 0.25)])
    confusion = Confusion(torch.from_numpy(rates), answers.confusion.prior)
    estimate = replace(answers, confusion=confusion, labeled_rates=rates, unlabeled_rates=rates)
    labels = count_answers(estimate)
    assert labels.hits == pytest.approx([24, 24])
    assert labels.misses == pytest.approx([6, 6])
    assert labels.recalls == pytest.approx([0.8, 0.8])
    recalls = draw_recalls(estimate)
    assert recalls.mean(0) == pytest.approx([0.8, 0.8], abs=0.01)
    assert (recalls.std(0) > draw_recalls(answers).std(0)).all()
    drawn = np.stack([each.recall.numpy() for each in draw_confusions(estimate, 500)])
    assert drawn.mean(0) == pytest.approx([0.8, 0.8], abs=0.015)
    assert expected_minimum(estimate) == pytest.approx(recalls.min(1).mean())
    rows = estimate_intervals(csst.objective("max min(recall)").bind(2), estimate)["recall"]
    assert all(0.6 < row["low"] < 0.8 < row["high"] < 0.95 for row in rows)


def test_unlabeled_rows_expect_no_recall_that_cross_fitted_labels_could_not_show():
    recalls = np.array([0.99, 0.75, 0.98, 1.0])
    labels = [5, 5, 98, 8]
    held_out = make_estimate(recalls, n=labels, unlabeled=4000)
    assert limit_rates(held_out) == pytest.approx(held_out.unlabeled_rates)
    cross_fitted = replace(held_out, is_cross_fitted=True)
    expected = held_out.unlabeled_rates.copy()
    for k, n in enumerate(labels):
        limit = (n + 1) / (n + 2)
        if recalls[k] <= limit:
            continue
        errors = [expected[k, j] for j in range(4) if j != k]
        for j in range(4):
            if j != k:
                part = expected[k, j] / sum(errors) if sum(errors) else 1 / 3
                expected[k, j] += part * (recalls[k] - limit)
        expected[k, k] = limit
    assert limit_rates(cross_fitted) == pytest.approx(expected)
    assert expected[[0, 3], [0, 3]] == pytest.approx([6 / 7, 9 / 10])
    assert expected.sum(1) == pytest.approx(np.ones(4))


def test_five_right_answers_of_five_do_not_rule_out_a_recall_of_three_quarters():
    """Whatever the model thinks of itself; confusions are drawn alike."""
    estimate = make_estimate(np.array([0.99, 0.99]), n=[5, 98], labeled=[1.0, 1.0], unlabeled=4000)
    cross_fitted = replace(estimate, is_cross_fitted=True)
    interval = estimate_lowest_recall(cross_fitted, FREE)
    assert interval["low"] < 0.75
    assert interval["high"] > 0.95
    lowest = [float(confusion.recall.min()) for confusion in draw_confusions(cross_fitted, 2000)]
    assert np.quantile(lowest, 0.025) == pytest.approx(interval["low"], abs=0.05)
