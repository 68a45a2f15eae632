"""The all-layer margin: how far all layers of a network must be disturbed before it changes its mind.

    Phi = f_p o ... o f_1,     h_i = f_i(h_{i-1}) + xi_i |h_{i-1}|,     h_0 = x
    m(Phi, x, y) = min |xi|  such that  argmax Phi(x, xi) != y
    m_B(Phi, x)  = min over x' in B(x) of m(Phi, x', argmax Phi(x))          (paper, appendix "All-Layer Margin")

Finding the minimum is a non-convex problem. What is returned is an upper bound of the margin: every value comes with a
disturbance that does change the prediction. For one linear layer it is exact, (Phi_y - max_j Phi_j) / (sqrt(2) |x|).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.theory.consistency import Neighborhood, as_floats, attack, evaluating

Layers = Sequence[nn.Module]
STRETCHES = (1.0, 1.001, 1.01, 1.1, 1.5, 3.0, 10.0)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers f_1 ... f_p of an `nn.Sequential`: each ends with a module that has parameters.

    So Standardize, Flatten, Linear, ReLU, Linear are two layers, f_1 = the first three and f_2 = W phi(h), as in the
    paper's appendix "All-Layer Margin". For another grouping, or another network, pass the list of layers yourself.

    Args:
        model: the network.

    Returns:
        Its layers, at least one.
    """
    if not isinstance(model, nn.Sequential):
        raise InputError(
            f"the all-layer margin needs a network that is a sequence of layers (nn.Sequential, or a list of them); "
            f"found {type(model).__name__}"
        )
    layers: list[nn.Module] = []
    open_ones: list[nn.Module] = []
    for module in model:
        open_ones.append(module)
        if any(True for _ in module.parameters()):
            layers.append(nn.Sequential(*open_ones))
            open_ones = []
    if not layers:
        raise InputError("the network has no layer with parameters")
    return [*layers[:-1], nn.Sequential(layers[-1], *open_ones)]


@dataclass(frozen=True)
class MarginSearch:
    """How hard a small disturbance is sought.

    Args:
        restarts: starting points of each search, the first at xi = 0.
        steps: of each.
        rivals: how many of the other classes are tried, the closest first.
        seed: of the starting points.
    """

    restarts: int = 3
    steps: int = 20
    rivals: int = 9
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.restarts, self.steps, self.rivals) < 1:
            raise InputError(f"a search needs restarts, steps and rivals >= 1; found {self}")


def all_layer_margin(model: nn.Module | Layers, x: Tensor, y: Tensor, search: MarginSearch | None = None) -> Tensor:
    """An upper bound of m(Phi, x, y); 0 where Phi is not y. Paper, appendix "All-Layer Margin".

    Args:
        model: Phi, a sequence of layers.
        x: n examples, (n, ...).
        y: their classes, (n,).
        search: how hard to look for a smaller one.

    Returns:
        One margin per example, (n,).
    """
    network = nn.Sequential(*(layers_of(model) if isinstance(model, nn.Module) else model))
    if len(x) != len(y):
        raise InputError(f"each example needs a class; found {len(x)} examples and {len(y)} classes")
    search = search or MarginSearch()
    generator = torch.Generator().manual_seed(search.seed)
    with evaluating(network):
        inputs = as_floats(x)
        scores = disturb(network, inputs, None).detach()
        order = scores.scatter(1, y[:, None], -float("inf")).argsort(1, descending=True)[:, :-1]
        best = torch.full((len(y),), float("inf"), dtype=scores.dtype)
        for rank in range(min(search.rivals, order.shape[1])):
            for restart in range(search.restarts):
                start = _start(network, inputs, best, generator) if restart else None
                best = torch.minimum(best, _search(network, inputs, y, order[:, rank], start, search.steps))
    return torch.where(scores.argmax(1) != y, torch.zeros_like(best), best)


def view_margin(
    model: nn.Module | Layers, x: Any, around: Neighborhood, search: MarginSearch | None = None, seed: int = 0
) -> Tensor:
    """An upper bound of m_B(Phi, x): the smallest margin over drawn views, and over attacked points within the radius.

    Paper, appendix "All-Layer Margin".

    Args:
        model: Phi, a sequence of layers; its own class at x is the label.
        x: n examples, (n, ...).
        around: B(x).
        search: how hard to look for a smaller one.
        seed: of the views.

    Returns:
        One margin per example, (n,).
    """
    network = nn.Sequential(*(layers_of(model) if isinstance(model, nn.Module) else model))
    generator = torch.Generator().manual_seed(seed)
    with evaluating(network):
        label = disturb(network, as_floats(x), None).argmax(1)
    smallest = all_layer_margin(list(network), as_floats(x), label, search)
    for _ in range(around.draws):
        points = [as_floats(around.views(x, generator))]
        if around.radius > 0:
            with evaluating(network):
                points.append(attack(network, points[0], label, around.radius, around.steps)[1])
        for point in points:
            smallest = torch.minimum(smallest, all_layer_margin(list(network), point, label, search))
    return smallest


