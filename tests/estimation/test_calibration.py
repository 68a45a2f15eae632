"""Calibration on few labels: loss by plain loops, gradient by finite differences, what the fit recovers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from csst.estimation.calibration import (
    RIDGE,
    WIDEST_LOG_TEMPERATURE,
    Calibration,
    balanced_weights,
    calibration_loss,
    fit_calibration,
)

MEANS = np.array([[0.0, 0.0], [1.5, 0.0], [0.5, 2.0]])


def example(n=25, K=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, K)) * 2, rng.integers(0, K, n), rng.uniform(0.2, 3, n)


def plain_loss(bias, log_temperature, scores, labels, weights, ridge):
    ridges = ridge if isinstance(ridge, list) else [ridge] * (len(bias) + 1)
    mean = sum(bias) / len(bias)
    parameters = [*(a - mean for a in bias), log_temperature]
    total = sum(r * a * a for r, a in zip(ridges, parameters, strict=True)) / 2
    for z, y, w in zip(scores, labels, weights, strict=True):
        logits = [math.exp(log_temperature) * z[k] + bias[k] for k in range(len(bias))]
        total += w * (math.log(sum(math.exp(s) for s in logits)) - logits[y])
    return total


@pytest.mark.parametrize("ridge", [0.0, 0.7, 5.0])
def test_loss_is_the_formula(ridge):
    scores, labels, weights = example()
    parameters = np.array([0.3, -1.0, 0.5, 0.1, -0.4])
    expected = plain_loss(parameters[:-1], parameters[-1], scores, labels, weights, ridge)
    assert calibration_loss(parameters, scores, labels, weights, ridge)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 5.0])
def test_gradient_is_the_finite_difference_of_the_plain_loss(ridge):
    scores, labels, weights = example(seed=1)
    parameters, step = np.array([0.3, -1.0, 0.5, 0.1, 0.6]), 1e-5
    found = calibration_loss(parameters, scores, labels, weights, ridge)[1]
    for k in range(5):
        up, down = parameters.copy(), parameters.copy()
        up[k] += step
        down[k] -= step
        values = [plain_loss(x[:-1], x[-1], scores, labels, weights, ridge) for x in (up, down)]
        assert found[k] == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-6, abs=1e-6)


def test_the_loss_leaves_its_input_alone_and_bears_huge_scores():
    scores, labels, weights = example()
    huge = scores * 1e4
    before = huge.copy()
    value, gradient = calibration_loss(np.zeros(5), huge, labels, weights, 5.0)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert np.array_equal(huge, before)


def gaussian_scores(n, prior, temperature, bias, seed):
    """Scores z and labels such that P(y = k | x) ∝ prior_k exp(T z_k + a_k) exactly."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, n, p=prior)
    x = MEANS[labels] + rng.normal(size=(n, 2))
    density = -0.5 * ((x[:, None] - MEANS) ** 2).sum(2)
    return (density - bias) / temperature, labels


@pytest.mark.parametrize("prior", [[1 / 3, 1 / 3, 1 / 3], [0.8, 0.15, 0.05]])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_truth_is_recovered_under_every_class_balance(prior, temperature):
    bias = np.array([0.6, -0.2, -0.4])
    scores, labels = gaussian_scores(20_000, prior, temperature, bias, seed=3)
    found = fit_calibration(scores, labels, ridge=1e-3)
    assert found.temperature == pytest.approx(temperature, rel=0.06)
    assert found.bias == pytest.approx(bias, abs=0.08)


