"""Any Hugging Face image classifier as a model: ResNet-50, ViT, DINOv2, ConvNeXt ...

    hf:FOLDER             a folder with config.json; its weights if it has them, else random ones
    hf:OWNER/NAME         a model of the Hugging Face hub: from the local cache, else downloaded once
    hf-config:TYPE        random weights in the library's default architecture: hf-config:resnet is ResNet-50

The head is replaced by one with the task's classes; the rest of a pretrained network must fit completely. Code that
comes with a model is never run. `transformers` is an extra (pip install csst-learn[hf]), imported when first used.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from csst.errors import InputError, nearest
from csst.models.huggingface.loading import Source, load_pretrained, set_classes, silence
from csst.models.wide_resnet import Pixels
from csst.plugins import first_line, import_extra

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class HuggingFaceImages(nn.Module):
    """Logits (B, classes) of images (B, C, H, W), uint8 or float in 0...1, by an image classifier of `transformers`.

    Args:
        network: anything whose forward(pixel_values) returns an object with logits.
        channels: number of channels that the network takes; gray images are repeated for a network of three.
        options: further arguments of the network's forward.
    """

    def __init__(self, network: nn.Module, channels: int = 3, options: dict[str, Any] | None = None) -> None:
        super().__init__()
        if channels == 3:
            self.pixels = Pixels(IMAGENET_MEAN, IMAGENET_STD)
        else:
            self.pixels = Pixels((sum(IMAGENET_MEAN) / 3,) * channels, (0.226,) * channels)
        self.network = network
        self.channels = channels
        self.options = options or {}

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 4 and x.shape[1] == 1:
            x = x.expand(-1, self.channels, -1, -1)
        return self.network(pixel_values=self.pixels(x), **self.options).logits


def build_huggingface(spec: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the network of "hf:FOLDER", "hf:OWNER/NAME" or "hf-config:TYPE" for images (C, H, W) and these classes.

    Without weights the architecture's image size and channels are the task's. With weights they are the
    checkpoint's: position embeddings are interpolated to the task's images where the network can, and gray images are
    repeated. Random weights come from torch's global generator.
    """
    kind, _, name = spec.partition(":")
    if kind not in ("hf", "hf-config") or not name:
        raise InputError(f"a Hugging Face model is hf:FOLDER, hf:OWNER/NAME or hf-config:TYPE; found {spec!r}")
    if len(input_shape) != 3:
        raise InputError(f"{spec} takes images (channels, height, width); the task's inputs are {tuple(input_shape)}")
    if kind == "hf":
        network, is_pretrained = load_pretrained(
            spec, lambda source: _load(source, input_shape, classes), "an image classifier"
        )
    else:
        transformers = import_extra("transformers", spec)
        with silence(transformers):
            config = _make_default_config(transformers, name)
            network = _build_random(transformers, config, input_shape, classes)
            is_pretrained = False
    return _wrap(spec, network, input_shape, is_pretrained)


def _load(source: Source, input_shape: tuple[int, ...], classes: int) -> tuple[nn.Module, bool]:
    """Return the network, and whether it has trained weights."""
    config = source.load_config(classes)
    if not source.has_weights():
        return _build_random(source.transformers, config, input_shape, classes), False
    return source.load_network("AutoModelForImageClassification", config, new_head=True)[0], True


def _make_default_config(transformers: Any, kind: str) -> Any:
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    kinds = list(auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)
    if kind not in kinds:
        hint = nearest(kind, kinds) or f"; some are {', '.join(k for k in ('resnet', 'convnext', 'vit') if k in kinds)}"
        raise InputError(
            f"hf-config:{kind}: transformers {transformers.__version__} has no image classifier of that type{hint}"
        )
    return transformers.AutoConfig.for_model(kind)


def _build_random(transformers: Any, config: Any, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the architecture for the task's images, with random weights."""
    channels, height, width = input_shape
    set_classes(config, classes)
    if hasattr(config, "num_channels"):
        config.num_channels = channels
    if hasattr(config, "image_size"):
        config.image_size = height if height == width else (height, width)
    try:
        return transformers.AutoModelForImageClassification.from_config(
            config, dtype=torch.float32, trust_remote_code=False
        )
    except Exception as error:
        raise InputError(
            f"no image classifier for {channels}x{height}x{width} images can be built from the configuration of type "
            f"{config.model_type!r}: {first_line(error)}"
        ) from error


def _wrap(spec: str, network: nn.Module, input_shape: tuple[int, ...], is_pretrained: bool) -> nn.Module:
    """Return the network with its pixels, tried on two black images: a misfit is an error now and not in training."""
    config: Any = network.config
    channels, height, width = input_shape
    network_channels = getattr(config, "num_channels", channels if channels != 1 else 3)
    size = getattr(config, "image_size", None)
    sizes = tuple(size) if isinstance(size, list | tuple) else (size, size)
    is_resized = bool(size) and sizes != (height, width)
    interpolates = "interpolate_pos_encoding" in inspect.signature(network.forward).parameters
    options = {"interpolate_pos_encoding": True} if is_pretrained and is_resized and interpolates else {}
    model = HuggingFaceImages(network, network_channels, options).eval()
    try:
        with torch.no_grad():
            model(torch.zeros(2, *input_shape, dtype=torch.uint8))
    except Exception as error:
        hint = f": resize the images to {sizes[0]}x{sizes[1]}" if is_resized else ""
        raise InputError(
            f"{spec} does not take images of {channels}x{height}x{width} ({first_line(error)}){hint}"
        ) from error
    return model.train()
