"""Networks that start at the learner `linear` compute what it does, in their own shape, and learn on from there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix

import csst
from csst.data import Toy
from csst.data.examples import SparseRows, as_rows
from csst.data.task import Labeled, Task
from csst.fitting.fit import fit
from csst.learners import linear_start
from csst.learners.linear_start import choose_rows, fit_linear, start_at_linear
from csst.learners.network import Network
from csst.models import Model, Projected, build, mlp
from csst.models.table import make_table_network
from csst.models.wide_resnet import WideResNet
from csst.settings import Settings, Training
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

DIAGONAL = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)


def sample(classes: int = 3) -> Task:
    """Rows of two columns of which one has ten times the deviation, with some unlabeled ones."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(150) % classes
    rows = torch.randn(150, 4, generator=generator) + 2 * torch.eye(classes, 4)[labels]
    rows = rows * torch.tensor([1.0, 10.0, 1.0, 1.0]) + torch.tensor([0.0, 0.0, 30.0, 0.0])
    names = tuple(str(k) for k in range(classes))
    return Task("sample", names, Labeled(rows[:90], labels[:90]), rows[90:])


def expected_softmax(task: Task, diagonal: list[float]) -> list[list[float]]:
    """norm(D p), row by row, with p by the portfolio of linear models."""
    p = fit_linear(task, 0).probs(as_rows(task.labeled.inputs))
    rows = []
    for row in p.tolist():
        raised = [d * value for d, value in zip(diagonal, row, strict=True)]
        rows.append([value / sum(raised) for value in raised])
    return rows


def softmax_of(network: torch.nn.Module, task: Task) -> np.ndarray:
    return torch.softmax(network(torch.from_numpy(as_rows(task.labeled.inputs)).float()), 1).detach().numpy()


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_softmax_is_that_of_the_linear_learner_under_the_gain(depth, classes):
    task = sample(classes)
    diagonal = DIAGONAL[:classes]
    torch.manual_seed(0)
    network = mlp((4,), classes, hidden=8, depth=depth)
    network[0].fit(task.unlabeled)
    start_at_linear(network, task, diagonal)
    np.testing.assert_allclose(softmax_of(network, task), expected_softmax(task, diagonal.tolist()), atol=1e-5)


def test_the_linear_learner_is_the_one_that_is_fitted_alone():
    task = sample()
    alone = fit(task, "linear", "max min(recall)").model
    rows = as_rows(task.labeled.inputs)
    np.testing.assert_allclose(fit_linear(task, 0).probs(rows), alone.probs(rows), atol=1e-12)


def test_projected_vectors_are_the_rows_of_the_head():
    task = sample()
    projected = Projected(mlp((4,), 3, hidden=8, depth=1), torch.zeros(6), torch.zeros(6, 4))
    start_at_linear(projected, task, DIAGONAL)
    np.testing.assert_allclose(softmax_of(projected, task), expected_softmax(task, DIAGONAL.tolist()), atol=1e-5)


def test_tables_with_categories_start_at_the_linear_learner():
    task = sample()
    frame = pd.DataFrame(task.labeled.inputs.numpy(), columns=[*"abcd"])
    labels = task.labeled.labels.numpy()
    frame.insert(1, "kind", np.array(["red", "green", "blue"])[(labels + (np.arange(90) % 5 == 0)) % 3])
    linear = csst.CSSTClassifier(learner="linear").fit(frame, labels)
    steady = {"training": {"steps": 5, "lr": 1e-12}}
    network = csst.CSSTClassifier(learner="network", method="csl", settings=steady).fit(frame, labels)
    rows = torch.from_numpy(linear.columns_.encode({name: frame[name].to_numpy() for name in frame}))
    # Equally many labels of every class: D is a multiple of I, and the prior of the labels is uniform.
    np.testing.assert_allclose(
        torch.softmax(network.fit_.model(rows.float()), 1).detach().numpy(),
        np.exp(linear.fit_.model(rows.double()).detach().numpy()),
        atol=1e-5,
    )


@pytest.mark.parametrize("make", [lambda: mlp((4,), 3, hidden=5, depth=1), lambda: WideResNet(10, 1, 3)])
def test_networks_without_room_keep_their_weights(make):
    network = make()
    before = [weights.clone() for weights in network.parameters()]
    start_at_linear(network, sample(), DIAGONAL)
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def settings(start: str) -> Settings:
    return Settings(model=Model(hidden=8, depth=1, start=start), training=Training(steps=20, labeled_batch=16, lr=0.01))


