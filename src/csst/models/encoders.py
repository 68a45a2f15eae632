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
from csst.models.huggingface.images import IMAGENET_MEAN, IMAGENET_STD
from csst.models.huggingface.loading import WEIGHTS, Source, load_pretrained
from csst.models.huggingface.text import Tokens, check_max_length, find_padding, prepare_inputs
from csst.models.wide_resnet import Pixels
from csst.plugins import first_line, load

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
        vectors = np.sign(counts) * np.log1p(np.abs(counts))
        return (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)).astype(np.float32)


class TextEncoder:
    """The mean of the last layer over the tokens of a text."""

    def __init__(self, network: nn.Module, tokens: Tokens, padding: int, fingerprint: str) -> None:
        self.network = network.eval()
        self.tokens = tokens
        self.padding = padding
        self.fingerprint = fingerprint

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Tensor:
        inputs = prepare_inputs(self.tokens(texts).to(_find_device(self.network)), self.padding)
        vectors = self.network(**inputs).last_hidden_state
        mask = inputs["attention_mask"][:, :, None].to(vectors)
        return ((vectors * mask).sum(1) / mask.sum(1)).float()


class ImageEncoder:
    """The pooled features of an image classifier's body, of images (B, C, H, W) uint8."""

    def __init__(self, network: nn.Module, fingerprint: str) -> None:
        self.network = network.eval()
        self.fingerprint = fingerprint
        self.pixels = Pixels(IMAGENET_MEAN, IMAGENET_STD).to(_find_device(network))
        size = getattr(network.config, "image_size", None)
        self.size = tuple(size) if isinstance(size, list | tuple) else (size, size) if size else None

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        x = self.pixels(images.to(_find_device(self.network)).expand(-1, 3, -1, -1))
        if self.size and tuple(x.shape[-2:]) != self.size:
            x = nn.functional.interpolate(x, self.size, mode="bilinear", antialias=True, align_corners=False)
        outputs = self.network(pixel_values=x)
        vectors = getattr(outputs, "pooler_output", None)
        if vectors is None:
            features = outputs.last_hidden_state  # tokens (B, L, D) or a feature map (B, D, H, W)
            vectors = features.mean(1) if features.ndim == 3 else features.mean((2, 3))
        return vectors.flatten(1).float()


class Function:
    """A function of the user's own; its name and its module's code stand for it in the cache."""

    def __init__(self, function: Callable[[Any], Any], fingerprint: str) -> None:
        self.function = function
        self.fingerprint = fingerprint

    def __call__(self, batch: Any) -> Any:
        return self.function(batch)


def encoder(spec: str, kind: Literal["array", "image", "text"], max_length: int = 256) -> Any:
    """Return the encoder of a name, for tasks of texts or images."""
    if kind == "array":
        raise InputError(f"an encoder ({spec}) takes texts or images; this task's examples are feature vectors already")
    if spec == "words":
        if kind != "text":
            raise InputError("the encoder 'words' takes texts; for images name one as hf:FOLDER or package.module:name")
        return Words()
    if spec.startswith("hf:"):
        return _load_text_encoder(spec, max_length) if kind == "text" else _load_image_encoder(spec)
    if ":" in spec:
        function = load(spec, "an encoder")
        if not callable(function):
            raise InputError(f"{spec} must be a function of a batch; found {type(function).__name__}")
        code = _read_code(function)
        return Function(function, f"function-{_hash_parts(spec, code)}" if code else "")
    raise InputError(f"unknown encoder {spec!r}: words, hf:NAME_OR_FOLDER, or package.module:name of a function")


def _load_text_encoder(spec: str, max_length: int) -> TextEncoder:
    network, tokenizer = load_pretrained(
        spec, lambda source: (_load_body(source), source.load_tokenizer()), "a text encoder"
    )
    tokens = Tokens(tokenizer, check_max_length(network, tokenizer, max_length, spec), remember=0)
    # Two tokenizers of one vocabulary may still treat capitals and accents differently.
    vocabulary = sorted(tokenizer.get_vocab().items()), tokens([PROBE]).tolist()
    mark = f"text-{_hash_parts(_hash_weights(network), _describe_config(network), vocabulary, max_length)}"
    return _try_out(TextEncoder(network, tokens, find_padding(tokenizer), mark), ["a text", ""], spec)


def _load_image_encoder(spec: str) -> ImageEncoder:
    network = load_pretrained(spec, _load_body, "an image encoder")
    encoder = ImageEncoder(network, f"image-{_hash_parts(_hash_weights(network), _describe_config(network))}")
    return _try_out(encoder, torch.zeros(2, 3, 64, 64, dtype=torch.uint8), spec)


def _load_body(source: Source) -> Any:
    if not source.has_weights():
        raise InputError(f"hf:{source.location} has no weights, such as {WEIGHTS[0]}; a frozen encoder needs them")
    network: Any
    network, new_tensors = source.load_network("AutoModel", optional="pooler")
    if new_tensors:
        network.pooler = None  # the library made one up, and would make up another at the next load
    return network.to("cuda" if torch.cuda.is_available() else "cpu")


def _try_out(encoder: Any, batch: Any, spec: str) -> Any:
    """Embed a small batch, so that a misfit is an error now and not in the middle of a data set."""
    try:
        vectors = encoder(batch)
    except Exception as error:
        raise InputError(f"{spec} cannot embed: {first_line(error)}") from error
    if vectors.ndim != 2 or not torch.isfinite(vectors).all():
        raise InputError(f"{spec} must give one finite vector per example; found shape {tuple(vectors.shape)}")
    return encoder


def _describe_config(network: Any) -> list[tuple[str, Any]]:
    """Return what the configuration says beside the weights, such as the activation, but not where it came from."""
    config = network.config.to_diff_dict()
    return sorted(
        (key, repr(value)) for key, value in config.items() if key not in ELSEWHERE and not key.startswith("_")
    )


def _hash_weights(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in network.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read_code(function: Callable[[Any], Any]) -> str:
    """Return the source code of the function's module; "" if there is none."""
    try:
        file = inspect.getsourcefile(function)
        return Path(file).read_text(encoding="utf-8") if file else ""
    except (TypeError, OSError):
        return ""


def _hash_parts(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _find_device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device
