"""Any Hugging Face sequence classifier as a model of texts: DistilBERT, BERT, RoBERTa, DeBERTa, ModernBERT ...

    hf:FOLDER             a folder with config.json and a tokenizer; its weights if it has them, else random ones
    hf:OWNER/NAME         a model of the Hugging Face hub: from the local cache, else downloaded once

The head is replaced by one with the task's classes. Texts become rows of token numbers, padded with -1 to the longest
of their batch and no further.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.models.huggingface.loading import Source, load_pretrained
from csst.plugins import first_line

PADDING = -1


class Tokens:
    """Texts → token numbers (B, L), int64, padded with -1; longer texts are cut at `max_length` tokens.

    Tokens of texts met before are remembered, up to `remember` texts: weak views come again in every pass.
    """

    def __init__(self, tokenizer: Any, max_length: int, remember: int = 200_000) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.remember = remember
        self._memory: dict[str, Tensor] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Tokens:
        return self  # copies of a model share it

    def __call__(self, texts: Sequence[str]) -> Tensor:
        new_texts = list(dict.fromkeys(text for text in texts if text not in self._memory))
        if new_texts:
            rows = self.tokenizer(new_texts, truncation=True, max_length=self.max_length, padding=False)["input_ids"]
            tokens = {text: torch.tensor(ids, dtype=torch.int32) for text, ids in zip(new_texts, rows, strict=True)}
            if len(self._memory) + len(tokens) > self.remember:  # forget all texts but those of this batch
                self._memory = {text: self._memory[text] for text in texts if text in self._memory}
            self._memory.update(tokens)
        sequences = [self._memory[text].long() for text in texts]
        ids = nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=PADDING)
        return ids if ids.shape[1] else ids.new_full((len(ids), 1), PADDING)  # empty texts, and no special tokens


@runtime_checkable
class EncodesTexts(Protocol):
    """A model of texts: `encode` makes a list of texts the tensor that the model takes."""

    def encode(self, texts: Sequence[str], /) -> Tensor: ...


class HuggingFaceTexts(nn.Module):
    """Logits (B, classes) of token numbers (B, L) as `encode` gives them, by a classifier of `transformers`."""

    def __init__(self, network: nn.Module, tokens: Tokens, padding: int) -> None:
        super().__init__()
        self.network = network
        self.encode = tokens
        self.padding = padding

    def forward(self, ids: Tensor) -> Tensor:
        return self.network(**prepare_inputs(ids, self.padding)).logits


def prepare_inputs(ids: Tensor, padding: int) -> dict[str, Tensor]:
    """Return the arguments of a network: its own padding token where we have -1, and what to attend to."""
    mask = ids >= 0
    if not mask.any(1).all():  # a text without a single token: attend to one padding token, not to nothing
        mask = mask | ((torch.arange(ids.shape[1], device=ids.device) == 0) & ~mask.any(1, keepdim=True))
    return {"input_ids": ids.clamp(min=0).masked_fill(ids < 0, padding), "attention_mask": mask.long()}


def build_text_classifier(spec: str, classes: int, max_length: int) -> HuggingFaceTexts:
    """Return the classifier of "hf:FOLDER" or "hf:OWNER/NAME"; random weights come from torch's global generator."""
    if spec.startswith("hf-config:"):
        raise InputError(
            f"{spec} has no tokenizer, which texts need: save config and tokenizer in a folder and use hf:FOLDER"
        )
    network, tokenizer = load_pretrained(spec, lambda source: _load(source, classes), "a text classifier")
    padding = find_padding(tokenizer)
    network.config.pad_token_id = padding
    tokens = Tokens(tokenizer, check_max_length(network, tokenizer, max_length, spec))
    return try_out(HuggingFaceTexts(network, tokens, padding), spec)


def _load(source: Source, classes: int) -> tuple[Any, Any]:
    config = source.load_config(classes)
    auto = "AutoModelForSequenceClassification"
    if source.has_weights():
        network, _ = source.load_network(auto, config, new_head=True, optional="pooler")
    else:
        builder = getattr(source.transformers, auto)
        network = builder.from_config(config, dtype=torch.float32, trust_remote_code=False)
    return network, source.load_tokenizer()


def find_padding(tokenizer: Any) -> int:
    """Return the padding token; a tokenizer without one (GPT's) pads with the end of the text, never attended."""
    token = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return int(token or 0)


def check_max_length(network: Any, tokenizer: Any, max_length: int, spec: str) -> int:
    """Return the number of tokens; raise an error if the network has too few positions, or another vocabulary."""
    tokens = 1 + max(tokenizer.get_vocab().values())
    rows = network.get_input_embeddings().weight.shape[0]
    if tokens > rows:
        raise InputError(
            f"the tokenizer of {spec} has {tokens} tokens, but the network knows {rows}: save the two that belong "
            "together"
        )
    positions = getattr(network.config, "max_position_embeddings", None) or max_length
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            positions = module.num_embeddings - module.padding_idx - 1  # RoBERTa and its kin count from there
    if not max_length >= 2:
        raise InputError(f"max_length must be at least 2 tokens; found {max_length}")
    if max_length > positions:
        raise InputError(
            f"{spec} reads at most {positions} tokens of a text; max_length asks for {max_length}: lower it"
        )
    return max_length


def try_out(model: HuggingFaceTexts, spec: str) -> HuggingFaceTexts:
    """Run the model on two texts, so that a misfit is an error now and not in training."""
    try:
        with torch.no_grad():
            model.eval()(model.encode(["a text", ""]))
    except Exception as error:
        raise InputError(f"{spec} does not take the tokens of its own tokenizer: {first_line(error)}") from error
    return model.train()
