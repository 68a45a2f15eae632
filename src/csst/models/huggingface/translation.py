"""Back-translation: texts into another language and back, by any two sequence-to-sequence models of Hugging Face.

    hf:A,hf:B    A translates from the texts' language, B back; each is a folder or a model of the hub, such as
                 hf:Helsinki-NLP/opus-mt-en-fr,hf:Helsinki-NLP/opus-mt-fr-en (MarianMT, as in the paper)

A text is cut after its sentences and at line breaks; the pieces are translated one by one and put together again with
what was between them. Pieces without a letter or digit stay. A piece with more tokens than a model takes is cut in
halves, at white space if there is any, until its parts fit. Texts beyond a number of characters lose their end.

Words are sampled by the library's `generate`, with random numbers that depend on the seed and on the texts and copies
that are translated together, and on nothing else: the same texts in the same groups give the same translations.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from csst.errors import InputError
from csst.models.huggingface.loading import Source, load_pretrained, silence
from csst.plugins import import_extra

_LONGEST = 512  # tokens, where neither model nor tokenizer says less
_MULTILINGUAL = ("m2m_100", "mbart", "nllb-moe", "plbart", "seamless_m4t", "seamless_m4t_v2")
_BOUNDARY = re.compile(
    r"((?<=[.!?…])\s+|(?<=[.!?…][\"'”’»)\]])\s+|(?:\n|<br\s*/?>)(?:\s|<br\s*/?>)*|(?<=[。！？])\s*)", re.IGNORECASE
)


@dataclass(frozen=True)
class Sampling:
    """Settings of the draw of the next word.

    Args:
        temperature: temperature of the softmax; a lower one is closer to the likeliest translation, 0 takes the
            likeliest word each time.
        top_k: number of likeliest words to draw from; 0 for all.
        top_p: total probability of the likeliest words to draw from.
        seed: seed of the random numbers.
    """

    temperature: float = 0.9
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"the temperature must be a number of at least 0; found {self.temperature!r}")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise InputError(f"top_k must be at least 0 and top_p in (0, 1]; found {self.top_k!r} and {self.top_p!r}")
        if self.seed < 0:
            raise InputError(f"the seed must be at least 0; found {self.seed!r}")

    def generate_options(self) -> dict[str, Any]:
        """Return the arguments of `generate`."""
        if self.temperature == 0:
            return {"do_sample": False}
        return {"do_sample": True, "temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}


class Translator:
    """One direction: a sequence-to-sequence model with its tokenizer. A translation has at most twice as many tokens
    as its source, and 16."""

    def __init__(self, spec: str, model: Any, tokenizer: Any, device: torch.device | str = "cpu") -> None:
        self.spec = spec
        self.tokenizer = tokenizer
        self.device = torch.device(device)
        self.model = model.to(self.device).eval()
        limits = (getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length)
        self.longest = min(_LONGEST, *(int(limit) for limit in limits if limit))

    def translate(self, pieces: Sequence[str], sampling: Sampling, batch: int) -> list[str]:
        """Translate pieces with torch's global generator, `batch` parts of similar length at a time."""
        parts = [(i, tokens) for i, piece in enumerate(pieces) for tokens in self._split_to_fit(piece)]
        order = sorted(range(len(parts)), key=lambda j: -len(parts[j][1]))
        translations = [""] * len(parts)
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            texts = self._generate([parts[j][1] for j in rows], sampling)
            for j, text in zip(rows, texts, strict=True):
                translations[j] = text.strip()
        texts_of_pieces: list[list[str]] = [[] for _ in pieces]
        for (i, _), text in zip(parts, translations, strict=True):
            if text:
                texts_of_pieces[i].append(text)
        return [" ".join(texts) for texts in texts_of_pieces]

    def _split_to_fit(self, piece: str) -> Iterator[list[int]]:
        """Yield the tokens of a piece, cut in halves until each part has no more than the model takes."""
        queue = [piece]
        while queue:
            text = queue.pop()
            tokens = self.tokenizer(text, verbose=False)["input_ids"]
            if len(tokens) <= self.longest or len(text) < 2:
                yield tokens[: self.longest]
                continue
            middle = len(text) // 2
            space = max(text.rfind(" ", 1, middle), 0) or text.find(" ", middle, len(text) - 1)
            end = space if space > 0 else middle
            queue += [text[end:].strip(), text[:end].strip()]

    def _generate(self, parts: list[list[int]], sampling: Sampling) -> list[str]:
        limits = [min(2 * len(tokens) + 16, self.longest - 1) for tokens in parts]
        inputs = self.tokenizer.pad({"input_ids": parts}, return_tensors="pt", verbose=False)
        with torch.inference_mode(), silence(import_extra("transformers", self.spec)):
            rows = self.model.generate(
                input_ids=inputs["input_ids"].to(self.device),
                attention_mask=inputs["attention_mask"].to(self.device),
                num_beams=1,
                max_new_tokens=max(limits),
                **sampling.generate_options(),
            )
        tokens = [row[:limit] for row, limit in zip(rows, limits, strict=True)]
        return self.tokenizer.batch_decode(tokens, skip_special_tokens=True)


