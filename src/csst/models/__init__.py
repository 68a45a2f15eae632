"""Networks: a table of builders, and any of the user's own as `package.module:name`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from csst.errors import InputError, nearest
from csst.models.huggingface import build_huggingface
from csst.models.mlp import Standardize, mlp
from csst.models.wide_resnet import WideResNet, parse
from csst.plugins import load


@dataclass(frozen=True)
class Model:
    """Which network.

    Args:
        name: mlp, linear, wrn-DEPTH-WIDTH (wrn-28-2), hf:NAME_OR_FOLDER or hf-config:TYPE (a Hugging Face image
            classifier), or package.module:name of a function (input_shape, classes) -> nn.Module.
        hidden: width of an mlp's hidden layers.
        depth: number of an mlp's hidden layers.
        batchnorm_momentum: how fast BatchNorm's running statistics follow; 0 keeps the network's own (FixMatch's
            0.001 for a wrn, right for a million steps and too slow for a thousand).
    """

    name: str = "mlp"
    hidden: int = 128
    depth: int = 2
    batchnorm_momentum: float = 0.0


Builder = Callable[[Model, tuple[int, ...], int], nn.Module]


def _wide_resnet(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    if len(shape) != 3:
        raise InputError(f"{model.name} takes images (channels, height, width); this task's inputs have shape {shape}")
    return WideResNet(*parse(model.name), classes, channels=shape[0])


#: by the name's first part, up to a "-" or ":"
MODELS: dict[str, Builder] = {
    "mlp": lambda model, shape, classes: mlp(shape, classes, model.hidden, model.depth),
    "linear": lambda model, shape, classes: mlp(shape, classes, depth=0),
    "wrn": _wide_resnet,
    "hf": lambda model, shape, classes: build_huggingface(model.name, shape, classes),
}


def build(model: Model, input_shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """The network with weights drawn from the seed, whatever else uses torch's global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = _built(model, input_shape, classes)
    if model.batchnorm_momentum:
        for module in made.modules():
            if isinstance(module, _BatchNorm):
                module.momentum = model.batchnorm_momentum
    return made


def _built(model: Model, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    kind = model.name.split("-")[0].split(":")[0]
    if kind in MODELS:
        return MODELS[kind](model, input_shape, classes)
    if ":" in model.name:
        made = load(model.name, "a model")(input_shape, classes)
        if not isinstance(made, nn.Module):
            raise InputError(f"{model.name} must return an nn.Module; found {type(made).__name__}")
        return made
    names = ("mlp", "linear", "wrn-28-2", "hf:NAME")
    raise InputError(f"unknown model {model.name!r}{nearest(model.name, names) or '; models: ' + ', '.join(names)}")


__all__ = ["MODELS", "Model", "Standardize", "WideResNet", "build", "mlp"]
