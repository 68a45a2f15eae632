"""Frozen encoders: texts or images → vectors, by name.

    words                 hashed words and pairs of words; needs nothing, learns nothing, works offline
    hf:FOLDER, hf:NAME    a Hugging Face encoder: the mean of the last layer over a text's tokens, or an image's
                          pooled features
    package.module:name   a function of your own, from a list of texts or a uint8 tensor of images to rows of numbers

`fingerprint` names an encoder in the cache of embeddings: it changes when the weights, the
configuration, the tokenizer, the code or the length do.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.models.huggingface.hub import first_line, quiet, transformers_library
from csst.models.huggingface.images import IMAGENET_MEAN, IMAGENET_STD
from csst.models.huggingface.text import (
    WEIGHTS,
    Tokens,
    fitting,
    has_weights,
    loaded,
    named,
    padded,
    padding_of,
    require_body,
    tokenizer_of,
)
from csst.models.wide_resnet import Pixels
from csst.plugins import load

WORDS_WIDTH = 2048
PROBE = "A probe: the naïve café's Größe, 北京 and 🙂, isn't it?"
ELSEWHERE = ("transformers_version", "architectures", "dtype", "torch_dtype", "id2label", "label2id", "problem_type")


class Words:
    """log(1 + count) of words and pairs of words, hashed to 2048 signed features and scaled to length 1."""

    fingerprint = f"words-{WORDS_WIDTH}-1"

    def __init__(self) -> None:
        from sklearn.feature_extraction.text import HashingVectorizer

        self.hashing = HashingVectorizer(n_features=WORDS_WIDTH, ngram_range=(1, 2), norm=None)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        counts = self.hashing.transform(texts).toarray()
        damped = np.sign(counts) * np.log1p(np.abs(counts))
        return (damped / np.maximum(np.linalg.norm(damped, axis=1, keepdims=True), 1e-12)).astype(np.float32)


class TextEncoder:
    """The mean of the last layer over the tokens of a text."""

    def __init__(self, network: nn.Module, tokens: Tokens, padding: int, fingerprint: str) -> None:
        self.network, self.tokens, self.padding, self.fingerprint = network.eval(), tokens, padding, fingerprint

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Tensor:
        inputs = padded(self.tokens(texts).to(_device(self.network)), self.padding)
        hidden = self.network(**inputs).last_hidden_state
        mask = inputs["attention_mask"][:, :, None].to(hidden)
        return ((hidden * mask).sum(1) / mask.sum(1)).float()


class ImageEncoder:
    """The pooled features of an image classifier's body, of images (B, C, H, W) uint8."""

    def __init__(self, network: nn.Module, fingerprint: str) -> None:
        self.network, self.fingerprint = network.eval(), fingerprint
        self.pixels = Pixels(IMAGENET_MEAN, IMAGENET_STD).to(_device(network))
        size = getattr(network.config, "image_size", None)
        self.size = tuple(size) if isinstance(size, list | tuple) else (size, size) if size else None

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        x = self.pixels(images.to(_device(self.network)).expand(-1, 3, -1, -1))
        if self.size and tuple(x.shape[-2:]) != self.size:
            x = nn.functional.interpolate(x, self.size, mode="bilinear", antialias=True, align_corners=False)
        out = self.network(pixel_values=x)
        pooled = getattr(out, "pooler_output", None)
        if pooled is None:
            hidden = out.last_hidden_state  # tokens (B, L, D) or a feature map (B, D, H, W)
            pooled = hidden.mean(1) if hidden.ndim == 3 else hidden.mean((2, 3))
        return pooled.flatten(1).float()


class Function:
    """A function of the user's own; its name and its module's code stand for it in the cache."""

    def __init__(self, function: Callable[[Any], Any], fingerprint: str) -> None:
        self.function, self.fingerprint = function, fingerprint

    def __call__(self, batch: Any) -> Any:
        return self.function(batch)


