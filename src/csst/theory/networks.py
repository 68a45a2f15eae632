"""A trained network as the theory uses it: its classes, its features, and the closest points that change its mind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.examples import Examples
from csst.data.task import View, identity_view
from csst.errors import InputError
from csst.models.huggingface.text import EncodesTexts

#: examples that go through a model at a time
BATCH = 1024
#: other classes that an attack tries, by descending score, and steps of its ascent for each
RIVALS = 3
STEPS = 20


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Switch a model to evaluation mode and back to its former mode."""
    training = model.training
    try:
        yield model.eval()
    finally:
        model.train(training)


def predict(model: nn.Module, inputs: Any) -> Tensor:
    """Return the classes of a batch, (B,): a tensor, or texts if the model has an `encode`."""
    with torch.no_grad():
        return model(encode(model, inputs)).argmax(1).cpu()


def encode(model: nn.Module, inputs: Any) -> Tensor:
    """Return a batch as a tensor on the model's device."""
    if isinstance(inputs, Tensor):
        return inputs.to(find_device(model))
    if not isinstance(model, EncodesTexts):
        raise InputError(f"the model takes tensors, and the examples are of type {type(inputs).__name__}")
    return model.encode(inputs).to(find_device(model))


def find_device(model: nn.Module) -> torch.device:
    """Return the device of a model's parameters; the CPU without parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def as_floats(inputs: Any) -> Tensor:
    """Return inputs as floating-point numbers, pixels 0 .. 255 as 0 .. 1; refuse anything but numbers."""
    if isinstance(inputs, Tensor) and inputs.is_floating_point():
        return inputs
    if isinstance(inputs, Tensor) and inputs.dtype == torch.uint8:
        return inputs.float() / 255
    kind = inputs.dtype if isinstance(inputs, Tensor) else type(inputs).__name__
    raise InputError(f"a ball of inputs needs inputs that are numbers; found {kind}: use radius = 0, views only")


@torch.no_grad()
def features(model: nn.Module, inputs: Any) -> Tensor:
    """Return the inputs of the last `nn.Linear` that the model calls, (B, d); the scores of a model without any."""
    linear_inputs: list[Tensor] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs: linear_inputs.append(inputs[0]))
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with evaluating(model):
            scores = model(encode(model, inputs))
    finally:
        for hook in hooks:
            hook.remove()
    embedding = linear_inputs[-1] if linear_inputs else scores
    # three dimensions are a sequence of tokens, whose mean stands for the text
    vectors = embedding.mean(1) if embedding.ndim == 3 else embedding.flatten(1)
    return vectors.float().cpu()


def features_of_views(
    model: nn.Module, x: Examples, views: View = identity_view, draws: int = 1, seed: int = 0
) -> Tensor:
    """Return the features of several views of every example, (n, draws, d)."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for indices in torch.arange(len(x)).split(BATCH):
        batch = x[indices]
        batches.append(torch.stack([features(model, views(batch, generator)) for _ in range(draws)], 1))
    return torch.cat(batches)


def attack(model: nn.Module, x: Tensor, labels: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Search the l2 ball around x for points of another class.

    Projected gradient ascent on a rival's score less the label's, along the normalized gradient. Exact for a linear
    classifier of at most RIVALS + 1 classes.

    Args:
        model: takes x.
        x: examples, (n, ...), floating point.
        labels: the class to leave, (n,).
        radius: the radius of the ball.

    Returns:
        Another class met in the ball, or the label if none was, (n,); the visited point at which a rival is furthest
        ahead of the label, (n, ...).
    """
    classes = labels.clone()
    worst_points = x.detach().clone()
    with torch.no_grad():
        scores = model(x)
    order = scores.scatter(1, labels[:, None], -float("inf")).argsort(1, descending=True)
    largest_lead = torch.full((len(x),), -float("inf"), device=x.device, dtype=scores.dtype)
    for rank in range(min(RIVALS, scores.shape[1] - 1)):
        points = x.detach().clone()
        for step in range(STEPS + 1):
            with torch.enable_grad():
                scores = model(points.requires_grad_())
                lead = scores.gather(1, order[:, rank, None]) - scores.gather(1, labels[:, None])
                (gradient,) = torch.autograd.grad(lead.sum(), points)
            points = points.detach()
            lead = lead.detach().squeeze(1)
            predictions = scores.detach().argmax(1)
            classes = torch.where((classes == labels) & (predictions != labels), predictions, classes)
            worst_points = torch.where(per_example(lead > largest_lead, x), points, worst_points)
            largest_lead = torch.maximum(largest_lead, lead)
            if step < STEPS:
                # The first step reaches the sphere; later ones slide along it, ever more finely.
                step_size = radius if step == 0 else 2 * radius / (step + 1)
                norm = gradient.flatten(1).norm(dim=1).clamp(min=1e-30)
                offset = points + step_size * (gradient * per_example(1 / norm, gradient)) - x
                length = offset.flatten(1).norm(dim=1).clamp(min=1e-30)
                points = x + offset * per_example(length.clamp(max=radius) / length, x)
    return classes, worst_points


def per_example(values: Tensor, examples: Tensor) -> Tensor:
    """Return one value per example, (n,), in a shape that broadcasts over `examples`, (n, ...)."""
    return values.view(-1, *(1,) * (examples.ndim - 1))
