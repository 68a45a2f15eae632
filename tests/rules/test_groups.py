"""Rules for groups of rows against brute force on Gaussians, estimates, unknown groups, bad input, many cells."""

from __future__ import annotations

import itertools
import time
from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from csst import PostHocClassifier
from csst.errors import InputError
from csst.rules import GroupedRule, fit_rule, rule_from_dict
from csst.rules.cells import RowGroups

PRIOR = {2: np.array([0.75, 0.25]), 3: np.array([0.6, 0.3, 0.1])}
NAMES = np.array(["a", "b"])
MIN = "max min(recall by g)"
BOUND = "max accuracy s.t. recall by g >= 0.55"
GAP = "max mean(recall) s.t. recall by g - min(recall by g) <= 0.08"


@cache
def draw(classes, rows, seed=0, apart=1.0):
    """Probabilities that do not know the group, classes and groups; classes of the second group are nearer."""
    rng = np.random.default_rng(seed)
    y = rng.choice(classes, rows, p=PRIOR[classes])
    g = (rng.random(rows) < 0.35).astype(int)
    centers = 1.8 * np.eye(classes)
    shifts = 0.5 * np.linspace(1, -1, classes)
    x = centers[y] * (1 - 0.4 * apart * g[:, None]) + apart * g[:, None] * shifts + rng.normal(size=(rows, classes))
    density = np.zeros((rows, classes))
    for group, share in enumerate((0.65, 0.35)):
        for k in range(classes):
            center = centers[k] * (1 - 0.4 * apart * group) + apart * group * shifts
            density[:, k] += share * PRIOR[classes][k] * np.exp(-((x - center) ** 2).sum(1) / 2)
    return density / density.sum(1, keepdims=True), y, g


def count_recalls(answers, y, g, classes):
    return np.array([[(answers[(y == k) & (g == a)] == k).mean() for k in range(classes)] for a in range(2)])


def measure(text, recalls, shares):
    """The goal, and by how much the worst bound is missed, written once more without the language."""
    accuracy = (recalls * shares).sum()
    mean = ((recalls * shares).sum(0) / shares.sum(0)).mean()
    gap = np.abs(recalls[0] - recalls[1]).max()
    return {
        MIN: (recalls.min(), 0.0),
        BOUND: (accuracy, max(0.0, 0.55 - recalls.min())),
        GAP: (mean, max(0.0, gap - 0.08)),
    }[text]


def search_grid(text, probs, y, g, classes, per_group):
    """The best value of all biases on a grid, one for all groups or one for each."""
    logs = np.log(probs)
    grid = np.linspace(-1, 5, 49 if classes == 2 else 15)
    shares = np.array([[((y == k) & (g == a)).mean() for k in range(classes)] for a in range(2)])
    biases = [np.array([0.0, *b]) for b in itertools.product(grid, repeat=classes - 1)]
    tables = [count_recalls((logs + bias).argmax(1), y, g, classes) for bias in biases]
    pairs = itertools.product(tables, repeat=2) if per_group else ((table, table) for table in tables)
    results = [measure(text, np.stack([first[0], second[1]]), shares) for first, second in pairs]
    return max(value for value, miss in results if miss == 0)


@pytest.mark.parametrize("per_group", [False, True])
@pytest.mark.parametrize(("classes", "text"), [(2, MIN), (2, BOUND), (2, GAP), (3, MIN), (3, BOUND)])
def test_a_rule_is_near_brute_force(classes, text, per_group):
    probs, y, g = draw(classes, 2000)
    nothing = np.zeros(0, dtype=int)
    fitted = fit_rule(probs, y, text, groups=RowGroups("g", ("a", "b"), g, nothing), per_group=per_group, margin=0)
    answers = (fitted.rule.predict(probs, NAMES[g]) if per_group else fitted.rule.predict(probs)).numpy()
    shares = np.array([[((y == k) & (g == a)).mean() for k in range(classes)] for a in range(2)])
    value, miss = measure(text, count_recalls(answers, y, g, classes), shares)
    assert miss <= 0.01
    assert value >= search_grid(text, probs, y, g, classes, per_group and classes == 2) - 0.025


def test_estimates_of_cells_are_near_new_rows():
    probs, y, g = draw(3, 5000)
    new_probs, new_y, new_g = draw(3, 20_000, seed=1)
    groups = RowGroups("g", ("a", "b"), g[:1500], g[1500:])
    fitted = fit_rule(probs[:1500], y[:1500], MIN, probs[1500:], groups=groups)
    truth = count_recalls(fitted.rule.predict(new_probs).numpy(), new_y, new_g, 3)
    values = fitted.groups.as_dict()
    estimates = np.array(values["recall"])
    assert np.abs(estimates[:, :, 0] - truth).max() < 0.08
    assert (estimates[:, :, 1] <= truth).all()
    assert (truth <= estimates[:, :, 2]).all()
    assert fitted.value == pytest.approx(truth.min(), abs=0.06)
    assert np.array(values["labels"]).sum() == 1500
    # The rule for the sentence without groups leaves the second group behind.
    rule = fit_rule(probs[:1500], y[:1500], "max min(recall)", probs[1500:]).rule
    plain = count_recalls(rule.predict(new_probs).numpy(), new_y, new_g, 3)
    assert truth.min() > plain.min() + 0.03


