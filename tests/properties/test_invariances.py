"""Invariances that hold for every gain, target and objective, searched by hypothesis."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import csst
from csst.maths.domains import flatten_domain
from csst.selftraining import Confidence, KLThreshold

SENTENCES = [
    "max min(recall)",
    "max min(recall[head], recall[tail])",
    "max mean(recall) s.t. coverage >= 0.95/K",
    "max mean(recall) s.t. coverage[head] >= 0.95/K, coverage[tail] >= 0.95/K",
    "max gmean(recall)",
    "max mean(f1) s.t. recall >= 0.3",
    "max 0.5*min(recall) + mean(precision)/2 s.t. 0.05 <= coverage, coverage <= 0.4",
    "max accuracy s.t. recall[0] >= 0.8, precision[0] >= 0.5",
]


def instance(seed: int, classes: int, diagonal: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.rand(classes, classes, generator=generator, dtype=torch.float64) + 0.05
    matrix = torch.diag(matrix.diagonal()) if diagonal else matrix
    logits = 3 * torch.randn(6, classes, generator=generator, dtype=torch.float64)
    return matrix, logits, torch.softmax(torch.randn(6, classes, generator=generator, dtype=torch.float64), 1)


seeds = st.integers(0, 2**31 - 1)
class_counts = st.integers(2, 8)


@given(seeds, class_counts, st.booleans(), st.floats(1e-6, 1e6))
def test_the_loss_is_unchanged_by_the_scale_of_the_gain(seed, classes, diagonal, scale):
    matrix, logits, soft = instance(seed, classes, diagonal)
    for target in (soft, soft.argmax(1)):
        loss = csst.cost_sensitive_loss(logits, target, csst.Gain(matrix))
        scaled = csst.cost_sensitive_loss(logits, target, csst.Gain(scale * matrix))
        torch.testing.assert_close(loss, scaled, rtol=1e-9, atol=1e-9)
        plain = csst.weighted_consistency(logits, target, csst.Gain(matrix))
        torch.testing.assert_close(
            csst.weighted_consistency(logits, target, csst.Gain(scale * matrix)), scale * plain, rtol=1e-9, atol=1e-9
        )


@given(seeds, class_counts)
def test_a_constant_per_row_changes_the_optimal_softmax_but_not_its_maximizer(seed, classes):
    matrix, _, probs = instance(seed, classes)
    shift = torch.rand(classes, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    before = csst.Gain(matrix).optimal_prediction(probs)
    after = csst.Gain(matrix + shift).optimal_prediction(probs)
    assert torch.equal(before.argmax(1), after.argmax(1))
    assert not torch.allclose(before, after)


@given(seeds, class_counts, st.booleans())
def test_permuting_the_classes_permutes_everything(seed, classes, diagonal):
    matrix, logits, soft = instance(seed, classes, diagonal)
    order = torch.randperm(classes, generator=torch.Generator().manual_seed(seed))
    moved = csst.Gain(matrix[order][:, order])
    gain, labels = csst.Gain(matrix), soft.argmax(1)
    new_labels = order.argsort()[labels]
    probs = torch.softmax(logits, 1)
    for target, permuted in ((soft, soft[:, order]), (labels, new_labels)):
        for function in (csst.cost_sensitive_loss, csst.weighted_consistency):
            torch.testing.assert_close(function(logits, target, gain), function(logits[:, order], permuted, moved))
        torch.testing.assert_close(
            csst.kl_to_optimal(target, probs, gain), csst.kl_to_optimal(permuted, probs[:, order], moved)
        )
        torch.testing.assert_close(gain.optimal_prediction(target)[:, order], moved.optimal_prediction(permuted))


@given(seeds, class_counts, st.sampled_from(SENTENCES), st.floats(0, 50), st.sampled_from(["uniform", "prior", "zero"]))
def test_multipliers_stay_in_their_domain_and_the_gain_stays_valid(seed, classes, sentence, step_size, initial):
    generator = torch.Generator().manual_seed(seed)
    prior = torch.softmax(2 * torch.randn(classes, generator=generator, dtype=torch.float64), 0)
    game = csst.Multipliers(csst.objective(sentence), prior, step_size=step_size, initial=initial)
    for _ in range(3):
        counts = torch.randint(0, 9, (classes, classes), generator=generator) + torch.eye(classes, dtype=torch.long)
        game.update(csst.Confusion.from_counts(counts))
        assert torch.isfinite(game.value).all()
        assert (game.value >= 0).all()
        for part, place in flatten_domain(game.objective.domain, len(game.value)):
            assert not isinstance(part, csst.Simplex) or float(game.value[place].sum()) == pytest.approx(1)
        assert torch.isfinite(game.gain.mixing).all()
        assert (game.gain.diagonal > 0).all()
        assert len(game.labels) == len(game.value)


@given(seeds, class_counts, st.booleans())
def test_kl_is_zero_exactly_at_the_optimal_prediction(seed, classes, diagonal):
    matrix, _, soft = instance(seed, classes, diagonal)
    gain = csst.Gain(matrix)
    for target in (soft, soft.argmax(1)):
        best = gain.optimal_prediction(target)
        assert csst.kl_to_optimal(target, best, gain).abs().max() < 1e-12
        other = (best + 0.1) / (best + 0.1).sum(1, keepdim=True)
        gap = csst.kl_to_optimal(target, other, gain)
        moved = (other - best).abs().amax(1) > 1e-3
        assert (gap[moved] > 0).all()


@given(seeds, class_counts, st.booleans())
def test_the_posterior_is_what_the_optimal_prediction_came_from(seed, classes, diagonal):
    matrix, logits, probs = instance(seed, classes, diagonal)
    gain = csst.Gain(matrix + classes * torch.eye(classes))  # well conditioned
    torch.testing.assert_close(gain.posterior(gain.optimal_prediction(probs)), probs, rtol=1e-9, atol=1e-9)
    anything = gain.posterior(torch.softmax(3 * logits, 1))  # need not be the prediction of any distribution
    assert float(anything.min()) >= 0
    torch.testing.assert_close(anything.sum(1), torch.ones(len(logits), dtype=torch.float64))


@given(seeds, st.integers(2, 6), st.floats(0.05, 0.99))
def test_for_a_diagonal_gain_the_kl_threshold_is_the_confidence_threshold(seed, classes, confidence):
    matrix, logits, _ = instance(seed, classes, diagonal=True)
    probs = torch.softmax(logits, 1)
    arguments = (probs.argmax(1), probs, csst.Gain(matrix), torch.arange(len(probs)))
    assert torch.equal(KLThreshold(-math.log(confidence))(*arguments), Confidence(confidence)(*arguments))


def test_thresholds_agree_at_exact_ties():
    probs = torch.tensor([[0.95, 0.05], [0.9, 0.1]])
    for confidence, used in ((0.95, [1, 0]), (0.9, [1, 1])):
        arguments = (torch.tensor([0, 0]), probs, csst.Gain(torch.eye(2)), torch.arange(2))
        assert KLThreshold(-math.log(confidence))(*arguments).tolist() == used
        assert Confidence(confidence)(*arguments).tolist() == used
