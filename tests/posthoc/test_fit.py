"""The fitted rule is the best there is, where that can be found by trying everything."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import csst
from csst.confusion import Confusion
from csst.errors import InputError
from csst.posthoc import DecisionRule, cross_fit, fit
from csst.posthoc.problem import Problem
from csst.posthoc.sweep import Search, candidate
from tests.posthoc.examples import REFERENCES, best, noisy, recalls


def standing_of(found, text, probs, labels):
    predictions = found.rule.predict(probs).tolist()
    return REFERENCES[text](labels.tolist(), predictions, probs.shape[1])


@pytest.mark.parametrize("text", REFERENCES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_classes_against_every_threshold(text, seed):
    probs, labels = noisy(seed, 24, 2)
    values = sorted(set(probs[:, 1]))
    cuts = [-1.0, *((a + b) / 2 for a, b in itertools.pairwise(values)), 2.0]
    every = [[int(p > cut) for p in probs[:, 1]] for cut in cuts]
    reversed_too = [*every, *([1 - p for p in one] for one in every)]
    reached = standing_of(fit(probs, labels, text), text, probs, labels)
    known = [best(REFERENCES[text](labels.tolist(), one, 2) for one in options) for options in (every, reversed_too)]
    # A matrix that is not diagonal may also predict class 1 for low probabilities of it.
    assert best([reached, known[0]]) == pytest.approx(reached, abs=1e-9)
    assert best([reached, known[1]]) == pytest.approx(known[1], abs=1e-9)


@pytest.mark.parametrize(
    "text", ["max min(recall)", "max gmean(recall)", "max mean(f1)", "max accuracy s.t. recall >= 0.5"]
)
@pytest.mark.parametrize("seed", [3, 4])
def test_three_classes_against_a_fine_grid_of_weights(text, seed):
    probs, labels = noisy(seed, 21, 3)
    grid = np.exp(np.linspace(-4, 6, 120) + 0.0131)
    seen = set()
    for first in grid:
        weights = np.stack([np.ones(120), np.full(120, first), grid], 1)
        seen |= set(map(tuple, (probs[None] * weights[:, None]).argmax(2).tolist()))
    known = best(REFERENCES[text](labels.tolist(), one, 3) for one in seen)
    found = fit(probs, labels, text)
    reached = standing_of(found, text, probs, labels)
    assert best([reached, known]) == pytest.approx(reached, abs=1e-9)
    assert found.deterministic_value == pytest.approx(reached[1])
    assert found.deterministic.violation == pytest.approx(reached[0], abs=1e-9)


def test_only_a_lottery_helps_where_all_examples_look_alike():
    probs, labels = np.tile([[0.6, 0.4]], (10, 1)), np.array([0] * 6 + [1] * 4)
    found = fit(probs, labels, "max min(recall)")
    assert found.deterministic_value == 0
    assert found.randomised_value == pytest.approx(0.5)
    assert found.randomising_helps
    assert "0.500 of a randomised one, a lottery between 2 rules" in found.sentence
    assert float(found.randomised.confusion(probs, labels).recall.min()) == pytest.approx(0.5)


def test_the_lottery_reaches_the_exact_minimax_value():
    # Three kinds of examples whose labels follow the probabilities exactly, so the best classifier of all is known:
    # the best mixture of the 27 functions from kinds to classes.
    table = np.array([[12, 6, 2], [5, 9, 6], [3, 7, 10]])
    kinds = np.repeat(np.arange(3), 20)
    labels = np.concatenate([np.repeat(np.arange(3), row) for row in table])
    probs = (table / 20)[kinds]
    rows = []
    for function in itertools.product(range(3), repeat=3):
        rows.append(recalls(labels.tolist(), [function[kind] for kind in kinds], 3))
    rows = np.array(rows)
    solved = linprog([*[0] * 27, -1], np.c_[-rows.T, np.ones(3)], np.zeros(3), [[*[1] * 27, 0]], [1])
    found = fit(probs, labels, "max min(recall)")
    assert rows.min(1).max() + 0.02 < -solved.fun
    assert found.deterministic_value <= rows.min(1).max() + 1e-12
    assert found.randomised_value == pytest.approx(-solved.fun, abs=1e-9)


def test_a_lottery_may_meet_a_constraint_that_no_single_rule_meets():
    probs, labels = np.tile([[0.6, 0.4]], (10, 1)), np.array([0] * 6 + [1] * 4)
    found = fit(probs, labels, "max accuracy s.t. coverage >= 0.3")
    assert found.deterministic.violation == pytest.approx(0.3)
    assert found.lottery.violation == 0
    assert found.randomised_value == pytest.approx(0.7 * 0.6 + 0.3 * 0.4, abs=1e-6)
    assert found.randomising_helps


def test_a_lottery_that_cannot_meet_a_constraint_comes_as_near_as_possible():
    probs, labels = np.tile([[0.6, 0.4]], (10, 1)), np.array([0] * 6 + [1] * 4)
    found = fit(probs, labels, "max accuracy s.t. coverage >= 0.6")
    assert found.deterministic.violation == pytest.approx(0.6)
    assert found.lottery.violation == pytest.approx(0.1)


def test_a_lottery_is_never_worse_than_drawing_a_class():
    for seed in range(3):
        probs = np.random.default_rng(seed).dirichlet(np.ones(3), 36)
        assert fit(probs, np.arange(36) % 3, "max min(recall)").randomised_value >= 1 / 3 - 1e-9


def test_the_best_response_divides_by_the_prior_behind_the_probabilities():
    probs, labels = noisy(5, 90, 3)
    problem = Problem.of(probs, labels, "max min(recall) s.t. coverage[1] >= 0.2", None, 0)
    multipliers = torch.tensor([0.2, 0.5, 0.3, 0.7], dtype=torch.float64)
    found = problem.derivative(multipliers, Confusion.uniform(problem.prior))
    for i in range(3):
        for j in range(3):
            worth = (float(multipliers[i]) if i == j else 0) + (0.7 * float(problem.prior[i]) if j == 1 else 0)
            assert float(found[i, j]) == pytest.approx(worth / float(problem.behind[i]))


def test_constraints_of_many_classes_are_met():
    probs, labels = noisy(6, 600, 6, signal=2.5)
    found = fit(probs, labels, "max mean(recall) s.t. coverage >= 0.9/K, precision[5] >= 0.9")
    assert found.unadjusted.violation > 0.1
    assert found.deterministic.violation == 0
    c = Confusion.from_predictions(labels, found.rule.predict(probs), 6)
    assert float(c.coverage.min()) >= 0.15 - 1e-6
    assert float(c.precision[5]) >= 0.9 - 1e-6
    assert found.deterministic_value > 0.6


def test_the_training_prior_does_not_move_the_rule_but_names_head_and_tail():
    probs, labels = noisy(6, 300, 4)
    skew = [0.1, 0.2, 0.3, 0.4]
    plain, told = (fit(probs, labels, "max min(recall)", prior) for prior in (None, skew))
    assert torch.equal(plain.rule.matrix, told.rule.matrix)
    text = "max recall[tail]"
    assert float(fit(probs, labels, text, skew).confusion.recall[0]) == 1
    assert float(fit(probs, labels, text, skew[::-1]).confusion.recall[3]) == 1


def test_probabilities_for_other_weights_give_the_same_decisions():
    probs, labels = noisy(7, 200, 3)
    tilted = probs * [0.05, 1, 20]
    tilted /= tilted.sum(1, keepdims=True)
    for text in ("max min(recall)", "max mean(f1)"):
        values = [fit(p, labels, text).deterministic_value for p in (probs, tilted)]
        assert values[0] == pytest.approx(values[1], abs=0.01)


def test_the_prior_behind_the_probabilities_is_found():
    rng = np.random.default_rng(0)
    prior = np.array([0.7, 0.2, 0.1])
    labels = np.repeat(np.arange(3), 4000)
    x = 1.5 * np.eye(3)[labels] + rng.normal(size=(12_000, 3))
    density = np.exp(1.5 * x)  # up to a common factor, the density of x in each class
    probs = density * prior
    problem = Problem.of(probs / probs.sum(1, keepdims=True), labels, "max accuracy", None, 0)
    assert problem.behind.tolist() == pytest.approx(prior, abs=0.01)


@pytest.mark.parametrize(
    "text", [*REFERENCES, "max qmean(recall) s.t. jaccard[0] - f1[1] <= 0.5", "max hmean(precision)"]
)
def test_recall_and_coverage_say_all_that_a_sentence_reads(text):
    probs, labels = noisy(8, 60, 4)
    problem = Problem.of(probs, labels, text, None, 0)
    matrices = torch.rand(7, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts = torch.stack([problem.counts(m) for m in matrices])
    keys = problem.measure(counts).keys
    for one, key in zip(counts, keys, strict=True):
        c = Confusion.from_counts(one)
        assert float(key[1]) == pytest.approx(float(problem.objective.value(c)), abs=1e-9)
        slack = problem.objective.slack(c).tolist()
        assert float(key[0]) == pytest.approx(min([0.0, *slack]), abs=1e-9)


class Unbatchable(csst.Objective):
    """Decides by a value, which cannot be batched, and reads what only the whole confusion knows."""

    def utility(self, c):
        bonus = 0.1 if float(c.rates[0, 0].detach()) > 0.5 else 0.0
        return c.recall.mean() - c.rates[2, 0] + bonus


def test_an_objective_of_the_users_own():
    probs, labels = noisy(9, 40, 3)
    found = fit(probs, labels, Unbatchable(), sweeps=30)
    assert found.deterministic_value > found.unadjusted.value
    c = Confusion.from_predictions(labels, found.rule.predict(probs), 3)
    assert float(Unbatchable().utility(c)) == pytest.approx(found.deterministic_value)


def test_a_gain_matrix_of_the_users_own():
    # Labels that follow the probabilities exactly: the best rule is the argmax of G^T p itself.
    table = np.array([[12, 6, 2], [5, 9, 6], [3, 7, 10]])
    kinds = np.repeat(np.arange(3), 20)
    labels = np.concatenate([np.repeat(np.arange(3), row) for row in table])
    matrix = np.array([[1.0, 0.9, 0.0], [0.0, 1.0, 0.8], [0.5, 0.0, 1.2]])
    known = sum(max((row @ matrix).tolist()) for row in table) / 60
    found = fit((table / 20)[kinds], labels, csst.ConstantGain(matrix))
    assert found.deterministic_value == pytest.approx(known)
    with pytest.raises(InputError, match="gain matrix has 2 classes and probs 3"):
        fit((table / 20)[kinds], labels, csst.ConstantGain(matrix[:2, :2]))


def test_a_sweep_from_coarse_to_fine_finds_the_best_threshold():
    # More thresholds than are measured at once; the worst recall of two classes rises and then falls.
    probs, labels = noisy(10, 3000, 2)
    problem = Problem.of(probs, labels, "max min(recall)", None, 0)
    start = candidate(problem, torch.eye(2, dtype=torch.float64))
    found = Search(problem, torch.Generator().manual_seed(0), 10).refined(start)
    order = np.argsort(probs[:, 1])
    missed = np.cumsum(labels[order] == 1) / (labels == 1).sum()
    right = np.cumsum(labels[order] == 0) / (labels == 0).sum()
    assert found.key[1] == pytest.approx(np.minimum(1 - missed, right).max(), abs=1e-9)


def test_many_classes():
    probs, labels = noisy(11, 1500, 100, signal=60.0)
    logits = np.log(probs + 1e-300) / 15
    probs = np.exp(logits - logits.max(1, keepdims=True))
    found = fit(probs / probs.sum(1, keepdims=True), labels, "max mean(recall) s.t. coverage >= 0.3/K", sweeps=300)
    assert found.rule.classes == 100
    assert (-found.deterministic.violation, found.deterministic_value) > (
        -found.unadjusted.violation,
        found.unadjusted.value,
    )


def test_the_same_seed_gives_the_same_rule_and_the_numbers_are_those_of_the_rule():
    probs, labels = noisy(12, 150, 4)
    first, second = (fit(probs, labels, "max min(recall)", seed=3) for _ in range(2))
    assert torch.equal(first.rule.matrix, second.rule.matrix)
    counts = first.rule.counts(probs, labels)
    assert torch.allclose(first.confusion.rates, Confusion.from_counts(counts).rates)
    mixed = first.randomised.confusion(probs, labels)
    assert first.randomised_value == pytest.approx(float(mixed.recall.min()), abs=1e-9)
    assert first.randomised_value >= first.deterministic_value - 1e-9
    plain = DecisionRule.identity(4).confusion(probs, labels)
    assert first.unadjusted.value == pytest.approx(float(plain.recall.min()))
    assert f"{first.deterministic_value:.3f} with the rule, {first.unadjusted.value:.3f} without" in first.sentence


PROBS, LABELS = noisy(0, 20, 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((PROBS * 2, LABELS, "max accuracy"), "row 0 sums to 2"),
        ((np.where(PROBS > 0.8, np.nan, PROBS), LABELS, "max accuracy"), "NaN or infinite values in rows"),
        ((np.log(PROBS), LABELS, "max accuracy"), "give probabilities, not logits"),
        ((PROBS[:, :1], LABELS * 0, "max accuracy"), "at least 2 classes; found 1"),
        ((PROBS[0], LABELS, "max accuracy"), r"shape \(N, K\).*found \(3,\)"),
        ((PROBS, LABELS[:-1], "max accuracy"), "one label per row of probs; found 19 for 20"),
        ((PROBS, LABELS % 2, "max accuracy"), r"every class; classes \[2\] have none in the validation examples"),
        ((PROBS, LABELS * 0, "max accuracy"), r"classes \[1, 2\] have none"),
        ((PROBS, LABELS + 1, "max accuracy"), r"must lie in 0 \.\. 2"),
        ((PROBS, LABELS / 2, "max accuracy"), "labels must be a vector of integers"),
        ((PROBS, ["a"] * 20, "max accuracy"), "labels must be integers"),
        ((PROBS, LABELS, "max accuracy", [0.5, 0.5]), "training prior has 2 classes and probs 3"),
        ((PROBS, LABELS, "max recall[7]"), "there is no class 7"),
        ((PROBS[:0], LABELS[:0], "max accuracy"), "have none"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, words):
    with pytest.raises(InputError, match=words):
        fit(*arguments)


def test_bad_options_get_a_sentence():
    with pytest.raises(InputError, match=r"sweeps is a whole number >= 1.*found 0"):
        fit(PROBS, LABELS, "max accuracy", sweeps=0)
    with pytest.raises(InputError, match=r"sweeps.*found 2.5"):
        cross_fit(PROBS, LABELS, "max accuracy", sweeps=2.5)
    with pytest.raises(InputError, match=r"tolerance.*found -1"):
        fit(PROBS, LABELS, "max accuracy", tolerance=-1)

    class Constant(csst.Objective):
        def utility(self, c):
            return torch.tensor(1.0, dtype=torch.float64)

    with pytest.raises(InputError, match="does not depend on the predictions"):
        fit(PROBS, LABELS, Constant())
