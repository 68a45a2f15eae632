"""The all-layer margin: how far all layers of a network must be disturbed before it changes its mind.

    Phi = f_p o ... o f_1,     h_i = f_i(h_{i-1}) + xi_i |h_{i-1}|,     h_0 = x
    m(Phi, x, y) = min |xi|  such that  argmax Phi(x, xi) != y
    m_B(Phi, x)  = min over x' in B(x) of m(Phi, x', argmax Phi(x))          (paper, appendix "All-Layer Margin")

Finding the minimum is a non-convex problem. The functions return an upper bound of the margin: every value belongs to a
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
from csst.theory.networks import as_floats, attack, evaluating, per_example
from csst.theory.weighted_errors import Neighborhood

Layers = Sequence[nn.Module]
#: multiples of a disturbance at which a change of the prediction is looked for
STRETCHES = (1.0, 1.001, 1.01, 1.1, 1.5, 3.0, 10.0)
#: steps of the search from each starting point, and of the bisection that finds where the prediction changes
STEPS = 20
HALVINGS = 40


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Split an `nn.Sequential` into layers f_1 ... f_p, each ending with a module that has parameters.

    Standardize, Flatten, Linear, ReLU, Linear are two layers: f_1 = the first three and f_2 = W phi(h), as in the
    paper's appendix "All-Layer Margin". For another grouping, or another network, pass the list of layers yourself.

    Args:
        model: the network.

    Returns:
        The layers, at least one.
    """
    if not isinstance(model, nn.Sequential):
        raise InputError(
            f"the all-layer margin needs a network that is a sequence of layers (nn.Sequential, or a list of them); "
            f"found {type(model).__name__}"
        )
    layers: list[nn.Module] = []
    modules: list[nn.Module] = []
    for module in model:
        modules.append(module)
        if any(True for _ in module.parameters()):
            layers.append(nn.Sequential(*modules))
            modules = []
    if not layers:
        raise InputError("the network has no layer with parameters")
    return [*layers[:-1], nn.Sequential(layers[-1], *modules)]


@dataclass(frozen=True)
class MarginSearch:
    """Settings of the search for a small disturbance.

    Args:
        restarts: starting points of each search, the first at xi = 0.
        rivals: the number of other classes to try, by descending score.
    """

    restarts: int = 3
    rivals: int = 9

    def __post_init__(self) -> None:
        if min(self.restarts, self.rivals) < 1:
            raise InputError(f"a search needs restarts and rivals >= 1; found {self}")


def all_layer_margin(model: nn.Module | Layers, x: Tensor, y: Tensor, search: MarginSearch | None = None) -> Tensor:
    """Return an upper bound of m(Phi, x, y); 0 if Phi does not predict y. Paper, appendix "All-Layer Margin".

    Args:
        model: Phi, a sequence of layers.
        x: n examples, (n, ...).
        y: classes of the examples, (n,).
        search: how thoroughly to search for a smaller bound.

    Returns:
        One margin per example, (n,).
    """
    network = _as_layers(model)
    if len(x) != len(y):
        raise InputError(f"each example needs a class; found {len(x)} examples and {len(y)} classes")
    search = search or MarginSearch()
    generator = torch.Generator().manual_seed(0)
    with evaluating(network):
        inputs = as_floats(x)
        scores = disturb(network, inputs, None).detach()
        order = scores.scatter(1, y[:, None], -float("inf")).argsort(1, descending=True)[:, :-1]
        margins = torch.full((len(y),), float("inf"), dtype=scores.dtype)
        for rank in range(min(search.rivals, order.shape[1])):
            for restart in range(search.restarts):
                start = _start(network, inputs, margins, generator) if restart else None
                margins = torch.minimum(margins, _search(network, inputs, y, order[:, rank], start))
    return torch.where(scores.argmax(1) != y, torch.zeros_like(margins), margins)


def view_margin(
    model: nn.Module | Layers, x: Any, neighborhood: Neighborhood, search: MarginSearch | None = None
) -> Tensor:
    """Return an upper bound of m_B(Phi, x): the smallest margin over drawn views and attacked points of their balls.

    Paper, appendix "All-Layer Margin".

    Args:
        model: Phi, a sequence of layers; the label of x is its predicted class.
        x: n examples, (n, ...).
        neighborhood: B(x).
        search: how thoroughly to search for a smaller bound.

    Returns:
        One margin per example, (n,).
    """
    network = _as_layers(model)
    generator = torch.Generator().manual_seed(0)
    with evaluating(network):
        labels = disturb(network, as_floats(x), None).argmax(1)
    margins = all_layer_margin(list(network), as_floats(x), labels, search)
    for _ in range(neighborhood.draws):
        view = as_floats(neighborhood.views(x, generator))
        margins = torch.minimum(margins, all_layer_margin(list(network), view, labels, search))
        if neighborhood.radius > 0:
            with evaluating(network):
                _, points = attack(network, view, labels, neighborhood.radius)
            margins = torch.minimum(margins, all_layer_margin(list(network), points, labels, search))
    return margins


