"""Back-translation: texts into another language and back, by any two sequence-to-sequence models of Hugging Face.

    hf:A,hf:B    A translates from the texts' language, B back; each is a folder or a model of the hub, such as
                 hf:Helsinki-NLP/opus-mt-en-fr,hf:Helsinki-NLP/opus-mt-fr-en (MarianMT, as in the paper)

A text is cut after its sentences and at line breaks; the pieces are translated one by one and put together again with
what was between them. Pieces without a letter or digit stay. A piece with more tokens than a model takes is cut in
halves, at white space if there is any, until its parts fit. Texts beyond a number of characters lose their end.

Words are sampled, with random numbers that depend on the seed, the content of the text, the number of the copy and the
place in the text, and on nothing else. So the same batches on the same machine give the same translations. In other
batches padding changes the last bits of the network's sums, and a draw that falls right between two words may go to the
other one: rare, and never in batches of one piece.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csst.errors import InputError
from csst.models.huggingface.decoding import Draw, Sampling
from csst.models.huggingface.hub import first_line, from_hub, quiet, transformers_library

__all__ = ["RoundTrip", "Sampling", "Translator", "cut", "load_translator", "specs_of"]

_LONGEST = 512  # tokens, where neither model nor tokenizer says less
_WHAT = "a translation model (sequence to sequence)"
_TOLD_LANGUAGES = ("m2m_100", "mbart", "nllb-moe", "plbart", "seamless_m4t", "seamless_m4t_v2")
_BOUNDARY = re.compile(
    r"((?<=[.!?…])\s+|(?<=[.!?…][\"'”’»)\]])\s+|(?:\n|<br\s*/?>)(?:\s|<br\s*/?>)*|(?<=[。！？])\s*)", re.IGNORECASE
)
Stream = tuple[int, ...]  # names a series of random numbers


class Translator:
    """One direction: a sequence-to-sequence model with its tokenizer. A translation has at most twice as many tokens
    as its source, and 16."""

    def __init__(self, spec: str, model: Any, tokenizer: Any, device: torch.device | str = "cpu") -> None:
        self.spec, self.tokenizer, self.device = spec, tokenizer, torch.device(device)
        self.model = model.to(self.device).eval()
        end = model.generation_config.eos_token_id
        self.end = int(end[0] if isinstance(end, list) else end)
        told = (getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length)
        self.longest = min(_LONGEST, *(int(n) for n in told if n))

    def translate(self, pieces: Sequence[str], streams: Sequence[Stream], sampling: Sampling, batch: int) -> list[str]:
        """The translation of each piece, drawn by its stream; `batch` parts of about the same length at a time."""
        owner: list[int] = []
        parts: list[list[int]] = []
        named: list[Stream] = []
        for i, piece in enumerate(pieces):
            for n, tokens in enumerate(self._fitting(piece)):
                owner.append(i)
                parts.append(tokens)
                named.append((*streams[i], n))
        order = sorted(range(len(parts)), key=lambda j: -len(parts[j]))
        done = [""] * len(parts)
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            drawn = self._generated([parts[j] for j in rows], [named[j] for j in rows], sampling)
            for j, text in zip(rows, drawn, strict=True):
                done[j] = text.strip()
        out: list[list[str]] = [[] for _ in pieces]
        for i, text in zip(owner, done, strict=True):
            out[i] += [text] if text else []
        return [" ".join(texts) for texts in out]

    def _fitting(self, piece: str) -> Iterator[list[int]]:
        """The tokens of a piece, in halves of halves where they are more than the model takes."""
        left = [piece]
        while left:
            text = left.pop()
            tokens = self.tokenizer(text, verbose=False)["input_ids"]
            if len(tokens) <= self.longest or len(text) < 2:
                yield tokens[: self.longest]
                continue
            middle = len(text) // 2
            space = max(text.rfind(" ", 1, middle), 0) or text.find(" ", middle, len(text) - 1)
            at = space if space > 0 else middle
            left += [text[at:].strip(), text[:at].strip()]

    def _generated(self, parts: list[list[int]], streams: list[Stream], sampling: Sampling) -> list[str]:
        limits = [min(2 * len(tokens) + 16, self.longest - 1) for tokens in parts]
        uniform = np.stack([np.random.default_rng(stream).random(max(limits)) for stream in streams])
        wide = torch.float32 if self.device.type == "mps" else torch.float64  # mps has no other
        draw = Draw(
            torch.from_numpy(uniform).to(self.device, wide),
            torch.tensor(limits, device=self.device),
            self.end,
            sampling,
        )
        inputs = self.tokenizer.pad({"input_ids": parts}, return_tensors="pt", verbose=False)
        with torch.inference_mode(), quiet(transformers_library(self.spec)):
            rows = self.model.generate(
                input_ids=inputs["input_ids"].to(self.device),
                attention_mask=inputs["attention_mask"].to(self.device),
                do_sample=False,  # Draw leaves one word to choose
                num_beams=1,
                max_new_tokens=max(limits),
                logits_processor=[draw],
            )
        return self.tokenizer.batch_decode(rows, skip_special_tokens=True)


@dataclass(frozen=True)
class RoundTrip:
    """Texts to another language and back.

    Args:
        there: translates the texts.
        back: translates those translations back.
        sampling: how words are drawn, both ways.
        batch: pieces of text translated at a time.
        max_characters: a longer text is translated up to the last of its sentences that ends within so many
            characters; a first sentence that is longer is cut at white space. 0 translates all.
    """

    there: Translator
    back: Translator
    sampling: Sampling
    batch: int = 16
    max_characters: int = 3000

    def __post_init__(self) -> None:
        if self.batch < 1 or self.max_characters < 0:
            raise InputError(
                f"batch must be at least 1 and max_characters at least 0; found {self.batch} and {self.max_characters}"
            )

    def translate(self, texts: Sequence[str], copies: Sequence[int]) -> list[str]:
        """A back-translation of each text; `copies` numbers those of one text. Empty where the models say nothing."""
        pieces = [cut(text, self.max_characters) for text in texts]
        where = [(i, n) for i, found in enumerate(pieces) for n, (piece, _) in enumerate(found) if _has_words(piece)]
        content = [
            int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), "big") for text in texts
        ]
        moved = [pieces[i][n][0] for i, n in where]
        for hop, translator in enumerate((self.there, self.back)):
            streams = [(self.sampling.seed, content[i], copies[i], n, hop) for i, n in where]
            moved = translator.translate(moved, streams, self.sampling, self.batch)
        new = dict(zip(where, moved, strict=True))
        return [
            "".join(new.get((i, n), piece) + between for n, (piece, between) in enumerate(found)).strip()
            for i, found in enumerate(pieces)
        ]


def cut(text: str, max_characters: int = 0) -> list[tuple[str, str]]:
    """The sentences and lines of a text, each with what follows it: white space and <br /> tags.

    White space and tags before the first are left out.
    """
    pieces: list[tuple[str, str]] = []
    split = [*_BOUNDARY.split(text), ""]
    for piece, between in zip(split[::2], split[1::2], strict=True):
        inner = piece.strip()
        if inner:
            pieces.append((inner, piece[len(piece.rstrip()) :] + between))
        elif pieces:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + piece + between)
    if not max_characters or len(text) <= max_characters:
        return pieces
    kept: list[tuple[str, str]] = []
    used = 0
    for piece, between in pieces:
        if used + len(piece) > max_characters:
            break
        kept.append((piece, between))
        used += len(piece) + len(between)
    if pieces and not kept:
        start = pieces[0][0][:max_characters]
        space = start.rfind(" ")
        kept = [(start[:space].strip() if space > 0 else start, "")]
    return kept


def _has_words(piece: str) -> bool:
    return any(character.isalnum() for character in piece)


def specs_of(via: str) -> tuple[str, str]:
    """The two models of "hf:A,hf:B"."""
    specs = [spec.strip() for spec in via.split(",")]
    if len(specs) != 2 or not all(spec.startswith("hf:") and len(spec) > 3 for spec in specs):
        raise InputError(f"back-translation goes via two models, hf:THERE,hf:BACK (folder or name); found {via!r}")
    return specs[0], specs[1]


def load_translator(spec: str, device: str = "cpu") -> Translator:
    """The model of "hf:FOLDER" or "hf:OWNER/NAME", with its weights."""
    name = spec.removeprefix("hf:")
    transformers = transformers_library(spec)
    folder = Path(name).expanduser()
    with quiet(transformers), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Marian's tokenizer recommends a package it does not need
        if not folder.is_dir():
            return from_hub(name, lambda local: _pretrained(transformers, spec, name, local, device), _WHAT)
        if not (folder / "config.json").is_file():
            raise InputError(f"{spec} has no config.json; save a model there with save_pretrained, or name another")
        try:
            return _pretrained(transformers, spec, str(folder), True, device)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{spec} cannot be loaded as {_WHAT}: {first_line(error)}") from error


def _pretrained(transformers: Any, spec: str, source: str, local: bool, device: str) -> Translator:
    where = {"trust_remote_code": False, "local_files_only": local}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **where)
    except ImportError as error:
        reason = first_line(error).partition(". ")[0]
        raise InputError(
            f"the tokenizer of {spec} needs another package ({reason}): pip install csst-learn[hf]"
        ) from None
    model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        source, dtype=torch.float32, output_loading_info=True, **where
    )
    absent = sorted([*info["missing_keys"], *(key[0] for key in info["mismatched_keys"])])
    if absent:
        raise InputError(
            f"the weights of {spec} do not fit its config.json: {len(absent)} tensors are missing or of another shape, "
            f"such as {absent[0]}"
        )
    several = len(getattr(tokenizer, "supported_language_codes", ())) > 1
    if several or (model.config.model_type in _TOLD_LANGUAGES and model.generation_config.forced_bos_token_id is None):
        raise InputError(f"{spec} must be told which language to translate into: use a model of one direction")
    return Translator(spec, model, tokenizer, device)
