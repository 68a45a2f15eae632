"""Networks: a table of builders, and any of the user's own as `package.module:name`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from csst.errors import InputError, nearest
from csst.models.mlp import Standardize, mlp
from csst.plugins import load


@dataclass(frozen=True)
class Model:
    """Which network.

    Args:
        name: mlp, linear, or package.module:name of a function (input_shape, classes) -> nn.Module.
        hidden: width of an mlp's hidden layers.
        depth: number of an mlp's hidden layers.
    """

    name: str = "mlp"
    hidden: int = 128
    depth: int = 2


Builder = Callable[[Model, tuple[int, ...], int], nn.Module]
MODELS: dict[str, Builder] = {
    "mlp": lambda model, shape, classes: mlp(shape, classes, model.hidden, model.depth),
    "linear": lambda model, shape, classes: mlp(shape, classes, depth=0),
}


def build(model: Model, input_shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """The network with weights drawn from the seed, whatever else uses torch's global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if ":" in model.name:
            made = load(model.name, "a model")(input_shape, classes)
            if not isinstance(made, nn.Module):
                raise InputError(f"{model.name} must return an nn.Module; found {type(made).__name__}")
            return made
        if model.name not in MODELS:
            raise InputError(
                f"unknown model {model.name!r}{nearest(model.name, MODELS) or '; models: ' + ', '.join(MODELS)}"
            )
        return MODELS[model.name](model, input_shape, classes)


__all__ = ["MODELS", "Model", "Standardize", "build", "mlp"]