def margin_curve(margins: Tensor, thresholds: Any, masses: Tensor | None = None) -> np.ndarray:
    """Return the fraction of examples with a margin of at most t, for every t: E[1(m <= t)].

    Paper, appendix "All-Layer Margin", Propositions 3 and 4.

    Args:
        margins: m of each example, (n,).
        thresholds: t, (T,).
        masses: the mass of each example under P_w, (n,); None takes 1/n each.

    Returns:
        Fractions, (T,).
    """
    values = margins.detach().double().numpy()
    mass = np.full(len(values), 1 / max(1, len(values))) if masses is None else masses.double().numpy()
    if len(mass) != len(values) or not len(values):
        raise InputError(f"each margin needs one mass, and there must be some; found {len(values)} and {len(mass)}")
    return np.array([mass[values <= t].sum() for t in np.atleast_1d(np.asarray(thresholds, float))])


def disturb(network: nn.Sequential, x: Tensor, noise: list[Tensor] | None) -> Tensor:
    """Return the scores Phi(x, xi), every layer's output disturbed in proportion to the norm of its input."""
    h = x
    for i, layer in enumerate(network):
        output = layer(h)
        if noise is not None:
            output = output + noise[i] * per_example(_compute_norm(h), output)
        h = output
    return h


def _as_layers(model: nn.Module | Layers) -> nn.Sequential:
    """Return the layers f_1 ... f_p as one network."""
    return nn.Sequential(*(layers_of(model) if isinstance(model, nn.Module) else model))


def _search(network: nn.Sequential, x: Tensor, y: Tensor, rival: Tensor, start: list[Tensor] | None) -> Tensor:
    """Return the norm of a small disturbance that lifts the rival's score above that of y, (n,).

    Each step moves to the smallest xi at which the linearized g(xi) = Phi_y - Phi_rival vanishes. A fixed point is a
    local minimum of |xi| on g = 0; then bisection finds the crossing on the way from 0 to it.
    """
    noise = start or [torch.zeros_like(output) for output in _compute_outputs(network, x)]
    margins = torch.full((len(y),), float("inf"), dtype=noise[-1].dtype)
    for step in range(STEPS):
        with torch.enable_grad():
            leaves = [xi.detach().requires_grad_() for xi in noise]
            scores = disturb(network, x, leaves)
            g = (scores.gather(1, y[:, None]) - scores.gather(1, rival[:, None])).squeeze(1)
            gradients = torch.autograd.grad(g.sum(), leaves)
        projections = [(s * xi).flatten(1).sum(1) for s, xi in zip(gradients, noise, strict=True)]
        length = (torch.stack(projections).sum(0) - g.detach()) / _measure_size(gradients).square().clamp(min=1e-30)
        inertia = 0.0 if step < STEPS // 2 else 0.5  # full steps first; later ones settle between two that alternate
        noise = [
            inertia * xi + (1 - inertia) * s * per_example(length, s) for xi, s in zip(noise, gradients, strict=True)
        ]
        if step in (STEPS // 2, STEPS - 1):
            margins = torch.minimum(margins, _find_crossing(network, x, y, noise))
    return margins


@torch.no_grad()
def _find_crossing(network: nn.Sequential, x: Tensor, y: Tensor, noise: list[Tensor]) -> Tensor:
    """Return the norm at which the prediction changes on the ray from 0 through `noise`, (n,); infinite if nowhere."""

    def changes(scale: Tensor) -> Tensor:
        return disturb(network, x, _scale(noise, scale)).argmax(1) != y

    size = _measure_size(noise)
    high = torch.full_like(size, float("inf"))
    for stretch in reversed(STRETCHES):
        scale = torch.full_like(size, stretch)
        high = torch.where(changes(scale), scale, high)
    has_crossing = torch.isfinite(high)
    low = torch.zeros_like(size)
    high = torch.where(has_crossing, high, torch.ones_like(high))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_beyond = changes(middle)
        low = torch.where(is_beyond, low, middle)
        high = torch.where(is_beyond, middle, high)
    return torch.where(has_crossing, high * size, torch.full_like(size, float("inf")))


def _start(network: nn.Sequential, x: Tensor, margins: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Draw random disturbances as large as the margins so far."""
    noise = [torch.randn(output.shape, generator=generator).to(output) for output in _compute_outputs(network, x)]
    norms = torch.where(torch.isfinite(margins), margins, torch.ones_like(margins))
    return _scale(noise, norms / _measure_size(noise))


def _scale(noise: list[Tensor], scale: Tensor) -> list[Tensor]:
    """Multiply the disturbance of every example by one number, (n,)."""
    return [xi * per_example(scale, xi) for xi in noise]


@torch.no_grad()
def _compute_outputs(network: nn.Sequential, x: Tensor) -> list[Tensor]:
    outputs = []
    for layer in network:
        x = layer(x)
        outputs.append(x)
    return outputs


def _compute_norm(values: Tensor) -> Tensor:
    # The norm has no gradient at 0; clamping makes it 0 there.
    return values.flatten(1).square().sum(1).clamp(min=1e-30).sqrt()


def _measure_size(parts: Sequence[Tensor]) -> Tensor:
    """Return |xi| over all layers, (n,)."""
    return torch.stack([_compute_norm(part).square() for part in parts]).sum(0).sqrt()
