"""Networks that start at logistic regression compute it, in their own shape, and learn on from there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

import csst
from csst.data import Toy
from csst.data.examples import SparseRows
from csst.models import Model, Projected, build, linear_start, mlp
from csst.models.linear_start import PENALTY, choose_rows, start_at_logistic
from csst.models.table import make_table_network
from csst.models.wide_resnet import WideResNet
from csst.settings import Settings, Training
from csst.training.crossfit import CrossFit
from csst.training.trainer import Trainer
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

DIAGONAL = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)


def sample(classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % classes
    return torch.randn(90, 4, generator=generator) + 2 * torch.eye(classes, 4)[labels], labels


def expected_softmax(features: np.ndarray, labels: np.ndarray, diagonal: list[float]) -> list[list[float]]:
    """norm(D p), row by row."""
    p = LogisticRegression(C=PENALTY, tol=1e-6).fit(features, labels).predict_proba(features)
    rows = []
    for row in p.tolist():
        raised = [d * value for d, value in zip(diagonal, row, strict=True)]
        rows.append([value / sum(raised) for value in raised])
    return rows


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_softmax_is_that_of_logistic_regression_under_the_gain(depth, classes):
    x, labels = sample(classes)
    diagonal = DIAGONAL[:classes]
    torch.manual_seed(0)
    network = mlp((4,), classes, hidden=8, depth=depth)
    start_at_logistic(network, x, labels, diagonal)
    wanted = expected_softmax(x.numpy(), labels.numpy(), diagonal.tolist())
    np.testing.assert_allclose(torch.softmax(network(x), 1).detach().numpy(), wanted, atol=0.005)


def test_categories_and_projected_vectors():
    x, labels = sample()
    categories = (labels + (torch.arange(90) % 5 == 0)) % 3
    table = torch.cat([x, categories[:, None].float()], 1)
    moments = np.append(x.numpy().mean(0), 0.0), np.append(x.numpy().std(0), 1.0)
    network = make_table_network([0, 0, 0, 0, 3], moments, 8, 2, 3, 0)
    start_at_logistic(network, table, labels, DIAGONAL)
    features = np.hstack([(x.numpy() - moments[0][:4]) / moments[1][:4], np.eye(3)[categories]])
    wanted = expected_softmax(features, labels.numpy(), DIAGONAL.tolist())
    np.testing.assert_allclose(torch.softmax(network(table), 1).detach().numpy(), wanted, atol=0.005)
    projected = Projected(mlp((4,), 3, hidden=8, depth=1), torch.zeros(6), torch.zeros(6, 4))
    start_at_logistic(projected, x, labels, DIAGONAL)
    wanted = expected_softmax(x.numpy(), labels.numpy(), DIAGONAL.tolist())
    np.testing.assert_allclose(torch.softmax(projected(x), 1).detach().numpy(), wanted, atol=0.005)


@pytest.mark.parametrize("make", [lambda: mlp((4,), 3, hidden=5, depth=1), lambda: WideResNet(10, 1, 3)])
def test_networks_without_room_keep_their_weights(make):
    x, labels = sample()
    network = make()
    before = [weights.clone() for weights in network.parameters()]
    start_at_logistic(network, x, labels, DIAGONAL)
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def settings(start: str) -> Settings:
    return Settings(model=Model(hidden=8, depth=1, start=start), training=Training(steps=20, labeled_batch=16, lr=0.01))


def test_training_begins_at_the_linear_model_and_goes_on_with_all_weights():
    task = Toy("toy").load(seed=0)
    model = build(settings("linear").model, task.input_shape, task.classes, 0)
    trainer = Trainer(task, model, "max min(recall)", "csl", settings("linear"), 0)
    first_weights = [weights.clone() for weights in model.parameters()]
    records = list(trainer.run())
    assert min(records[0].recall) > 0.6
    assert all(not torch.equal(a, b) for a, b in zip(first_weights, model.parameters(), strict=True))
    random_start = Trainer(
        task, build(Model(hidden=8, depth=1), task.input_shape, task.classes, 0), "max min(recall)", "csl"
    )
    assert min(random_start.update_multipliers().recall) < 0.4


def test_folds_start_at_their_own_labels():
    task = Toy("toy").load(seed=0)

    def make():
        return build(settings("linear").model, task.input_shape, task.classes, 0)

    game = CrossFit(task, make, "max min(recall)", "csl", settings("linear"), 0, 2)
    starts = []
    for trainer in game.trainers:
        network = make()
        labeled = trainer.task.labeled
        start_at_logistic(network, labeled.inputs, labeled.labels, trainer.multipliers.gain.diagonal)
        starts.append(network[-1].bias if len(network) < 4 else network[2].bias)
        assert torch.equal(starts[-1], dict(trainer.model.named_parameters())["2.bias"])
    assert not torch.equal(starts[0], starts[1])


def test_the_estimator_starts_its_networks_there():
    x, labels = sample()
    network = csst.CSSTClassifier(learner="network", method="csl", settings={"training": {"steps": 5}})
    network.fit(x.numpy(), labels.numpy())
    linear = csst.CSSTClassifier(learner="linear").fit(x.numpy(), labels.numpy())
    assert (network.predict(x.numpy()) == linear.predict(x.numpy())).mean() > 0.9


def test_many_labels_are_sampled_with_some_of_every_class(monkeypatch):
    labels = torch.tensor([0] * 900 + [1] * 99 + [2])
    assert choose_rows(labels).tolist() == list(range(1000))
    monkeypatch.setattr(linear_start, "MOST_ROWS", 100)
    rows = choose_rows(labels)
    assert len(set(rows.tolist())) == len(rows)
    assert torch.bincount(labels[rows]).tolist() == [90, 10, 1]


def test_sparse_rows_start_like_dense_ones():
    x, labels = sample()
    x = x * (x > 0)
    networks = [make_table_network([0] * 4, (np.zeros(4), np.ones(4)), 8, 1, 3, 0) for _ in range(2)]
    for network, rows in zip(networks, (x, SparseRows(csr_matrix(x.numpy()))), strict=True):
        start_at_logistic(network, rows, labels, DIAGONAL)
    for dense_weights, sparse_weights in zip(*(network.parameters() for network in networks), strict=True):
        torch.testing.assert_close(dense_weights, sparse_weights, rtol=1e-3, atol=1e-3)
