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


@dataclass(frozen=True)
class Consistency:
    """value: a lower bound of R_{B,w}, between 0 and |w|_1; rates: the same of every class, R_{B,i}.

    standard_error: of the examples' sampling; it knows nothing of the views that were not drawn.
    """

    value: float
    standard_error: float
    rates: tuple[float, ...]
    draws: int
    radius: float


def weighted_consistency_error(
    model: nn.Module,
    x: Examples,
    y: Tensor,
    weights: Any,
    views: View,
    draws: int = 8,
    radius: float = 0.0,
    steps: int = 20,
    batch: int = 1024,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Consistency:
    """A lower bound of R_{B,w} from `draws` views of each example, each attacked within an l2 ball if radius > 0.

    x: examples with their classes y. views: the augmentation, as a task has it. radius: in units of the model's input,
    where pixels of images count from 0 to 1. steps: of the attack (projected gradient ascent).
    """
    if draws < 1 or not 0 <= radius < float("inf") or steps < 1:
        raise InputError(
            f"needed: draws >= 1, radius >= 0 and steps >= 1; found draws = {draws}, radius = {radius}, steps = {steps}"
        )
    classes = len(check_weights(weights))
    generator, changed = torch.Generator().manual_seed(seed), []
    with evaluating(model):
        for part in torch.arange(len(y)).split(batch):
            original = x[part]
            label = predicted(model, original, device)
            flipped = torch.zeros(len(part), dtype=torch.bool)
            for _ in range(draws):
                view = views(original, generator)
                flipped |= predicted(model, view, device) != label
                if radius > 0:
                    met, _ = attacked(model, floats(view).to(device), label.to(device), radius, steps)
                    flipped |= met.cpu() != label
            changed.append(flipped)
    happens = torch.cat(changed)
    value, error = weighted_rate(happens, y, weights)
    rates = tuple(float(happens[y == i].double().mean()) for i in range(classes))
    return Consistency(value, error, rates, draws, radius)


def attacked(
    model: nn.Module, x: Tensor, label: Tensor, radius: float, steps: int = 20, rivals: int = 3
) -> tuple[Tensor, Tensor]:
    """A class other than `label` met within the l2 ball around x, or `label` where none was; and the worst point met.

    Projected gradient ascent on a rival's score less the label's own, along the normalized gradient, for each of the
    `rivals` classes that come next at x. Exact for a linear classifier if all rivals are tried.
    """
    found, worst = label.clone(), x.detach().clone()
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
            found = torch.where((found == label) & (met != label), met, found)
            worst = torch.where(_along(ahead > most, x), moved, worst)
            most = torch.maximum(most, ahead)
            if step < steps:
                # The first step reaches the sphere; the later ones slide along it, ever more finely.
                delta = moved + (radius if step == 0 else 2 * radius / (step + 1)) * unit(slope) - x
                size = delta.flatten(1).norm(dim=1).clamp(min=1e-30)
                moved = x + delta * _along(size.clamp(max=radius) / size, x)
    return found, worst


def predicted(model: nn.Module, inputs: Any, device: torch.device | str) -> Tensor:
    """The classes of a batch: a tensor, or texts where the model has an `encode`."""
    with torch.no_grad():
        return model(encoded(model, inputs, device)).argmax(1).cpu()


def encoded(model: nn.Module, inputs: Any, device: torch.device | str) -> Tensor:
    """A batch as the model takes it."""
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    encode = model.encode if isinstance(model, EncodesTexts) else None
    if encode is None:
        raise InputError(f"the model takes tensors, and the examples are of type {type(inputs).__name__}")
    return encode(inputs).to(device)


def floats(inputs: Any) -> Tensor:
    """Inputs that can be moved a little: pixels 0 .. 255 become 0 .. 1; anything but numbers is refused."""
    if isinstance(inputs, Tensor) and inputs.is_floating_point():
        return inputs
    if isinstance(inputs, Tensor) and inputs.dtype == torch.uint8:
        return inputs.float() / 255
    found = inputs.dtype if isinstance(inputs, Tensor) else type(inputs).__name__
    raise InputError(f"a ball of inputs needs inputs that are numbers; found {found}: use radius = 0, views only")


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