def make_network() -> torch.nn.Module:
    task = Toy("toy").load(seed=0)
    return build(settings("linear").model, task.input_shape, task.classes, 0)


def test_training_begins_at_the_linear_model_and_goes_on_with_all_weights():
    task = Toy("toy").load(seed=0)
    game = Network(make_network, "csl", settings("linear")).start(task, "max min(recall)", 0)
    first_weights = [weights.clone() for weights in game.trainer.model.parameters()]
    records = list(game.run())
    assert min(records[0].recall) > 0.6
    assert all(not torch.equal(a, b) for a, b in zip(first_weights, game.trainer.model.parameters(), strict=True))
    random_start = Network(make_network, "csl", settings("random")).start(task, "max min(recall)", 0)
    assert min(next(random_start.run()).recall) < 0.4


def test_folds_start_at_their_own_labels():
    task = Toy("toy").load(seed=0)
    game = Network(make_network, "csl", settings("linear"), folds=2).start(task, "max min(recall)", 0)
    starts = []
    for trainer in game.trainers:
        network = make_network()
        start_at_linear(network, trainer.task, trainer.multipliers.gain.diagonal)
        starts.append(dict(network.named_parameters())["2.bias"])
        assert torch.equal(starts[-1], dict(trainer.model.named_parameters())["2.bias"])
    assert not torch.equal(starts[0], starts[1])


def test_many_labels_are_sampled_with_some_of_every_class(monkeypatch):
    labels = torch.tensor([0] * 900 + [1] * 99 + [2])
    assert choose_rows(labels).tolist() == list(range(1000))
    monkeypatch.setattr(linear_start, "MOST_ROWS", 100)
    rows = choose_rows(labels)
    assert len(set(rows.tolist())) == len(rows)
    assert torch.bincount(labels[rows]).tolist() == [90, 10, 1]


def test_sparse_rows_start_at_the_linear_learner_of_sparse_rows():
    task = sample()
    labeled, unlabeled = (SparseRows(csr_matrix((x * (x > 0)).numpy())) for x in (task.labeled.inputs, task.unlabeled))
    sparse_task = replace(task, labeled=replace(task.labeled, inputs=labeled), unlabeled=unlabeled)
    network = make_table_network([0] * 4, (np.zeros(4), np.ones(4)), 8, 1, 3, 0)
    start_at_linear(network, sparse_task, DIAGONAL)
    p = fit_linear(sparse_task, 0).probs(as_rows(labeled)) * DIAGONAL.numpy()
    softmax = torch.softmax(network(labeled[torch.arange(90)]), 1).detach().numpy()
    np.testing.assert_allclose(softmax, p / p.sum(1, keepdims=True), atol=1e-5)


def make_quarters(rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Points of a square whose class no linear model tells: opposite quarters share one."""
    points = np.random.default_rng(0).uniform(-1, 1, (rows, 2)).astype(np.float32)
    return points, (points[:, 0] * points[:, 1] > 0).astype(int)


@pytest.mark.parametrize("validation", [None, 0.3])
def test_what_training_has_not_improved_is_kept_as_it_was(validation):
    task = sample()
    rows, labels = task.labeled.inputs.numpy(), task.labeled.labels.numpy()
    settings = {"training": {"steps": 30, "lr": 0.5}, "dual": {"steps_per_update": 10}, "rule": "fit"}
    network = csst.CSSTClassifier(learner="network", method="csl", settings=settings, validation=validation)
    with pytest.warns(UserWarning, match="training has not improved the linear model"):
        network.fit(rows, labels)
    details = network.fit_.full_details
    state = details.state["trainers"][-1] if validation is None else details.state
    assert details.about["selected_step"] == 0
    assert any("which is kept" in note for note in network.notes_)
    for name, weights in network.fit_.model.state_dict().items():
        assert torch.equal(weights, state["ema"][name])
    np.testing.assert_allclose(details.gain.entries / details.gain.entries.mean(), np.ones(3), rtol=0.2)


@pytest.mark.parametrize("validation", [None, 0.3])
def test_what_training_has_improved_stays(validation):
    points, labels = make_quarters()
    settings = {"training": {"steps": 300, "lr": 0.1}, "rule": "fit"}
    network = csst.CSSTClassifier(learner="network", method="csl", settings=settings, validation=validation)
    network.fit(points, labels)
    assert network.score(points, labels) > 0.8
    assert not any("which is kept" in note for note in network.notes_)
    linear = csst.CSSTClassifier(learner="linear").fit(points, labels)
    assert linear.score(points, labels) < 0.6
