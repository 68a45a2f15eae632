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
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csst.errors import InputError, nearest
from csst.models.wide_resnet import Pixels

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "HuggingFaceImages", "build_huggingface"]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_CONNECT_SECONDS = 5


class HuggingFaceImages(nn.Module):
    """Logits (B, classes) of images (B, C, H, W), uint8 or float in 0...1, by an image classifier of `transformers`.

    Args:
        network: anything whose forward(pixel_values) returns an object with logits.
        channels: how many channels the network takes; gray images are repeated for a network of three.
        options: further arguments of the network's forward.
    """

    def __init__(self, network: nn.Module, channels: int = 3, options: dict[str, Any] | None = None) -> None:
        super().__init__()
        mean, std = IMAGENET_MEAN, IMAGENET_STD
        self.pixels = Pixels(mean, std) if channels == 3 else Pixels((sum(mean) / 3,) * channels, (0.226,) * channels)
        self.network, self.channels, self.options = network, channels, options or {}

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 4 and x.shape[1] == 1:
            x = x.expand(-1, self.channels, -1, -1)
        return self.network(pixel_values=self.pixels(x), **self.options).logits


def build_huggingface(spec: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of "hf:FOLDER", "hf:OWNER/NAME" or "hf-config:TYPE" for images (C, H, W) and so many classes.

    Without weights the architecture's image size and channels are the task's. With weights they are the
    checkpoint's: position embeddings are interpolated to the task's images where the network can, and gray images are
    repeated. Random weights come from torch's global generator.
    """
    kind, _, name = spec.partition(":")
    if kind not in ("hf", "hf-config") or not name:
        raise InputError(f"a Hugging Face model is hf:FOLDER, hf:OWNER/NAME or hf-config:TYPE; found {spec!r}")
    if len(input_shape) != 3:
        raise InputError(f"{spec} takes images (channels, height, width); the task's inputs are {tuple(input_shape)}")
    transformers = _transformers(spec)
    with _quiet(transformers):
        if kind == "hf-config":
            network, loaded = _random(transformers, _default_config(transformers, name), input_shape, classes), False
        elif Path(name).expanduser().is_dir():
            folder = str(Path(name).expanduser())
            network, loaded = _from_folder(transformers, folder, input_shape, classes)
        else:
            network, loaded = _from_hub(transformers, name, classes), True
    return _wrapped(spec, network, input_shape, loaded)


def _transformers(spec: str) -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise InputError(f"{spec} needs the package transformers ({error}): pip install csst-learn[hf]") from None


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no report of the head that is replaced on purpose."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _default_config(transformers: Any, kind: str) -> Any:
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    kinds = list(auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)
    if kind not in kinds:
        hint = nearest(kind, kinds) or f"; some are {', '.join(k for k in ('resnet', 'convnext', 'vit') if k in kinds)}"
        raise InputError(
            f"hf-config:{kind}: transformers {transformers.__version__} has no image classifier of that type{hint}"
        )
    return transformers.AutoConfig.for_model(kind)


def _for_classes(config: Any, classes: int) -> None:
    config.num_labels = classes
    config.architectures = config.architectures or []  # None breaks a type with two kinds of head, such as deit


def _random(transformers: Any, config: Any, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The architecture for the task's images, with random weights."""
    channels, height, width = input_shape
    _for_classes(config, classes)
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
            f"{config.model_type!r}: {_first_line(error)}"
        ) from error


def _from_folder(transformers: Any, folder: str, input_shape: tuple[int, ...], classes: int) -> tuple[nn.Module, bool]:
    if not (Path(folder) / "config.json").is_file():
        raise InputError(f"hf:{folder} has no config.json; save a model there with save_pretrained, or name another")
    try:
        if any((Path(folder) / name).is_file() for name in _WEIGHTS):
            return _pretrained(transformers, folder, classes, local_files_only=True), True
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"hf:{folder} cannot be loaded as an image classifier: {_first_line(error)}") from error
    return _random(transformers, config, input_shape, classes), False


def _from_hub(transformers: Any, name: str, classes: int) -> nn.Module:
    """From the cache if it is all there; else from the hub, which is first asked once whether it is there at all.

    (The hub's client repeats a failed connection for half a minute.)
    """
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1:
        raise InputError(f"hf:{name}: there is no such folder")
    try:
        return _pretrained(transformers, name, classes, local_files_only=True)
    except OSError:
        _connect(name)  # not in the cache
    except InputError:
        raise
    except Exception as error:
        raise _unusable(name, error) from error
    try:
        return _pretrained(transformers, name, classes, local_files_only=False)
    except InputError:
        raise
    except Exception as error:
        raise _unusable(name, error) from error


def _unusable(name: str, error: Exception) -> InputError:
    return InputError(
        f"hf:{name} is neither a folder nor an image classifier that the Hugging Face hub gives: {_first_line(error)}"
    )


def _connect(name: str) -> None:
    constants = importlib.import_module("huggingface_hub.constants")
    reason = "HF_HUB_OFFLINE is set"
    if not constants.HF_HUB_OFFLINE:
        try:
            urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=_CONNECT_SECONDS)
            return
        except urllib.error.HTTPError:
            return  # it answered
        except (OSError, ValueError) as error:
            reason = f"{constants.ENDPOINT} cannot be reached: {getattr(error, 'reason', error)}"
    raise InputError(
        f"hf:{name} is not a folder, not in the local cache, and the Hugging Face hub is out of reach ({reason}): "
        f"download the model to a folder and use hf:FOLDER"
    )


def _pretrained(transformers: Any, source: str, classes: int, local_files_only: bool) -> nn.Module:
    """The network with its weights; only the head may be new."""
    where = {"trust_remote_code": False, "local_files_only": local_files_only}
    config = transformers.AutoConfig.from_pretrained(source, **where)
    _for_classes(config, classes)
    network, info = transformers.AutoModelForImageClassification.from_pretrained(
        source, config=config, dtype=torch.float32, ignore_mismatched_sizes=True, output_loading_info=True, **where
    )
    body = f"{network.base_model_prefix}."
    absent = [*info["missing_keys"], *(key[0] for key in info["mismatched_keys"])]
    absent = sorted(key for key in absent if key.startswith(body))
    if absent:
        raise InputError(
            f"the weights of hf:{source} do not fit its config.json: {len(absent)} tensors of the network's body are "
            f"missing or of another shape, such as {absent[0]}"
        )
    return network


def _wrapped(spec: str, network: nn.Module, input_shape: tuple[int, ...], loaded: bool) -> nn.Module:
    """The network with its pixels, tried on two black images, so that a misfit is told now and not in training."""
    config: Any = network.config
    channels, height, width = input_shape
    wanted = getattr(config, "num_channels", channels if channels != 1 else 3)
    size = getattr(config, "image_size", None)
    sizes = tuple(size) if isinstance(size, list | tuple) else (size, size)
    resized = bool(size) and sizes != (height, width)
    interpolates = "interpolate_pos_encoding" in inspect.signature(network.forward).parameters
    options = {"interpolate_pos_encoding": True} if loaded and resized and interpolates else {}
    model = HuggingFaceImages(network, wanted, options).eval()
    try:
        with torch.no_grad():
            model(torch.zeros(2, *input_shape, dtype=torch.uint8))
    except Exception as error:
        hint = f": resize the images to {sizes[0]}x{sizes[1]}" if resized else ""
        raise InputError(
            f"{spec} does not take images of {channels}x{height}x{width} ({_first_line(error)}){hint}"
        ) from error
    return model.train()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
