"""Cross-fitting: an honest number, and no more adjustment than it supports."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from csst.confusion import Confusion
from csst.errors import InputError
from csst.posthoc import DecisionRule, Randomised, cross_fit, fit, rule_from_dict
from csst.posthoc.crossfit import STRENGTHS, fold_numbers
from tests.posthoc.examples import noisy, recalls


def test_each_example_is_judged_by_a_rule_fitted_without_it():
    probs, labels = noisy(0, 60, 2)
    found = cross_fit(probs, labels, "max min(recall)", folds=3, seed=5)
    held = fold_numbers(torch.as_tensor(labels), 2, 3, 5).numpy()
    for option, strength in zip(found.options, STRENGTHS, strict=True):
        predictions = np.full(60, -1)
        for fold in range(3):
            inside = held != fold
            made = fit(probs[inside], labels[inside], "max min(recall)", seed=5)
            predictions[~inside] = made.shrunk(strength).predict(probs[~inside]).numpy()
        assert option.strength == strength
        assert option.standing.value == pytest.approx(min(recalls(labels.tolist(), predictions.tolist(), 2)))
        assert int(option.counts.sum()) == 60
    assert found.value == max(o.standing.value for o in found.options)
    assert float(found.confusion.recall.min()) == pytest.approx(found.value)
    whole = fit(probs, labels, "max min(recall)", seed=5)
    assert torch.equal(found.rule.matrix, whole.shrunk(found.chosen.strength).matrix)


def test_folds_hold_each_class_in_equal_shares():
    labels = torch.tensor([0] * 20 + [1] * 7 + [2] * 2)
    held = fold_numbers(labels, 3, 5, 0)
    for k, members in enumerate((20, 7, 2)):
        sizes = torch.bincount(held[labels == k], minlength=5)
        assert int(sizes.sum()) == members
        assert int(sizes.max() - sizes.min()) <= 1
    assert int(torch.bincount(held, minlength=5).max() - torch.bincount(held, minlength=5).min()) <= 1
    assert torch.equal(held, fold_numbers(labels, 3, 5, 0))
    assert not torch.equal(held, fold_numbers(labels, 3, 5, 1))


def test_on_noise_the_fitted_examples_flatter_the_rule_and_the_held_out_do_not():
    flattered, honest = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        labels = np.arange(36) % 3
        probs = rng.dirichlet(np.ones(3), 36)
        found = cross_fit(probs, labels, "max mean(recall)", seed=seed)
        flattered.append(found.fitted.deterministic_value)
        honest.append(found.options[-1].standing.value)
    # Nothing can be known of the labels, so a third is what any rule gets on examples it has not seen.
    assert np.mean(flattered) > 0.42
    assert np.mean(honest) < 0.36
    assert all(plug_in > held_out for plug_in, held_out in zip(flattered, honest, strict=True))


def test_without_a_difference_nothing_is_adjusted():
    labels = np.arange(40) % 4
    probs = 0.9 * np.eye(4)[labels] + 0.025
    found = cross_fit(probs, labels, "max min(recall)")
    assert found.value == 1
    assert found.chosen.strength == 0
    assert torch.equal(found.rule.matrix, torch.eye(4, dtype=torch.float64))
    assert "no adjustment" in found.sentence


def test_a_model_that_neglects_a_class_is_adjusted_in_full():
    probs, labels = noisy(1, 1000, 3, signal=2)
    found = cross_fit(probs, labels, "max min(recall)")
    assert found.chosen.strength >= 0.75
    assert found.value > found.unadjusted.value + 0.1
    fresh, truth = noisy(2, 5000, 3, signal=2)
    after = Confusion.from_predictions(truth, found.rule.predict(fresh), 3)
    before = DecisionRule.identity(3).confusion(fresh, truth)
    assert float(after.recall.min()) > float(before.recall.min()) + 0.1
    assert found.value == pytest.approx(float(after.recall.min()), abs=0.06)


def test_constraints_come_before_the_value():
    rng = np.random.default_rng(0)
    labels = np.array([0] * 360 + [1] * 40)
    odds = np.exp(rng.normal(size=400) + 1.2 * labels - 2.8)
    probs = np.stack([1 / (1 + odds), odds / (1 + odds)], 1)
    found = cross_fit(probs, labels, "max accuracy s.t. recall >= 0.6")
    assert found.unadjusted.violation > 0.2
    assert found.chosen.standing.violation < 0.1
    assert found.value < found.unadjusted.value


def test_a_lottery_is_used_only_if_it_is_wanted_and_better():
    probs, labels = np.tile([[0.6, 0.4]], (20, 1)), np.array([0] * 12 + [1] * 8)
    plain, lottery = (cross_fit(probs, labels, "max min(recall)", randomised=r) for r in (False, True))
    assert isinstance(plain.rule, DecisionRule)
    assert isinstance(lottery.rule, Randomised)
    assert lottery.value > 0.4
    assert "a randomised rule" in lottery.sentence
    easy = cross_fit(0.8 * np.eye(2)[labels] + 0.1, labels, "max min(recall)", randomised=True)
    assert isinstance(easy.rule, DecisionRule)


def test_what_is_stored_is_plain():
    probs, labels = noisy(3, 80, 3)
    found = cross_fit(probs, labels, "max accuracy s.t. recall >= 0.4")
    stored = json.loads(json.dumps(found.as_dict()))
    assert torch.equal(rule_from_dict(stored["rule"]).predict(probs), found.rule.predict(probs))
    assert [option["strength"] for option in stored["options"]] == list(STRENGTHS)
    assert stored["value"] == found.value
    assert stored["plug_in"]["deterministic_value"] == found.fitted.deterministic_value


def test_bad_input_gets_a_sentence():
    probs, labels = noisy(0, 20, 3)
    labels[labels == 2] = 1
    labels[0] = 2
    with pytest.raises(InputError, match=r"at least 2 validation examples of every class.*classes \[2\] have 1"):
        cross_fit(probs, labels, "max accuracy")
    labels[1] = 2
    for folds in (1, 21, 2.0, True):
        with pytest.raises(InputError, match="folds is a whole number from 2"):
            cross_fit(probs, labels, "max accuracy", folds=folds)
    with pytest.raises(InputError, match="tolerance"):
        cross_fit(probs, labels, "max accuracy", tolerance=float("nan"))
