"""Groups of rows in sentences: values, payoffs and gradients against loops, one group against none, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import csst
from csst.errors import InputError
from csst.maths.grouped_confusion import GroupedConfusion, count_groups
from csst.maths.objectives import lagrangian

NAMES = ["ok", "odd", "fraud"]
REGIONS = ["north", "south"]


@pytest.fixture(scope="module")
def answers():
    """Four hundred true classes, predictions and groups; the second group is harder."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, 400)
    truth = rng.choice(3, 400, p=[0.5, 0.3, 0.2])
    return truth, np.where(rng.random(400) < 0.8 - 0.3 * groups, truth, rng.integers(0, 3, 400)), groups


def count(answers):
    return GroupedConfusion.from_counts(count_groups(*answers, 3, 2), NAMES, REGIONS)


def bind(text):
    return csst.objective(text, class_names=NAMES).bind_row_groups(REGIONS)


def recall(k, a, truth, answer, group):
    return (answer[(truth == k) & (group == a)] == k).mean()


def all_recalls(*rows):
    return [recall(k, a, *rows) for a in range(2) for k in range(3)]


def gaps(*rows):
    return [recall(k, a, *rows) - recall(k, 1 - a, *rows) for a in range(2) for k in range(3)]


def accuracy_gaps(truth, answer, group):
    hits = truth == answer
    return np.array([hits.mean() - hits[group == a].mean() for a in range(2)])


def ratio_slack(truth, answer, group):
    shares = [(answer[group == a] == 0).mean() for a in range(2)]
    return [shares[0] - 0.8 * shares[1], shares[1] - 0.8 * shares[0]]


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("max min(recall by region)", lambda *rows: min(all_recalls(*rows))),
        ("max mean(recall by region)", lambda *rows: np.mean(all_recalls(*rows))),
        ("max recall['fraud'] by region['south']", lambda *rows: recall(2, 1, *rows)),
        ("max min(balanced_accuracy by region)", lambda *r: min(np.mean(all_recalls(*r)[3 * a :][:3]) for a in (0, 1))),
        ("max min(accuracy by region)", lambda y, p, g: min((y == p)[g == a].mean() for a in (0, 1))),
        ("max min(coverage['odd'] by region)", lambda y, p, g: min((p[g == a] == 1).mean() for a in (0, 1))),
        ("max accuracy + 0*min(recall by region)", lambda y, p, g: (y == p).mean()),
    ],
)
def test_a_value_is_that_of_a_loop(text, reference, answers):
    assert float(bind(text).value(count(answers))) == pytest.approx(reference(*answers))


@pytest.mark.parametrize(
    ("bound", "reference"),
    [
        ("recall by region >= 0.7", lambda *rows: np.array(all_recalls(*rows)) - 0.7),
        ("recall by region - min(recall by region) <= 0.05", lambda *rows: 0.05 - np.array(gaps(*rows))),
        ("max(recall by region) - min(recall by region) <= 0.05", lambda *rows: 0.05 - np.array(gaps(*rows))),
        ("accuracy - min(accuracy by region) <= 0.1", lambda *rows: 0.1 - accuracy_gaps(*rows)),
        ("coverage['ok'] by region >= 0.8*max(coverage['ok'] by region)", lambda *rows: ratio_slack(*rows)),
    ],
)
def test_a_slack_is_that_of_a_loop(bound, reference, answers):
    goal = bind(f"max accuracy s.t. {bound}")
    slack = goal.slack(count(answers)).tolist()
    assert sorted(slack) == pytest.approx(sorted(reference(*answers)))
    assert len(goal.labels) == len(slack)
    assert csst.objective(str(goal), class_names=NAMES).bind_row_groups(REGIONS) == goal


def test_a_gradient_is_that_of_differences(answers):
    goal = bind("max mean(f1 by region) s.t. recall by region - min(recall by region) <= 0.05, precision['ok'] >= 0.5")
    c = count(answers)
    rates = torch.stack([part.rates for part in c.by_group])
    prior = torch.tensor([[(answers[0][answers[2] == a] == k).sum() / 400 for k in range(3)] for a in range(2)])
    weights = torch.linspace(0.5, 1.5, len(goal.labels), dtype=torch.float64)
    leaf = rates.clone().requires_grad_()
    (slope,) = torch.autograd.grad(lagrangian(goal, weights, GroupedConfusion.from_rates(leaf, prior)), leaf)
    for place in np.ndindex(2, 3, 3):
        values = []
        for step in (1e-6, -1e-6):
            moved = rates.clone()
            moved[place] += step
            values.append(float(lagrangian(goal, weights, GroupedConfusion.from_rates(moved, prior))))
        assert float(slope[place]) == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-6)


def test_one_group_is_all_rows_to_the_bit(answers):
    truth, answer, _ = answers
    plain = csst.Confusion.from_predictions(truth, answer, 3)
    lone = GroupedConfusion.from_counts(count_groups(truth, answer, np.zeros(400, int), 3, 1))
    for metric in ("recall", "precision", "f1", "coverage", "specificity"):
        goal = csst.objective(f"max mean({metric}) s.t. {metric} >= 0.3")
        by_group = csst.objective(f"max mean({metric} by g) s.t. {metric} by g >= 0.3").bind_row_groups(["all"])
        assert torch.equal(goal.value(plain), by_group.value(lone))
        assert torch.equal(goal.value(plain), goal.value(lone))
        assert torch.equal(goal.slack(plain), by_group.slack(lone))


def test_entries_are_named_by_class_and_group():
    goal = bind("max min(recall by region) s.t. recall['ok'] by region - min(recall['ok'] by region) <= 0.1")
    assert goal.labels[4] == "recall['odd'] by region['south']"
    assert goal.labels[-1] == "recall['ok'] by region['north'] - recall['ok'] by region['south'] <= 0.1"
    assert str(csst.objective("max min(fnr['ok'] by 'age band')")) == "max min(1 - recall['ok'] by 'age band')"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("max recall['ok'] by region", "one value per group"),
        ("max min(recall) by region", "inside: write min"),
        ("max min(recall by region) s.t. recall by sex >= 0.5", "one column; found 'region' and 'sex'"),
        ("max accuracy s.t. min(recall by region) - recall <= 0.5", "cannot stand in this constraint"),
        ("max min(recall by 3)", "name of a column"),
        ("max mean(recall by region) by region", "once"),
        ("max min(recall by region) s.t. abstain <= 0.1", "leave one out"),
        ("max recall['ok'] by region['nort']", "did you mean 'north'"),
    ],
)
def test_bad_groups_get_a_sentence(text, reason):
    with pytest.raises(InputError, match=reason.replace("(", r"\(")):
        bind(text)


def test_groups_that_are_not_there_get_a_sentence(answers):
    with pytest.raises(InputError, match="needs the rates of each region"):
        csst.objective("max min(recall by region)").value(csst.Confusion.from_predictions(*answers[:2], 3))
    with pytest.raises(InputError, match="names no groups of rows"):
        bind("max min(recall)")
    rows = (answers[0] < 2) | (answers[2] == 0)
    with pytest.raises(InputError, match="class 'fraud' has none in group 'south'"):
        count([values[rows] for values in answers])
