"""R_{B,w}, measured: views that were drawn, and l2 balls around them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from csst.data import Toy
from csst.data.tabular.table_views import Noise
from csst.data.task import identity_view
from csst.errors import InputError
from csst.theory import Neighborhood, two_gaussians, weighted_consistency_error
from csst.theory.networks import as_floats, attack, features, features_of_views


def linear(weight, bias):
    model = nn.Linear(len(weight[0]), len(weight)).double()
    model.weight.data, model.bias.data = torch.tensor(weight).double(), torch.tensor(bias).double()
    return model


def half(x, generator):
    return x + 0.5


def test_views_by_loops(monkeypatch):
    """Paper, Sec. 3.2, R_{B,w}: sum_ij w_ij P_i(some view is classified otherwise), by plain loops."""
    model = linear([[0.0], [1.0]], [0.0, 0.0])
    x, y = torch.tensor([[-2.0], [-0.3], [-0.1], [0.2], [-0.4], [3.0]]).double(), torch.tensor([0, 0, 0, 1, 1, 1])
    w = [[0.5, 0.1], [0.0, 0.4]]
    crosses = [-0.5 < float(v) <= 0 for v in x]
    expected = 0.6 * sum(crosses[:3]) / 3 + 0.4 * sum(crosses[3:]) / 3
    result = weighted_consistency_error(model, x, y, w, Neighborhood(half, draws=1))
    assert result.value == pytest.approx(expected)
    assert result.standard_error == pytest.approx(math.sqrt(0.6**2 * 2 / 27 + 0.4**2 * 2 / 27))
    # in batches it is the same
    monkeypatch.setattr("csst.theory.weighted_errors.BATCH", 2)
    assert weighted_consistency_error(model, x, y, w, Neighborhood(half, draws=1)).value == pytest.approx(expected)


def test_more_draws_find_more():
    """A lower bound that grows with the draws (the same seed draws the same views first)."""
    task = Toy("toy", labeled=50, unlabeled=60, validation=200, test=30).load(0)
    model = linear([[-1.9, 0.0], [1.9, 0.0], [0.0, 0.0]], [-1.8, -1.8, 0.0]).float()
    x, y = task.validation.inputs, task.validation.labels
    values = [
        weighted_consistency_error(model, x, y, torch.eye(3) / 3, Neighborhood(Noise(torch.ones(2), 0.3), n)).value
        for n in (1, 4, 16)
    ]
    assert 0 < values[0] < 0.8 * values[1] < values[1] < 0.8 * values[2] < 0.8


def test_ball_around_a_linear_classifier():
    """The attack is exact for linear classifiers: flipped if and only if the closest boundary is within the radius."""
    torch.manual_seed(0)
    model = linear(torch.randn(3, 4).tolist(), [0.1, -0.2, 0.0])
    x = torch.randn(300, 4).double()
    scores, radius = model(x).detach(), 0.4
    label = scores.argmax(1)
    distance = torch.full((300,), math.inf).double()
    for row in range(300):
        for j in range(3):
            if j != label[row]:
                gap = scores[row, label[row]] - scores[row, j]
                apart = (model.weight[label[row]] - model.weight[j]).norm().detach()
                distance[row] = min(float(distance[row]), float(gap / apart))
    result, worst = attack(model, x, label, radius)
    clear = (distance - radius).abs() > 0.01
    assert ((result != label) == (distance < radius))[clear].all()
    assert clear.sum() > 250
    assert 30 < (distance < radius).sum() < 270
    assert ((worst - x).norm(dim=1) <= radius + 1e-9).all()


def test_balls_match_the_closed_form():
    """Paper, exa:r_gopt_bound: R_{B,w} of the best rule for two Gaussians, from samples and an attack."""
    d, r, weights, apart = 4.0, 0.2, (0.7, 0.3), 1.5
    torch.manual_seed(1)
    y = torch.tensor([0] * 4000 + [1] * 4000)
    x = torch.randn(8000, 4).double() / math.sqrt(d)
    x[:, 0] += apart * y
    # log w_i - d/2 |x - tau_i|^2, less what both share
    model = linear([[0.0] * 4, [d * apart, 0.0, 0.0, 0.0]], [math.log(0.7), math.log(0.3) - d / 2 * apart**2])
    result = weighted_consistency_error(
        model, x, y, torch.diag(torch.tensor(weights)), Neighborhood(identity_view, 1, radius=r)
    )
    assert result.value == pytest.approx(two_gaussians(apart, weights, d, r).consistency, abs=4 * result.standard_error)
    assert result.value > 0.08


def test_pictures_and_texts():
    pictures = torch.randint(0, 256, (12, 3), dtype=torch.uint8)
    y = torch.tensor([0, 1] * 6)

    class Bright(nn.Module):
        def forward(self, x):
            x = x.float() / 255 if x.dtype == torch.uint8 else x
            return torch.stack([x.mean(1), torch.full_like(x[:, 0], 0.5)], 1)

    result = weighted_consistency_error(
        Bright(), pictures, y, torch.eye(2) / 2, Neighborhood(identity_view, 1, radius=5.0)
    )
    assert result.value == pytest.approx(1.0)  # within 5 pixel ranges everything can be changed

    class Words(nn.Module):
        def encode(self, texts):
            return torch.tensor([[float(len(t))] for t in texts])

        def forward(self, x):
            return torch.cat([x, torch.full_like(x, 4.5)], 1)

    class Texts:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return [("abcd", "abcdef")[i] for i in index.tolist()]

    labels = torch.tensor([0, 1])
    result = weighted_consistency_error(
        Words(), Texts(), labels, torch.eye(2) / 2, Neighborhood(lambda texts, g: [t + "!" for t in texts], 1)
    )
    assert result.value == pytest.approx(0.5)
    with pytest.raises(InputError, match="inputs that are numbers; found list"):
        weighted_consistency_error(
            Words(), Texts(), labels, torch.eye(2) / 2, Neighborhood(identity_view, 1, radius=0.1)
        )
    with pytest.raises(InputError, match=r"found torch\.int64"):
        as_floats(torch.tensor([[1, 2]]))
    with pytest.raises(InputError, match="takes tensors"):
        weighted_consistency_error(Bright(), Texts(), labels, torch.eye(2) / 2, Neighborhood(identity_view, 1))
    with pytest.raises(InputError, match="draws >= 1"):
        weighted_consistency_error(Bright(), pictures, y, torch.eye(2) / 2, Neighborhood(identity_view, 0))


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.9)).train()
    x, y = torch.randn(10, 2), torch.tensor([0, 1] * 5)
    assert (
        weighted_consistency_error(model, x, y, torch.eye(2), Neighborhood(identity_view, 3)).value == 0.0
    )  # no dropout while measuring
    assert model.training


def test_features_are_what_the_last_linear_layer_sees(monkeypatch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    x = torch.randn(5, 2, 2)
    expected = torch.relu(model[1](x.flatten(1))).detach()
    assert torch.equal(features(model, x), expected)
    assert not model[3]._forward_pre_hooks
    monkeypatch.setattr("csst.theory.networks.BATCH", 3)
    twice = features_of_views(model, x, lambda batch, g: batch + torch.randn((), generator=g), draws=2)
    assert twice.shape == (5, 2, 3)
    assert torch.equal(features_of_views(model, x)[:, 0], expected)
    assert torch.equal(features(nn.Flatten(), x), x.flatten(1))  # no linear layer: the scores
