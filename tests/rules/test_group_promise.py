"""Bounds of groups of rows that are promised: validity in simulations, and the tests of classes in every group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import csst
from csst.errors import InputError
from csst.rules import group_promise
from csst.rules.betting import place_bets
from csst.rules.cells import RowGroups, make_cells
from csst.rules.certificates import binomial_tail
from csst.rules.certification import certify_labels, read_certified
from csst.rules.claims import read_claims
from csst.rules.fresh_labels import FreshLabels
from csst.rules.path import make_path
from csst.rules.promise import Proof, promise, state_confidence
from csst.rules.rule import GroupedRule

NAMES = ("a", "b")
REACH = np.array([2.2, 1.6])
HOPE = np.array([2.2, 2.0])
CLASSES = ("0", "1")


def draw(rows, seed, reach=REACH):
    """Probabilities, classes and groups; classes of the second group are nearer to each other."""
    rng = np.random.default_rng(seed)
    g = rng.integers(0, 2, rows)
    y = rng.choice(2, rows, p=[0.7, 0.3])
    p = 1 / (1 + np.exp(2.6 - 2 * (rng.normal(size=rows) + reach[g] * y)))
    return np.stack([1 - p, p], 1), y, g


def fit(sentence, per_group=False, confidence=0.8):
    """The rule by the labels of the fit, for a sentence with a confidence that is not proved yet.

    The second group is easier there than where the rule is used, so that most rules of the path miss its bound.
    """
    probs, y, g = draw(800, 0, HOPE)
    groups = RowGroups("g", NAMES, g, np.zeros(0, dtype=np.int64))
    fitted = csst.fit_rule(probs, y, sentence, groups=groups, per_group=per_group)
    return state_confidence(fitted, replace(fitted.groups.sentence, confidence=confidence))


def decide(rule, probs, g):
    answers = rule.predict(probs, np.array(NAMES)[g]) if isinstance(rule, GroupedRule) else rule.predict(probs)
    return answers.numpy()


def make_once(make):
    """The function, called the first time only: neither the path nor the cells depend on the fresh labels."""
    results = []

    def remember(*arguments):
        if not results:
            results.append(make(*arguments))
        return results[0]

    return remember


def count_certified(monkeypatch, sentence, is_true, per_group, draws, rows):
    """How many draws of fresh labels certify, and how many of them a rule of which a bound is untrue."""
    stated = fit(sentence, per_group)
    monkeypatch.setattr(group_promise, "make_path", make_once(make_path))
    monkeypatch.setattr(group_promise, "make_cells", make_once(make_cells))
    monkeypatch.setattr(Proof, "price", lambda *arguments: "")
    probs, y, g = draw(200_000, 1)
    truths = {}
    verdicts = []
    for seed in range(draws):
        fresh_probs, fresh_y, fresh_g = draw(rows, 100 + seed)
        result = promise(stated, FreshLabels(fresh_probs, fresh_y, groups=fresh_g), None, CLASSES)
        if result.certificate.is_certified:
            key = str(result.rule.as_dict())
            if key not in truths:
                truths[key] = is_true(y, decide(result.rule, probs, g), g)
            verdicts.append(truths[key])
    return len(verdicts), len(verdicts) - sum(verdicts)


def has_recalls(y, answers, g, level=0.72):
    return all((answers[(y == k) & (g == a)] == k).mean() >= level for a in range(2) for k in range(2))


def has_precision(y, answers, g, level=0.66):
    return all((y[(answers == 1) & (g == a)] == 1).mean() >= level for a in range(2))


RECALLS = "max recall[0] s.t. recall by g >= 0.72"
PRECISION = "max recall[1] s.t. precision[1] by g >= 0.66"


@pytest.mark.parametrize("per_group", [False, True])
def test_a_wrong_promise_is_as_rare_as_stated(monkeypatch, per_group):
    """The sentence pulls to the bound of the nearer group, where most draws must not be certified."""
    certified, wrong = count_certified(monkeypatch, RECALLS, has_recalls, per_group, 40, 400)
    assert certified > 5
    assert wrong <= 0.2 * 40 + 3 * (0.2 * 0.8 * 40) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("rows", [200, 1000])
@pytest.mark.parametrize("per_group", [False, True])
@pytest.mark.parametrize(("sentence", "is_true"), [(RECALLS, has_recalls), (PRECISION, has_precision)])
def test_wrong_promises_are_as_rare_as_stated(monkeypatch, sentence, is_true, per_group, rows):
    _, wrong = count_certified(monkeypatch, sentence, is_true, per_group, 300, rows)
    assert wrong <= 0.2 * 300 + 3 * (0.2 * 0.8 * 300) ** 0.5


def test_each_bound_is_tested_on_the_labels_of_its_group():
    stated = fit("max accuracy s.t. recall by g >= 0.6")
    probs, y, g = draw(600, 5)
    result = promise(stated, FreshLabels(probs, y, groups=g), None, CLASSES)
    assert result.certificate.is_certified
    answers = decide(result.rule, probs, g)
    expected = []
    for a in range(2):
        for k in range(2):
            rows = (y == k) & (g == a)
            expected.append(float(binomial_tail((answers[rows] == k).sum(), rows.sum(), 0.6)))
    assert [bound.p_value for bound in result.certificate.bounds] == pytest.approx(expected)
    assert result.certificate.bounds[3].bound == "recall[1] by g['b'] >= 0.6"
    assert "of its class and group" in result.certificate.sentence
    assert result.estimate.confusion.classes == 2
    assert result.groups.estimate.confusion.classes == 4


def test_too_few_labels_name_their_price_and_the_group():
    probs, y, g = draw(60, 3)
    groups = RowGroups("g", NAMES, g, np.zeros(0, dtype=np.int64))
    sentence = "max accuracy s.t. recall by g >= 0.7 with confidence 0.95"
    result = csst.fit_rule(probs, y, sentence, groups=groups, per_group=True)
    assert not result.certificate.is_certified
    assert "by g['" in result.certificate.price
    assert result.certificate.price in result.notes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("recall by g - min(recall by g) <= 0.1", "compares groups"),
        ("recall[0] by g >= recall[0] - 0.1", "cannot be certified"),
    ],
)
def test_what_labels_of_groups_cannot_prove(text, reason):
    sentence = csst.objective(f"max accuracy s.t. {text}").bind(2).bind_row_groups(NAMES)
    with pytest.raises(InputError, match=reason):
        read_claims(sentence)


def test_a_stated_balance_is_refused_for_groups():
    probs, y, g = draw(300, 3)
    groups = RowGroups("g", NAMES, g, np.zeros(0, dtype=np.int64))
    sentence = "max accuracy s.t. coverage[1] by g <= 0.5 with confidence 0.9"
    with pytest.raises(InputError, match="leave the deployment prior out"):
        csst.fit_rule(probs, y, sentence, groups=groups, deployment_prior=[0.5, 0.5])


def test_fresh_labels_are_bet_on_in_their_group_and_counted_over_all():
    y = np.zeros(400, dtype=np.int64)
    y[::2] = 1
    g = np.repeat([0, 1], 200)
    answers = y.copy()
    goal = read_certified("recall by g >= 0.5", 0.95, csst.objective("max accuracy"), CLASSES, NAMES)
    result = certify_labels(goal, y, answers, None, CLASSES, groups=g)
    assert result.verdict == "certified"
    assert 200 < result.labels < 240  # the second group's labels come last
    assert len(result.wealth) == 4
    answers[g == 1] = 1 - y[g == 1]
    result = certify_labels(goal, y, answers, None, CLASSES, groups=g)
    assert result.verdict == "refuted"
    assert "by g['b']" in result.sentence


def test_fresh_labels_seldom_certify_what_is_untrue_in_a_group():
    goal = read_certified("recall by g >= 0.75", 0.8, csst.objective("max accuracy"), CLASSES, NAMES)
    rng = np.random.default_rng(0)
    count = 0
    for _ in range(100):
        g = rng.integers(0, 2, 300)
        y = rng.integers(0, 2, 300)
        is_right = rng.random(300) < np.where(g == 0, 0.95, 0.74)
        answers = np.where(is_right, y, 1 - y)
        parts = [(bound, g == bound.group) for bound in read_claims(goal)]
        bets = [place_bets(bound, y[rows], answers[rows], None, 2) for bound, rows in parts]
        count += all(bet.first_crossing(1 / 0.2) is not None for bet in bets)
    assert count <= 20 + 3 * (0.2 * 0.8 * 100) ** 0.5