def test_unlabeled_rows_without_a_group_count_for_each():
    probs, y, g = draw(2, 5000)
    unknown = RowGroups("g", ("a", "b"), g[:1000], np.full(4000, -1))
    fitted = fit_rule(probs[:1000], y[:1000], MIN, probs[1000:], groups=unknown)
    answers = fitted.rule.predict(probs).numpy()
    assert count_recalls(answers, y, g, 2).min() > count_recalls(probs.argmax(1), y, g, 2).min() + 0.05


def test_alike_groups_get_the_rule_of_no_groups():
    probs, y, g = draw(2, 6000, apart=0.0)
    groups = RowGroups("g", ("a", "b"), g[:3000], g[3000:])
    fitted = fit_rule(probs[:3000], y[:3000], MIN, probs[3000:], groups=groups)
    plain = fit_rule(probs[:3000], y[:3000], "max min(recall)", probs[3000:])
    assert (fitted.rule.predict(probs) == plain.rule.predict(probs)).double().mean() > 0.97


def test_a_rule_of_groups_is_stored_and_read():
    probs, y, g = draw(2, 3000)
    groups = RowGroups("g", ("a", "b"), g[:1000], g[1000:])
    rule = fit_rule(probs[:1000], y[:1000], MIN, probs[1000:], groups=groups, per_group=True).rule
    again = rule_from_dict(rule.as_dict())
    assert isinstance(again, GroupedRule)
    assert (again.predict(probs, NAMES[g]) == rule.predict(probs, NAMES[g])).all()
    with pytest.raises(InputError, match="one rule for each g, so that every row needs its group"):
        rule.predict(probs)
    with pytest.raises(InputError, match="not in the fit: \\['c'\\]"):
        rule.predict(probs[:2], ["a", "c"])


@pytest.mark.slow
def test_two_hundred_cells_take_seconds():
    rng = np.random.default_rng(0)
    y = np.arange(4000) % 20
    g = np.arange(4000) // 20 % 10
    logits = rng.normal(size=(4000, 20)) + 3 * np.eye(20)[y] * (1 - 0.05 * g[:, None])
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    groups = RowGroups("g", tuple("abcdefghij"), g[:3000], g[3000:])
    start = time.process_time()
    fitted = fit_rule(probs[:3000], y[:3000], MIN, probs[3000:], groups=groups)
    assert time.process_time() - start < 5
    assert len(fitted.groups.intervals["recall"]) == 200


@pytest.mark.parametrize(
    ("text", "groups", "reason"),
    [
        ("max min(recall by g)", None, "pass group"),
        ("max min(recall)", ("g", "ab"), "names none"),
        ("max min(recall by h)", ("g", "ab"), "the groups are of column 'g'"),
        ("max min(recall by g)", ("g", "a"), "at least 2 values"),
        ("max min(recall by g)", ("g", "abc"), "'c' has no labeled row"),
        ("max accuracy s.t. recall[0] by g >= 0.9, coverage[0] by g <= 0.1", ("g", "ab"), "in g 'a', no classifier"),
    ],
)
def test_bad_groups_get_a_sentence(text, groups, reason):
    probs, y, g = draw(2, 3000)
    with pytest.raises(InputError, match=reason):
        fit_rule(probs, y, text, groups=groups and RowGroups(groups[0], tuple(groups[1]), g, g[:0]))


def test_few_labels_in_a_group_are_named():
    probs, y, g = draw(2, 3000)
    parts = [(g == 0, 200), ((g == 1) & (y == 0), 30), ((g == 1) & (y == 1), 2)]
    rows = np.concatenate([np.flatnonzero(mask)[:count] for mask, count in parts])
    fitted = fit_rule(probs[rows], y[rows], MIN, groups=RowGroups("g", ("a", "b"), g[rows], g[:0]))
    assert any("'1' in 'b' (2)" in note for note in fitted.notes)


def test_any_classifier_takes_groups():
    rng = np.random.default_rng(0)
    g = rng.integers(0, 2, 900)
    y = rng.integers(0, 2, 900)
    x = rng.normal(size=(900, 2)) + y[:, None] * (1.5 - g[:, None])
    target = np.where(np.arange(900) < 600, y, -1)
    group = np.array(["f", "m"])[g].astype(object)
    group[700:] = None
    fitted = PostHocClassifier(LogisticRegression(), "max min(recall by sex)", per_group=True, random_state=0)
    fitted.fit(x, target, group=group)
    answers = fitted.predict(x[:600], group[:600])
    worst = min((answers[(y[:600] == k) & (g[:600] == a)] == k).mean() for k in range(2) for a in range(2))
    assert fitted.score(x[:600], y[:600], group=group[:600]) == pytest.approx(worst)
    assert "recall by sex, one rule for each group" in fitted.summary()
    for wrong in ({}, {"group": group[:5]}):
        with pytest.raises(InputError, match="group"):
            fitted.fit(x, target, **wrong)
    with pytest.raises(InputError, match="pass group"):
        fitted.score(x, y)
