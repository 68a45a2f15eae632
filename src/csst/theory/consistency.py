"""The weighted consistency regularizer, measured.

    R_{B,w}(F) = sum_ij w_ij P_i(F is not constant on B(x)),   B(x) = points within r of a view of x   (paper, Sec. 3.2)

"Exists x' in B(x)" cannot be decided by trying: only some views are drawn, and an attack may miss. What is measured is
therefore a lower bound of R_{B,w}, closer the more views are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.task import Examples, View
from csst.errors import InputError
from csst.models.huggingface.text import EncodesTexts
from csst.theory.errors import check_weights, weighted_rate

#: examples that go through a model at a time
BATCH = 1024


@dataclass(frozen=True)
class Consistency:
    """A measured lower bound of R_{B,w}.

    Args:
        value: the bound, between 0 and |w|_1.
        standard_error: of the examples' sampling; it knows nothing of the views that were not drawn.
        rates: the same of every class, R_{B,i}.
        draws: how many views of each example were drawn.
        radius: of the ball around each.
    """

    value: float
    standard_error: float
    rates: tuple[float, ...]
    draws: int
    radius: float


@dataclass(frozen=True)
class Neighborhood:
    """B(x): the points within a radius of a view of x, as far as they are looked at.

    Args:
        views: the augmentation, as a task has it.
        draws: how many views of each example are drawn.
        radius: of the l2 ball around each, in units of the model's input, where pixels of images count from 0 to 1.
        steps: of the attack within the ball (projected gradient ascent).
    """

    views: View
    draws: int = 8
    radius: float = 0.0
    steps: int = 20

    def __post_init__(self) -> None:
        if self.draws < 1 or not 0 <= self.radius < float("inf") or self.steps < 1:
            raise InputError(
                f"needed: draws >= 1, radius >= 0 and steps >= 1; found draws = {self.draws}, radius = {self.radius}, "
                f"steps = {self.steps}"
            )


def weighted_consistency_error(
    model: nn.Module, x: Examples, y: Tensor, weights: Any, around: Neighborhood, seed: int = 0
) -> Consistency:
    """A lower bound of R_{B,w}(F) = sum_ij w_ij P_i(F is not constant on B(x)). Paper, Sec. 3.2.

    Args:
        model: F.
        x: n examples.
        y: their classes, (n,).
        weights: w, (K, K), non-negative.
        around: B(x), from drawn views, each attacked if its radius is above 0.
        seed: of the views.

    Returns:
        The bound and its parts.
    """
    classes = len(check_weights(weights))
    generator, changed = torch.Generator().manual_seed(seed), []
    with evaluating(model):
        for part in torch.arange(len(y)).split(BATCH):
            original = x[part]
            label = predict(model, original)
            flipped = torch.zeros(len(part), dtype=torch.bool)
            for _ in range(around.draws):
                view = around.views(original, generator)
                flipped |= predict(model, view) != label
                if around.radius > 0:
                    point, target = as_floats(view).to(device_of(model)), label.to(device_of(model))
                    flipped |= attack(model, point, target, around.radius, around.steps)[0].cpu() != label
            changed.append(flipped)
    happens = torch.cat(changed)
    value, error = weighted_rate(happens, y, weights)
    rates = tuple(float(happens[y == i].double().mean()) for i in range(classes))
    return Consistency(value, error, rates, around.draws, around.radius)


def attack(
    model: nn.Module, x: Tensor, label: Tensor, radius: float, steps: int = 20, rivals: int = 3
) -> tuple[Tensor, Tensor]:
    """A class other than `label` met within the l2 ball around x, or `label` where none was; and the worst point met.

    Args:
        model: takes x.
        x: examples, (n, ...), floating point.
        label: the class that is attacked, (n,).
        radius: of the ball.
        steps: of the ascent.
        rivals: how many other classes are tried, those that come next at x.

    Projected gradient ascent on a rival's score less the label's own, along the normalized gradient. Exact for a linear
    classifier if all rivals are tried.
    """
    reached, worst = label.clone(), x.detach().clone()
    with torch.no_grad():
        scores = model(x)
    order = scores.scatter(1, label[:, None], -float("inf")).argsort(1, descending=True)
    most = torch.full((len(x),), -float("inf"), device=x.device, dtype=scores.dtype)
    for rank in range(min(rivals, scores.shape[1] - 1)):
        moved = x.detach().clone()
        for step in range(steps + 1):
            with torch.enable_grad():
                scores = model(moved.requires_grad_())
                ahead = scores.gather(1, order[:, rank, None]) - scores.gather(1, label[:, None])
                (slope,) = torch.autograd.grad(ahead.sum(), moved)
            met, moved, ahead = scores.detach().argmax(1), moved.detach(), ahead.detach().squeeze(1)
            reached = torch.where((reached == label) & (met != label), met, reached)
            worst = torch.where(_along(ahead > most, x), moved, worst)
            most = torch.maximum(most, ahead)
            if step < steps:
                # The first step reaches the sphere; the later ones slide along it, ever more finely.
                delta = moved + (radius if step == 0 else 2 * radius / (step + 1)) * unit(slope) - x
                size = delta.flatten(1).norm(dim=1).clamp(min=1e-30)
                moved = x + delta * _along(size.clamp(max=radius) / size, x)
    return reached, worst


def device_of(model: nn.Module) -> torch.device:
    """Where the model's parameters are."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def predict(model: nn.Module, inputs: Any) -> Tensor:
    """The classes of a batch, (n,): a tensor, or texts where the model has an `encode`."""
    with torch.no_grad():
        return model(encode(model, inputs)).argmax(1).cpu()


def encode(model: nn.Module, inputs: Any) -> Tensor:
    """A batch as the model takes it."""
    if isinstance(inputs, Tensor):
        return inputs.to(device_of(model))
    if not isinstance(model, EncodesTexts):
        raise InputError(f"the model takes tensors, and the examples are of type {type(inputs).__name__}")
    return model.encode(inputs).to(device_of(model))


def as_floats(inputs: Any) -> Tensor:
    """Inputs that can be moved a little: pixels 0 .. 255 become 0 .. 1; anything but numbers is refused."""
    if isinstance(inputs, Tensor) and inputs.is_floating_point():
        return inputs
    if isinstance(inputs, Tensor) and inputs.dtype == torch.uint8:
        return inputs.float() / 255
    kind = inputs.dtype if isinstance(inputs, Tensor) else type(inputs).__name__
    raise InputError(f"a ball of inputs needs inputs that are numbers; found {kind}: use radius = 0, views only")


def unit(slope: Tensor) -> Tensor:
    """Each example's gradient divided by its norm."""
    return slope * _along(1 / slope.flatten(1).norm(dim=1).clamp(min=1e-30), slope)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Evaluation mode inside, the mode before afterwards."""
    training = model.training
    try:
        yield model.eval()
    finally:
        model.train(training)


def _along(values: Tensor, like: Tensor) -> Tensor:
    return values.view(-1, *(1,) * (like.ndim - 1))
