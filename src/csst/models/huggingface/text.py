"""Any Hugging Face sequence classifier as a model of texts: DistilBERT, BERT, RoBERTa, DeBERTa, ModernBERT ...

    hf:FOLDER             a folder with config.json and a tokenizer; its weights if it has them, else random ones
    hf:OWNER/NAME         a model of the Hugging Face hub: from the local cache, else downloaded once

The head is replaced by one with the task's classes. Texts become rows of token numbers, padded with -1 to the longest
of their batch and no further.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.models.huggingface.hub import first_line, from_hub, quiet, transformers_library

PADDING = -1
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


class Tokens:
    """Texts → token numbers (B, L), int64, padded with -1; longer texts are cut at `max_length` tokens.

    Tokens of texts met before are remembered, up to `remember` texts: weak views come again in every pass.
    """

    def __init__(self, tokenizer: Any, max_length: int, remember: int = 200_000) -> None:
        self.tokenizer, self.max_length, self.remember = tokenizer, max_length, remember
        self._known: dict[str, Tensor] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Tokens:
        return self  # copies of a model share it

    def __call__(self, texts: Sequence[str]) -> Tensor:
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if new:
            found = self.tokenizer(new, truncation=True, max_length=self.max_length, padding=False)["input_ids"]
            fresh = {text: torch.tensor(ids, dtype=torch.int32) for text, ids in zip(new, found, strict=True)}
            if len(self._known) + len(fresh) > self.remember:
                kept = {text: self._known[text] for text in texts if text in self._known}
                self._known = {**kept, **fresh}
            else:
                self._known.update(fresh)
        rows = [self._known[text].long() for text in texts]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)
        return ids if ids.shape[1] else ids.new_full((len(rows), 1), PADDING)  # empty texts, and no special tokens


class HuggingFaceTexts(nn.Module):
    """Logits (B, classes) of token numbers (B, L) as `encode` gives them, by a classifier of `transformers`."""

    def __init__(self, network: nn.Module, tokens: Tokens, padding: int) -> None:
        super().__init__()
        self.network, self.encode, self.padding = network, tokens, padding

    def forward(self, ids: Tensor) -> Tensor:
        return self.network(**padded(ids, self.padding)).logits


def padded(ids: Tensor, padding: int) -> dict[str, Tensor]:
    """The arguments of a network: its own padding token where we have -1, and what to attend to."""
    mask = ids >= 0
    if not mask.any(1).all():  # a text without a single token: attend to one padding token, not to nothing
        mask = mask | ((torch.arange(ids.shape[1], device=ids.device) == 0) & ~mask.any(1, keepdim=True))
    return {"input_ids": ids.clamp(min=0).masked_fill(ids < 0, padding), "attention_mask": mask.long()}


def build_text_classifier(spec: str, classes: int, max_length: int) -> HuggingFaceTexts:
    """The classifier of "hf:FOLDER" or "hf:OWNER/NAME"; random weights come from torch's global generator."""
    transformers = transformers_library(spec)
    name = named(spec)

    def load(source: str, local: bool) -> tuple[nn.Module, Any]:
        return _classifier(transformers, source, classes, local), tokenizer_of(transformers, source, local)

    with quiet(transformers):
        network, tokenizer = loaded(name, load, "a text classifier")
    network.config.pad_token_id = padding_of(tokenizer)
    length = fitting(network, tokenizer, max_length, spec)
    model = HuggingFaceTexts(network, Tokens(tokenizer, length), padding_of(tokenizer))
    return tried(model, spec)


def named(spec: str) -> str:
    kind, _, name = spec.partition(":")
    if kind == "hf-config":
        raise InputError(
            f"{spec} has no tokenizer, which texts need: save config and tokenizer in a folder and use hf:FOLDER"
        )
    if kind != "hf" or not name:
        raise InputError(f"a Hugging Face model is hf:FOLDER or hf:OWNER/NAME; found {spec!r}")
    return name


def loaded(name: str, load: Any, what: str) -> Any:
    """load(source, local_files_only) from a folder or the hub; any failure is one sentence."""
    if not Path(name).expanduser().is_dir():
        return from_hub(name, lambda local: load(name, local), what)
    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        raise InputError(f"hf:{name} has no config.json; save a model there with save_pretrained, or name another")
    try:
        return load(str(folder), True)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"hf:{name} cannot be loaded as {what}: {first_line(error)}") from error


def tokenizer_of(transformers: Any, source: str, local: bool) -> Any:
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=local)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"hf:{source} has no tokenizer that can be loaded: {first_line(error)}") from error
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):  # what the library makes of a missing file
        raise InputError(f"hf:{source} has no tokenizer: save one beside the model with save_pretrained")
    return tokenizer


def padding_of(tokenizer: Any) -> int:
    """The padding token; a tokenizer that has none (GPT's) pads with the end of the text, which is never attended."""
    found = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return int(found or 0)


def fitting(network: Any, tokenizer: Any, max_length: int, spec: str) -> int:
    """The wanted number of tokens, checked against the positions that the network has; and the vocabulary, too."""
    tokens, known = 1 + max(tokenizer.get_vocab().values()), network.get_input_embeddings().weight.shape[0]
    if tokens > known:
        raise InputError(
            f"the tokenizer of {spec} has {tokens} tokens, but the network knows {known}: save the two that belong "
            "together"
        )
    room = getattr(network.config, "max_position_embeddings", None) or max_length
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            room = module.num_embeddings - module.padding_idx - 1  # RoBERTa and its kin count from there
    if not max_length >= 2:
        raise InputError(f"max_length must be at least 2 tokens; found {max_length}")
    if max_length > room:
        raise InputError(f"{spec} reads at most {room} tokens of a text; max_length asks for {max_length}: lower it")
    return max_length


def has_weights(source: str) -> bool:
    return not Path(source).is_dir() or any((Path(source) / name).is_file() for name in WEIGHTS)


def _classifier(transformers: Any, source: str, classes: int, local: bool) -> nn.Module:
    where = {"trust_remote_code": False, "local_files_only": local}
    config = transformers.AutoConfig.from_pretrained(source, **where)
    config.num_labels = classes
    auto = transformers.AutoModelForSequenceClassification
    if not has_weights(source):
        return auto.from_config(config, dtype=torch.float32, trust_remote_code=False)
    network, info = auto.from_pretrained(
        source, config=config, dtype=torch.float32, ignore_mismatched_sizes=True, output_loading_info=True, **where
    )
    require_body(info, source, f"{network.base_model_prefix}.")
    return network


def require_body(info: dict[str, Any], source: str, prefix: str = "") -> bool:
    """Only the head, and a pooling layer before it, may be new; whether that layer is."""
    absent = sorted({*info["missing_keys"], *(key[0] for key in info["mismatched_keys"])})
    body = [key for key in absent if key.startswith(prefix) and "pooler" not in key]
    if body:
        raise InputError(
            f"the weights of hf:{source} do not fit its config.json: {len(body)} tensors of the network's body are "
            f"missing or of another shape, such as {body[0]}"
        )
    return any("pooler" in key for key in absent)


def tried(model: HuggingFaceTexts, spec: str) -> HuggingFaceTexts:
    """Try it on two texts, so that a misfit is told now and not in training."""
    try:
        with torch.no_grad():
            model.eval()(model.encode(["a text", ""]))
    except Exception as error:
        raise InputError(f"{spec} does not take the tokens of its own tokenizer: {first_line(error)}") from error
    return model.train()