def encoder(spec: str, kind: Literal["array", "image", "text"], max_length: int = 256) -> Any:
    """The encoder of a name, for tasks of texts or images."""
    if kind == "array":
        raise InputError(f"an encoder ({spec}) takes texts or images; this task's examples are feature vectors already")
    if spec == "words":
        if kind != "text":
            raise InputError("the encoder 'words' takes texts; for images name one as hf:FOLDER or package.module:name")
        return Words()
    if spec.startswith("hf:"):
        return _text_encoder(spec, max_length) if kind == "text" else _image_encoder(spec)
    if ":" in spec:
        function = load(spec, "an encoder")
        if not callable(function):
            raise InputError(f"{spec} must be a function of a batch; found {type(function).__name__}")
        code = _code(function)
        return Function(function, f"function-{_digest(spec, code)}" if code else "")
    raise InputError(f"unknown encoder {spec!r}: words, hf:NAME_OR_FOLDER, or package.module:name of a function")


def _text_encoder(spec: str, max_length: int) -> TextEncoder:
    transformers = transformers_library(spec)

    def make(source: str, local: bool) -> tuple[nn.Module, Any]:
        return _body(transformers, source, local), tokenizer_of(transformers, source, local)

    with quiet(transformers):
        network, tokenizer = loaded(named(spec), make, "a text encoder")
    network = network.to("cuda" if torch.cuda.is_available() else "cpu")
    tokens = Tokens(tokenizer, fitting(network, tokenizer, max_length, spec), remember=0)
    read = sorted(tokenizer.get_vocab().items()), tokens([PROBE]).tolist()  # and what it makes of capitals and accents
    mark = f"text-{_digest(_weights(network), _shape(network), read, max_length)}"
    return _tried(TextEncoder(network, tokens, padding_of(tokenizer), mark), ["a text", ""], spec)


def _image_encoder(spec: str) -> ImageEncoder:
    transformers = transformers_library(spec)
    with quiet(transformers):
        network = loaded(named(spec), lambda source, local: _body(transformers, source, local), "an image encoder")
    network = network.to("cuda" if torch.cuda.is_available() else "cpu")
    made = ImageEncoder(network, f"image-{_digest(_weights(network), _shape(network))}")
    return _tried(made, torch.zeros(2, 3, 64, 64, dtype=torch.uint8), spec)


def _body(transformers: Any, source: str, local: bool) -> nn.Module:
    where = {"trust_remote_code": False, "local_files_only": local}
    if not has_weights(source):
        raise InputError(f"hf:{source} has no weights, such as {WEIGHTS[0]}; a frozen encoder needs trained ones")
    network, info = transformers.AutoModel.from_pretrained(
        source, dtype=torch.float32, ignore_mismatched_sizes=True, output_loading_info=True, **where
    )
    if require_body(info, source):
        network.pooler = None  # the library made one up, and would make up another at the next load
    return network


def _tried(made: Any, batch: Any, spec: str) -> Any:
    try:
        vectors = made(batch)
    except Exception as error:
        raise InputError(f"{spec} cannot embed: {first_line(error)}") from error
    if vectors.ndim != 2 or not torch.isfinite(vectors).all():
        raise InputError(f"{spec} must give one finite vector per example; found shape {tuple(vectors.shape)}")
    return made


def _shape(network: Any) -> list[tuple[str, Any]]:
    """What the configuration says beside the weights, such as the activation; not where it came from."""
    told = network.config.to_diff_dict()
    return sorted((key, repr(value)) for key, value in told.items() if key not in ELSEWHERE and not key.startswith("_"))


def _weights(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in network.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _code(function: Callable[[Any], Any]) -> str:
    """The source code of the function's module; empty where there is none to be found."""
    try:
        file = inspect.getsourcefile(function)
        return Path(file).read_text(encoding="utf-8") if file else ""
    except (TypeError, OSError):
        return ""


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device
