"""The whole method in ten short tests, in reading order. Start here; `pytest tests/test_tour.py` takes seconds.

Each says one thing and shows it. `docs/reference/paper-map.md` leads from the paper's equations to the thorough tests.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import csst
from tests.helpers import toys

PRIOR = [0.7, 0.2, 0.1]


def test_1_a_confusion_is_rates_and_a_prior():
    """How often class i is called j, R_ij, and how frequent each class is, π_i: C_ij = π_i R_ij."""
    counts = torch.tensor([[63, 7, 0], [4, 16, 0], [1, 4, 5]])  # row: the truth, column: the decision
    c = csst.Confusion.from_counts(counts)
    assert c.recall.tolist() == pytest.approx([63 / 70, 16 / 20, 5 / 10])
    torch.testing.assert_close(c.matrix, c.prior[:, None] * c.rates)
    assert float(c.accuracy) == pytest.approx((63 + 16 + 5) / 100)
    assert c.with_prior([1 / 3] * 3).recall.tolist() == c.recall.tolist()  # recall does not depend on the prior


def test_2_an_objective_is_a_sentence():
    """What is wanted, in words; its value and, for each constraint, its slack on a confusion."""
    wanted = csst.objective("max mean(recall) s.t. coverage >= 0.1")
    c = csst.Confusion.from_counts([[63, 7, 0], [4, 16, 0], [1, 4, 5]])
    assert float(wanted.value(c)) == pytest.approx((0.9 + 0.8 + 0.5) / 3)
    slack = wanted.bind(3).slack(c)  # coverage: how often a class is decided for
    assert slack.tolist() == pytest.approx([0.68 - 0.1, 0.27 - 0.1, 0.05 - 0.1])
    with pytest.raises(csst.InputError, match="did you mean"):
        csst.objective("max mean(recal)")


def test_3_the_gain_is_the_gradient():
    """G_ij says what one more example of class i called j is worth: the gradient of the objective in C."""
    c = csst.Confusion.from_counts([[63, 7, 0], [4, 16, 0], [1, 4, 5]])
    accuracy = csst.gain_matrix(csst.objective("max accuracy"), torch.zeros(0), c, PRIOR)
    torch.testing.assert_close(accuracy.matrix, torch.eye(3, dtype=torch.float64))  # every right one counts alike
    recall = csst.gain_matrix(csst.objective("max mean(recall)").bind(3), torch.zeros(0), c, PRIOR)
    expected = torch.tensor([1 / (3 * share) for share in PRIOR], dtype=torch.float64)  # rare ones count more
    torch.testing.assert_close(recall.diagonal, expected)


def test_4_the_cost_sensitive_loss_learns_for_a_gain():
    """Its minimum is at softmax(s) = norm(Gᵀp): with G = I that is p, the cross-entropy's."""
    p = torch.tensor([[0.6, 0.3, 0.1]])
    for gain in (csst.Gain(torch.eye(3)), csst.Gain(torch.diag(torch.tensor([0.5, 1.0, 4.0])))):
        best = gain.optimal_prediction(p).log().float().requires_grad_()
        csst.cost_sensitive_loss(best, p, gain).sum().backward()
        assert best.grad.abs().max() < 1e-6
    assert csst.Gain(torch.eye(3)).optimal_prediction(p).argmax() == 0
    assert gain.optimal_prediction(p).argmax() == 2  # where class 2 is worth so much, it is decided for


def test_5_a_dual_step_turns_to_the_class_that_is_worst_off():
    """max min(recall) is a game: λ moves to the lowest recall, and G = diag(λ_i / π_i) with it."""
    game = csst.Multipliers(csst.objective("max min(recall)"), PRIOR, step_size=0.5)
    before, recall = game.value.clone(), torch.tensor([0.9, 0.8, 0.5])
    game.update(csst.Confusion.from_counts([[63, 7, 0], [4, 16, 0], [1, 4, 5]]))
    expected = before * torch.exp(-0.5 * recall)
    torch.testing.assert_close(game.value, expected / expected.sum())
    assert game.value.argmax() == 2
    torch.testing.assert_close(game.gain.diagonal, game.value / game.train_prior)


def test_6_a_pseudo_label_is_used_where_the_model_is_near_its_optimum():
    """CSST trusts x if KL(norm(Gᵀp) ‖ p_m(x)) ≤ τ; for a diagonal G, if the label's probability is at least e^−τ."""
    probs = torch.tensor([[0.97, 0.02, 0.01], [0.60, 0.30, 0.10]])
    labels = probs.argmax(1)
    gain = csst.Gain(torch.diag(torch.tensor([1.0, 2.0, 3.0])))
    assert (csst.kl_to_optimal(labels, probs, gain) <= 0.05).tolist() == [True, False]
    torch.testing.assert_close(csst.kl_to_optimal(labels, probs, gain), -probs.amax(1).log())
    shared = csst.Gain(torch.eye(3) + 0.2)  # calling class 0 class 1 is worth something, too:
    assert csst.kl_to_optimal(labels, probs, shared)[1] < csst.kl_to_optimal(labels, probs, gain)[1]


def test_7_training_plays_the_game(tmp_path):
    """Three Gaussians, the rarest in the middle: plain training gives it up, 200 steps of CSST find it."""
    toy = csst.recipe("toy")
    short = replace(toy, training=replace(toy.training, steps=200), objective="max min(recall)")
    found = {
        name: csst.execute(replace(short, method=name), tmp_path / name)["test"]["min_recall"]
        for name in ("erm", "csst")
    }
    assert found["erm"] < 0.1
    assert found["csst"] > 0.6


def test_8_unlabeled_rows_help_to_know_the_class_rates():
    """Few labels say little about recall; calibrated scores of many rows without labels say the rest."""
    known, labels = toys.sample(60, seed=1)
    more, _ = toys.sample(2000, seed=2)
    fitted = csst.fit_rule(toys.probs(known), labels, "max min(recall)", toys.probs(more), train_prior=toys.PRIOR)
    estimate, truth = fitted.unadjusted, toys.rates_of(toys.plain)
    counted, pooled = estimate.labeled_rates, estimate.confusion.rates.numpy()
    assert np.abs(pooled - truth).max() < np.abs(counted - truth).max()


def test_9_a_decision_rule_serves_the_objective_without_training():
    """One number per class is added to the scores: the lowest recall comes near the best that is possible."""
    known, labels = toys.sample(400, seed=1)
    rule = csst.fit_rule(toys.probs(known), labels, "max min(recall)", train_prior=toys.PRIOR).rule
    plain, adjusted, best = toys.lowest_recall(toys.plain), toys.lowest_recall(rule.predict), toys.best_lowest_recall()
    assert plain < adjusted <= best + 0.01
    assert best - adjusted < 0.05


def test_10_the_estimator_is_all_of_it_in_three_lines():
    """Rows with the label -1 are unlabeled; `score` is the objective itself."""
    X, y = toys.sample(600)
    labels = np.where(np.arange(len(y)) % 4 == 0, y, -1)
    model = csst.CSSTClassifier("max min(recall)", learner="linear").fit(X[:, None], labels)
    assert model.score(X[:, None], y) > toys.lowest_recall(toys.plain)
    assert "lowest class recall" in model.summary()
