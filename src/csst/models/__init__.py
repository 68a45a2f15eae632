"""Networks: a table of builders, and any of the user's own as `package.module:name`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from csst.errors import InputError, nearest
from csst.models.huggingface.images import build_huggingface
from csst.models.huggingface.text import EncodesTexts, build_text_classifier
from csst.models.table import Projected, Standardize, make_table_network, mlp
from csst.models.wide_resnet import WideResNet, parse
from csst.plugins import load
from csst.settings import Model

#: pixels that a network of images sees on the shorter side, at least, of images that are larger
SMALLEST_SIDE = 14

Builder = Callable[[Model, tuple[int, ...], int], nn.Module]


def _build_wide_resnet(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    if len(shape) != 3:
        raise InputError(f"{model.name} takes images (channels, height, width); this task's inputs have shape {shape}")
    reduce = max(1, min(shape[1:]) // SMALLEST_SIDE) if model.reduce is None else model.reduce
    return WideResNet(*parse(model.name), classes, channels=shape[0], reduce=reduce)


def _build_hugging_face(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    if not shape:
        return build_text_classifier(model.name, classes, model.max_length)
    return build_huggingface(model.name, shape, classes)


def _build_of_vectors(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    if not shape:
        raise InputError(
            f"{model.name} takes numbers, and this task's examples are texts: name an encoder that turns them into "
            "numbers (--encoder words --frozen, or --encoder hf:NAME --frozen), or fine-tune one (--encoder hf:NAME "
            "--no_frozen)"
        )
    return mlp(shape, classes, model.hidden, model.layers)


#: by the name's first part, up to a "-" or ":"
MODELS: dict[str, Builder] = {
    "mlp": _build_of_vectors,
    "linear": _build_of_vectors,
    "wrn": _build_wide_resnet,
    "hf": _build_hugging_face,
}


def build(model: Model, input_shape: tuple[int, ...], classes: int, seed: int, sizes: Sequence[int] = ()) -> nn.Module:
    """Return the network with weights drawn from the seed, whatever else uses torch's global generator.

    Args:
        model: settings of the network.
        input_shape: shape of an example; () for texts.
        classes: number of outputs.
        seed: seed of the weights.
        sizes: number of categories of each column of a table, 0 for numbers; () if there are no categories.
    """
    if any(sizes) and model.name in ("mlp", "linear"):
        moments = np.zeros(len(sizes)), np.ones(len(sizes))
        return make_table_network(list(sizes), moments, model.hidden, model.layers, classes, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _build(model, input_shape, classes)
    if model.batchnorm_momentum:
        for module in network.modules():
            if isinstance(module, _BatchNorm):
                module.momentum = model.batchnorm_momentum
    return network


def _build(model: Model, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    kind = model.name.split("-")[0].split(":")[0]
    if kind in MODELS:
        return MODELS[kind](model, input_shape, classes)
    if ":" in model.name:
        network = load(model.name, "a model")(input_shape, classes)
        if not isinstance(network, nn.Module):
            raise InputError(f"{model.name} must return an nn.Module; found {type(network).__name__}")
        if not input_shape and not isinstance(network, EncodesTexts):
            raise InputError(f"{model.name} must have an `encode`, a function from a list of texts to a tensor")
        return network
    names = ("mlp", "linear", "wrn-28-2", "hf:NAME")
    raise InputError(f"unknown model {model.name!r}{nearest(model.name, names) or '; models: ' + ', '.join(names)}")


__all__ = ["MODELS", "Model", "Projected", "Standardize", "WideResNet", "build", "mlp"]