def test_the_fit_is_where_the_gradient_vanishes():
    """The bias of a rare class is drawn to 0 by as much more as its labels weigh more."""
    scores, labels, _ = example(40, 4, seed=2)
    kept = (labels > 0) | (np.arange(40) % 3 == 0)
    scores, labels = scores[kept], labels[kept]
    found = fit_calibration(scores, labels)
    weights = balanced_weights(labels, 4)
    ridges = [RIDGE * max(1.0, len(labels) / (4 * sum(labels == k))) for k in range(4)]
    ridges.append(RIDGE)
    at = np.append(found.bias, math.log(found.temperature))
    assert max(ridges) > 1.2 * RIDGE
    assert np.abs(calibration_loss(at, scores, labels, weights, np.array(ridges))[1]).max() < 0.01
    best = plain_loss(at[:-1], at[-1], scores, labels, weights, ridges)
    rng = np.random.default_rng(0)
    for _ in range(30):
        other = at + rng.normal(size=5) * 0.1
        assert plain_loss(other[:-1], other[-1], scores, labels, weights, ridges) > best - 1e-6


def test_few_labels_are_drawn_to_the_identity():
    bias = np.array([1.5, -0.5, -1.0])
    scores, labels = gaussian_scores(3000, [1 / 3] * 3, 2.5, bias, seed=4)
    few = np.concatenate([np.flatnonzero(labels == k)[:3] for k in range(3)])
    sizes = []
    for ridge in (0.05, RIDGE, 500.0):
        found = fit_calibration(scores[few], labels[few], ridge=ridge)
        sizes.append(float(np.linalg.norm(np.append(found.bias, math.log(found.temperature)))))
    assert sizes[0] > 1.5 * sizes[1] > 0
    assert sizes[1] > 10 * sizes[2]
    many = fit_calibration(scores, labels)
    assert many.temperature == pytest.approx(2.5, rel=0.1)
    assert np.abs(many.bias - bias).max() < 0.25 * np.abs(bias).max()
    default = fit_calibration(scores[few], labels[few])
    assert np.linalg.norm(default.bias) == pytest.approx(
        np.linalg.norm(fit_calibration(scores[few], labels[few], ridge=5.0).bias)
    )


def test_the_bias_is_centered_wherever_the_search_begins():
    scores, labels, _ = example(30, 4)
    for start in (None, Calibration(2.0, np.array([3.0, 3.0, 3.0, 4.0]))):
        found = fit_calibration(scores, labels, ridge=1e-9, start=start)
        assert abs(found.bias.sum()) < 1e-9
        assert np.abs(found.bias).max() > 0.01


def test_classes_weigh_alike():
    labels = np.array([0, 0, 0, 0, 0, 1, 2, 2])
    found = balanced_weights(labels, 3)
    for row, y in enumerate(labels):
        assert found[row] == pytest.approx(8 / (3 * list(labels).count(y)))
    assert [found[labels == k].sum() for k in range(3)] == pytest.approx([8 / 3] * 3)


def test_a_class_without_a_row_weighs_nothing():
    labels = np.array([0, 0, 2])
    assert balanced_weights(labels, 3) == pytest.approx([0.75, 0.75, 1.5])


@pytest.mark.parametrize("constant", [0.0, -7.0])
def test_constant_scores_stay_harmless(constant):
    scores, labels = np.full((20, 3), constant), np.arange(20) % 3
    found = fit_calibration(scores, labels)
    assert found.temperature == pytest.approx(1.0, abs=1e-2)
    assert found.bias == pytest.approx(np.zeros(3), abs=1e-2)


def test_the_temperature_stays_within_its_bounds():
    scores, labels, _ = example(300, 3)
    labels = scores.argmax(1)
    assert fit_calibration(scores, labels, ridge=1e-9).temperature <= math.exp(WIDEST_LOG_TEMPERATURE) + 1e-9
    contradicted = fit_calibration(scores, scores.argmin(1), ridge=1e-9)
    assert contradicted.temperature == pytest.approx(math.exp(-WIDEST_LOG_TEMPERATURE))


def test_apply_multiplies_and_adds():
    calibration = Calibration(2.0, np.array([0.5, -0.5]))
    assert calibration.apply(np.array([[1.0, 3.0], [0.0, -1.0]])).tolist() == [[2.5, 5.5], [0.5, -2.5]]
    assert Calibration.identity(2).apply(np.array([[1.0, 3.0]])).tolist() == [[1.0, 3.0]]