def margin_curve(margins: Tensor, thresholds: Any, masses: Tensor | None = None) -> np.ndarray:
    """The fraction of examples with a margin of at most t, for every t: E[1(m <= t)].

    Paper, appendix "All-Layer Margin", Propositions 3 and 4.

    Args:
        margins: m of each example, (n,).
        thresholds: t, (T,).
        masses: of each example under P_w, (n,); None takes 1/n each.

    Returns:
        Fractions, (T,).
    """
    values, mass = _weighted(margins, masses)
    return np.array([mass[values <= t].sum() for t in np.atleast_1d(np.asarray(thresholds, float))])


def disturb(network: nn.Sequential, x: Tensor, noise: list[Tensor] | None) -> Tensor:
    """Phi(x, xi): the scores with every layer's output disturbed in proportion to the norm of its input."""
    h = x
    for at, layer in enumerate(network):
        out = layer(h)
        h = out if noise is None else out + noise[at] * _norm(h).view(-1, *(1,) * (out.ndim - 1))
    return h


def _search(
    network: nn.Sequential, x: Tensor, y: Tensor, rival: Tensor, start: list[Tensor] | None, steps: int
) -> Tensor:
    """The norm of a small disturbance after which the rival's score passes y's.

    g(xi) = Phi_y - Phi_rival; repeatedly the smallest xi at which the linearised g vanishes. A fixed point is a
    local minimum of |xi| on g = 0; then the crossing on the way from 0 to it is found by bisection.
    """
    noise = start or [torch.zeros_like(out) for out in _outputs(network, x)]
    best = torch.full((len(y),), float("inf"), dtype=noise[-1].dtype)
    for step in range(steps):
        with torch.enable_grad():
            leaves = [n.detach().requires_grad_() for n in noise]
            scores = disturb(network, x, leaves)
            ahead = (scores.gather(1, y[:, None]) - scores.gather(1, rival[:, None])).squeeze(1)
            slopes = torch.autograd.grad(ahead.sum(), leaves)
        steep = _size(slopes).square()
        along = torch.stack([(s * n).flatten(1).sum(1) for s, n in zip(slopes, noise, strict=True)]).sum(0)
        length = (along - ahead.detach()) / steep.clamp(min=1e-30)
        keep = 0.0 if step < steps // 2 else 0.5  # full steps first; later ones settle between two that alternate
        noise = [
            keep * n + (1 - keep) * s * length.view(-1, *(1,) * (s.ndim - 1))
            for n, s in zip(noise, slopes, strict=True)
        ]
        if step in (steps // 2, steps - 1):
            best = torch.minimum(best, _crossing(network, x, y, noise))
    return best


@torch.no_grad()
def _crossing(network: nn.Sequential, x: Tensor, y: Tensor, noise: list[Tensor], halvings: int = 40) -> Tensor:
    """The norm at which the prediction changes on the ray from 0 through this disturbance; infinite if nowhere."""

    def changes(scale: Tensor) -> Tensor:
        scaled = [n * scale.view(-1, *(1,) * (n.ndim - 1)) for n in noise]
        return disturb(network, x, scaled).argmax(1) != y

    size = _size(noise)
    high = torch.full_like(size, float("inf"))
    for stretch in reversed(STRETCHES):
        scale = torch.full_like(size, stretch)
        high = torch.where(changes(scale), scale, high)
    low, reached = torch.zeros_like(size), torch.isfinite(high)
    high = torch.where(reached, high, torch.ones_like(high))
    for _ in range(halvings):
        middle = (low + high) / 2
        crossed = changes(middle)
        low, high = torch.where(crossed, low, middle), torch.where(crossed, middle, high)
    return torch.where(reached, high * size, torch.full_like(size, float("inf")))


def _start(network: nn.Sequential, x: Tensor, best: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Random disturbances as large as the best one so far."""
    drawn = [torch.randn(out.shape, generator=generator).to(out) for out in _outputs(network, x)]
    size = _size(drawn)
    scale = torch.where(torch.isfinite(best), best, torch.ones_like(best)) / size
    return [n * scale.view(-1, *(1,) * (n.ndim - 1)) for n in drawn]


@torch.no_grad()
def _outputs(network: nn.Sequential, x: Tensor) -> list[Tensor]:
    outputs, h = [], x
    for layer in network:
        h = layer(h)
        outputs.append(h)
    return outputs


def _norm(values: Tensor) -> Tensor:
    # The norm has no gradient at 0; clamped there it is 0.
    return values.flatten(1).square().sum(1).clamp(min=1e-30).sqrt()


def _size(parts: Sequence[Tensor]) -> Tensor:
    """|xi|, over all layers."""
    return torch.stack([_norm(part).square() for part in parts]).sum(0).sqrt()


def _weighted(margins: Tensor, masses: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    values = margins.detach().double().numpy()
    mass = np.full(len(values), 1 / max(1, len(values))) if masses is None else masses.double().numpy()
    if len(mass) != len(values) or not len(values):
        raise InputError(f"each margin needs one mass, and there must be some; found {len(values)} and {len(mass)}")
    return values, mass
