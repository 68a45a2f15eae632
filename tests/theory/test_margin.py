"""The all-layer margin: exact where it can be, an upper bound elsewhere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from csst.errors import InputError
from csst.models import mlp
from csst.theory import MarginSearch, Neighborhood, all_layer_margin, layers_of, margin_curve, view_margin
from csst.theory.margin import disturb


def network(*widths, activation=False, seed=0):
    torch.manual_seed(seed)
    layers = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b, bias=activation)] + ([nn.ReLU()] if activation else [])
    return nn.Sequential(*(layers[:-1] if activation else layers)).double()


@pytest.mark.parametrize("classes", [2, 4])
def test_exact_for_one_linear_layer(classes):
    """Paper, all-layer margin m(Phi, x, y): (Phi_y - max_j Phi_j) / (sqrt(2) |x|) for Phi(x) = W x + b."""
    net = nn.Sequential(nn.Linear(5, classes)).double()
    torch.manual_seed(classes)
    x = torch.randn(60, 5).double()
    scores = net(x).detach()
    y = scores.argmax(1)
    y[:7] = scores[:7].argmin(1)
    result = all_layer_margin(net, x, y)
    for row in range(60):
        others = max(float(scores[row, j]) for j in range(classes) if j != y[row])
        exact = max(0.0, (float(scores[row, y[row]]) - others) / (math.sqrt(2) * float(x[row].norm())))
        assert float(result[row]) == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_two_linear_layers_against_a_grid():
    """Paper, all-layer margin of two linear layers: the best xi_2 for each xi_1 is known, xi_1 is searched."""
    net = network(3, 2, 3)
    torch.manual_seed(5)
    x = torch.randn(8, 3).double()
    y = net(x).argmax(1)
    result = all_layer_margin(net, x, y)
    first, second = net[0].weight.detach().numpy(), net[1].weight.detach().numpy()
    line = np.linspace(-1.2, 1.2, 801)
    xi = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    for row in range(8):
        point = x[row].numpy()
        h = first @ point + xi * np.linalg.norm(point)
        out = h @ second.T
        best = math.inf
        for j in range(3):
            if j != int(y[row]):
                gap = np.maximum(0, out[:, int(y[row])] - out[:, j]) / (math.sqrt(2) * np.linalg.norm(h, axis=1))
                best = min(best, float(np.sqrt((xi**2).sum(1) + gap**2).min()))
        assert float(result[row]) == pytest.approx(best, rel=5e-3)
        assert float(result[row]) <= best + 1e-9  # a grid can only miss


def test_disturb_by_loops():
    """Paper, appendix "All-Layer Margin": h_i = f_i(h_{i-1}) + xi_i |h_{i-1}|."""
    net = nn.Sequential(*layers_of(network(3, 4, 2, activation=True)))
    x, noise = torch.randn(1, 3).double(), [torch.randn(1, 4).double(), torch.randn(1, 2).double()]
    h1 = net[0](x).detach() + noise[0] * math.sqrt(sum(float(v) ** 2 for v in x[0]))
    h2 = net[1](h1) + noise[1] * math.sqrt(sum(float(v) ** 2 for v in h1[0]))
    assert torch.allclose(disturb(net, x, noise), h2)
    assert torch.allclose(disturb(net, x, None), network(3, 4, 2, activation=True)(x))


def test_upper_bound_that_random_search_does_not_beat():
    """No random disturbance smaller than the margin found changes the prediction; more restarts never enlarge it."""
    net = network(4, 8, 8, 3, activation=True, seed=3)
    torch.manual_seed(4)
    x = torch.randn(10, 4).double()
    y = net(x).argmax(1)
    result = all_layer_margin(net, x, y)
    assert (result > 0).all()
    assert (result < math.inf).all()
    assert (all_layer_margin(net, x, y, MarginSearch(restarts=6)) <= result + 1e-12).all()
    grouped = nn.Sequential(*layers_of(net))
    for row in range(10):
        many = x[row : row + 1].expand(4000, 4)
        noise = [torch.randn(4000, width).double() for width in (8, 8, 3)]
        size = sum(n.square().sum(1) for n in noise).sqrt()
        scaled = [n / size[:, None] * float(result[row]) * 0.999 for n in noise]
        assert (disturb(grouped, many, scaled).argmax(1) == y[row]).all()


def test_layers():
    """Standardize, Flatten, Linear | ReLU, Linear | ReLU, Linear: f_i ends with a module that has parameters."""
    net = mlp((2, 3), 4, hidden=5, depth=2)
    layers = layers_of(net)
    assert [len(list(layer.modules())) - 1 for layer in layers[:2]] == [3, 2]
    assert len(layers) == 3
    x = torch.randn(7, 2, 3)
    assert torch.allclose(nn.Sequential(*layers)(x), net(x))
    softened = nn.Sequential(nn.Linear(3, 2), nn.Softmax(1))
    assert len(layers_of(softened)) == 1
    assert torch.allclose(nn.Sequential(*layers_of(softened))(torch.ones(1, 3)), softened(torch.ones(1, 3)))
    # any grouping of one's own, and convolutions
    torch.manual_seed(0)
    pictures, conv = (
        torch.rand(4, 1, 6, 6),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)),
    )
    y = conv(pictures).argmax(1)
    assert (all_layer_margin(conv, pictures, y) > 0).all()
    margin = all_layer_margin([conv], pictures, y)
    scores = conv(pictures).detach().sort(1, descending=True).values
    assert torch.allclose(margin, (scores[:, 0] - scores[:, 1]) / (2**0.5 * pictures.flatten(1).norm(dim=1)), rtol=1e-3)
    with pytest.raises(InputError, match="sequence of layers"):
        layers_of(nn.Bilinear(2, 2, 2))
    with pytest.raises(InputError, match="no layer with parameters"):
        layers_of(nn.Sequential(nn.Flatten()))
    with pytest.raises(InputError, match="restarts and rivals >= 1"):
        MarginSearch(rivals=0)
    with pytest.raises(InputError, match="each example needs a class"):
        all_layer_margin(conv, pictures, y[:2])


def test_margin_over_views():
    """Paper, m_B(Phi, x): the smallest margin for the label at x over B(x); exact for one linear layer."""
    net = nn.Sequential(nn.Linear(3, 2)).double()
    torch.manual_seed(2)
    x = torch.randn(30, 3).double()
    label = net(x).argmax(1)

    def moved(batch, generator):
        return batch + 0.2

    result = view_margin(net, x, Neighborhood(moved, draws=1))
    for row in range(30):
        margins = []
        for point in (x[row], x[row] + 0.2):
            s = net(point).detach()
            gap = float(s[label[row]] - s[1 - label[row]])
            margins.append(max(0.0, gap / (math.sqrt(2) * float(point.norm()))))
        assert float(result[row]) == pytest.approx(min(margins), rel=1e-9, abs=1e-12)
    wider = view_margin(net, x, Neighborhood(moved, draws=1, radius=0.5))
    assert (wider <= result + 1e-9).all()
    assert (wider == 0).sum() > (result == 0).sum()


def test_curves():
    """Paper, rw-finite-bd and lw-finite-bd: E[1(m <= t)] with 1/n, or with the masses of P_w."""
    margins = torch.tensor([0.0, 0.1, 0.2, math.inf], dtype=torch.float64)
    assert margin_curve(margins, [0.0, 0.1, 0.15, 5.0]).tolist() == [0.25, 0.5, 0.5, 0.75]
    masses = torch.tensor([0.4, 0.3, 0.2, 0.1])
    assert margin_curve(margins, 0.1, masses).tolist() == pytest.approx([0.7])
    with pytest.raises(InputError, match="one mass"):
        margin_curve(margins, 0.1, masses[:2])