@dataclass(frozen=True)
class RoundTrip:
    """Texts to another language and back.

    Args:
        there: translator of the texts.
        back: translator of the translations.
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
        """Return a back-translation of each text, "" if there is none; `copies` numbers the copies of a text."""
        pieces = [split_sentences(text, self.max_characters) for text in texts]
        places = [(i, n) for i, parts in enumerate(pieces) for n, (piece, _) in enumerate(parts) if _has_words(piece)]
        sentences = [pieces[i][n][0] for i, n in places]
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(self._derive_seed(texts, copies))
            for translator in (self.there, self.back):
                sentences = translator.translate(sentences, self.sampling, self.batch)
        translations = dict(zip(places, sentences, strict=True))
        return [
            "".join(translations.get((i, n), piece) + between for n, (piece, between) in enumerate(parts)).strip()
            for i, parts in enumerate(pieces)
        ]

    def _derive_seed(self, texts: Sequence[str], copies: Sequence[int]) -> int:
        """Return a seed made from the sampling's seed and the texts, so that their order in time does not matter."""
        content = repr((self.sampling.seed, list(texts), list(copies))).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(content).digest()[:7], "big")


def split_sentences(text: str, max_characters: int = 0) -> list[tuple[str, str]]:
    """Return the sentences and lines of a text, each with the white space and <br /> tags that follow it.

    White space and tags before the first are left out.
    """
    pieces: list[tuple[str, str]] = []
    split = [*_BOUNDARY.split(text), ""]
    for piece, between in zip(split[::2], split[1::2], strict=True):
        sentence = piece.strip()
        if sentence:
            pieces.append((sentence, piece[len(piece.rstrip()) :] + between))
        elif pieces:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + piece + between)
    if not max_characters or len(text) <= max_characters:
        return pieces
    beginning: list[tuple[str, str]] = []
    length = 0
    for piece, between in pieces:
        if length + len(piece) > max_characters:
            break
        beginning.append((piece, between))
        length += len(piece) + len(between)
    if pieces and not beginning:
        start = pieces[0][0][:max_characters]
        space = start.rfind(" ")
        beginning = [(start[:space].strip() if space > 0 else start, "")]
    return beginning


def _has_words(piece: str) -> bool:
    return any(character.isalnum() for character in piece)


def parse_via(via: str) -> tuple[str, str]:
    """Return the two models of "hf:A,hf:B"."""
    specs = [spec.strip() for spec in via.split(",")]
    if len(specs) != 2 or not all(spec.startswith("hf:") and len(spec) > 3 for spec in specs):
        raise InputError(f"back-translation goes via two models, hf:THERE,hf:BACK (folder or name); found {via!r}")
    return specs[0], specs[1]


def load_translator(spec: str, device: str = "cpu") -> Translator:
    """Return the model of "hf:FOLDER" or "hf:OWNER/NAME", with its weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Marian's tokenizer recommends a package it does not need
        model, tokenizer = load_pretrained(spec, _load, "a translation model (sequence to sequence)")
    has_languages = len(getattr(tokenizer, "supported_language_codes", ())) > 1
    has_no_target = model.config.model_type in _MULTILINGUAL and model.generation_config.forced_bos_token_id is None
    if has_languages or has_no_target:
        raise InputError(f"{spec} must be told which language to translate into: use a model of one direction")
    return Translator(spec, model, tokenizer, device)


def _load(source: Source) -> tuple[Any, Any]:
    tokenizer = source.load_tokenizer()
    return source.load_network("AutoModelForSeq2SeqLM")[0], tokenizer
