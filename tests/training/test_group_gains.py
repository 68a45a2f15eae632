"""One gain for each group of rows: best responses on Gaussians, the trainer around them, and what stays the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import csst
from csst.data.task import make_task
from csst.errors import InputError
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.gain import Gain
from csst.models import mlp
from csst.rules.cells import RowGroups
from csst.settings import Dual, Settings, Training
from csst.training.crossfit import CrossFit
from csst.training.group_gains import GroupGains, GroupSolver
from csst.training.trainer import Trainer
from tests.helpers.trainers import lines, weights

SENTENCE = "max min(recall by site)"
NAMES = ("far", "near")
DISTANCES = np.array([3.0, 1.5])  # of the means of two classes, in each group
PRIORS = np.array([[0.5, 0.5], [0.85, 0.15]])
SETTINGS = Settings(
    training=Training(steps=15, labeled_batch=16, unlabeled_batch=16, lr=0.1, ema=0.6),
    dual=Dual(steps_per_update=5, update="solve", warmup=0),
)


def sample(rows, seed):
    """Places, classes and groups of rows of two classes in two groups."""
    rng = np.random.default_rng(seed)
    g = rng.integers(0, 2, rows)
    y = (rng.random(rows) > PRIORS[g, 0]).astype(np.int64)
    return rng.normal(size=rows) + DISTANCES[g] * y, y, g


def likelihood(x, g):
    return np.stack([-0.5 * x**2, -0.5 * (x - DISTANCES[g]) ** 2], 1)


@pytest.mark.parametrize("sees_group", [True, False])
def test_the_gains_make_the_worst_cell_as_good_as_it_can_be(sees_group):
    x, y, g = sample(3000, 0)
    counts = np.stack([np.bincount(y[g == a], minlength=2) for a in range(2)])
    class_prior = counts.sum(0) / counts.sum()
    objective = csst.objective("max min(recall)").bind(2)
    game = csst.Multipliers(objective, class_prior)
    gains = GroupGains(game.gain, counts)
    sentence = csst.objective(SENTENCE).bind(2).bind_row_groups(NAMES)
    solver = GroupSolver(sentence, gains, torch.from_numpy(class_prior), farthest=4.0)
    groups = RowGroups("site", NAMES, g, np.zeros(0, dtype=np.int64))

    def score(places, rows):
        """What a network shows that answers the gain of each group, or only the mean gain."""
        gain = gains.entries[rows] if sees_group else game.gain.diagonal
        return torch.softmax(torch.from_numpy(likelihood(places, rows) + np.log(PRIORS[rows])) + gain.log(), 1)

    def measure():
        x, y, g = sample(100_000, 1)
        answers = (likelihood(x, g) + np.log(PRIORS[g]) + gains.entries.log().numpy()[g]).argmax(1)
        return np.array([[(answers[(y == k) & (g == a)] == k).mean() for k in range(2)] for a in range(2)])

    assert measure().min() < 0.6

    for _ in range(5):
        evidence = HeldOutScores.from_probs(game.gain.posterior(score(x, g)), y, train_prior=class_prior)
        solver.move(game, solver.solve(evidence, groups), 0.5)
    recalls = measure()
    # Between means at a distance d no rule has a worst recall above Phi(d / 2), here Phi(0.75) = 0.773; the rare class
    # of the near group has 225 labels.
    assert recalls.min() > 0.773 - 0.03
    assert recalls[0].min() > recalls[1].min()


def make(settings=SETTINGS, sentence=SENTENCE, method="csst"):
    x, y, g = sample(400, 2)
    inputs = torch.from_numpy(np.stack([x, g], 1)).float()
    labels = torch.from_numpy(np.where(np.arange(400) < 150, y, -1))
    labeled = (inputs[:150], labels[:150])
    task = make_task("sites", labeled, inputs[150:], labeled)
    groups = torch.from_numpy(g)
    parts = {
        "labeled": replace(task.labeled, groups=groups[:150]),
        "validation": replace(task.require("validation"), groups=groups[:150]),
    }
    unlabeled = torch.where(torch.arange(250) < 100, -1, groups[150:])
    if "by" in sentence:
        task = replace(task, **parts, group_column="site", group_names=NAMES, unlabeled_groups=unlabeled)
    torch.manual_seed(0)
    return Trainer(task, mlp((2,), 2), sentence, method, settings)


def test_gains_that_stay_equal_train_as_one_gain_does_to_the_bit():
    settings = replace(SETTINGS, dual=replace(SETTINGS.dual, warmup=1000))
    grouped = make(settings)
    single = make(settings, "max min(recall)")
    assert grouped.updates.group_gains is not None
    for a, b in zip(lines(grouped.run()), lines(single.run()), strict=True):
        assert {name: a[name] for name in a if name != "trust"} == {name: b[name] for name in b if name != "trust"}
    assert all(torch.equal(a, b) for a, b in zip(weights(grouped), weights(single), strict=True))


@pytest.fixture(scope="module")
def entire_run():
    entire = make()
    return entire, lines(entire.run())


@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_for_groups_resumes_to_the_bit(entire_run, stop):
    entire, expected = entire_run
    first = make()
    second = make()
    run = first.run()
    records = [next(run) for _ in range(stop)]
    second.load_state_dict(first.state_dict())
    assert lines([*records, *second.run()]) == expected
    assert torch.equal(entire.updates.group_gains.entries, second.updates.group_gains.entries)
    assert not torch.equal(*second.updates.group_gains.entries)


def test_rows_have_the_gain_of_their_group_or_the_mean():
    training = make()
    list(training.run())
    updates = training.updates
    gain = updates.find_row_gain(torch.tensor([1, -1, 0]))
    expected = [updates.group_gains.gains[1], training.multipliers.gain, updates.group_gains.gains[0]]
    for row, single in zip(gain.entries, expected, strict=True):
        assert torch.equal(row, single.entries)
    mean = updates.group_gains.shares @ torch.stack([g.entries for g in updates.group_gains.gains]).log().numpy()
    np.testing.assert_allclose(np.diff(mean), np.diff(training.multipliers.gain.entries.log().numpy()))


def test_matrices_of_groups_are_stored_and_averaged():
    gains = GroupGains(Gain([1.0, 2.0]), np.array([[30, 10], [40, 20]]))
    mean = gains.adopt([np.array([[2.0, 0.5], [0.1, 1.0]]), np.zeros(2)])
    assert mean.shape == (2, 2)
    again = GroupGains(Gain([1.0, 2.0]), np.array([[30, 10], [40, 20]]))
    again.load_state_dict(gains.state_dict())
    assert torch.equal(again.entries, gains.entries)


def test_folds_follow_the_same_gains():
    task = make().task
    runner = CrossFit(task, lambda: mlp((2,), 2), SENTENCE, "csst", SETTINGS, folds=2)
    list(runner.run())
    by_group = [
        torch.stack([torch.from_numpy(b) for b in t.updates.group_gains.parameters_of_groups]) for t in runner.trainers
    ]
    # Each trainer's class fractions are its own, so that its start is, too.
    assert all(not torch.equal(*parameters) for parameters in by_group)


def test_a_gradient_has_no_gains_of_groups():
    with pytest.raises(InputError, match="solved for"):
        make(replace(SETTINGS, dual=replace(SETTINGS.dual, update="gradient")))
