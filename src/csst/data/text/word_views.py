"""Views of texts that change words: how texts become words and back, and the view that drops words.

A view is called with a list of texts and a `torch.Generator` and returns a new list; the same generator state gives the
same views. A word is what stands between white space, so a text written without spaces is a single word. White space
becomes single spaces. A text keeps at least one word; a text without words stays as it is. Time is linear in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress

import numpy as np
import torch

from csst.errors import InputError


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """NumPy's random numbers, seeded by one draw of the view's generator: many small draws are far cheaper so."""
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))


def split_words(texts: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """All words in one list; the text of each word; where each text's words start, and the last end (N + 1)."""
    split = [text.split() for text in texts]
    lengths = np.fromiter(map(len, split), np.int64, len(split))
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return list(chain.from_iterable(split)), np.repeat(np.arange(len(split)), lengths), edges


def join_words(texts: Sequence[str], words: list[str], edges: np.ndarray, kept: np.ndarray | None = None) -> list[str]:
    """The words of each text, or those that are kept; a text without words as it was."""
    if kept is not None:
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[edges]
        words = list(compress(words, kept.tolist()))
    ends = edges.tolist()
    return [" ".join(words[a:b]) if b > a else text for text, a, b in zip(texts, ends, ends[1:], strict=False)]


def check_fraction(value: float, what: str) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"the fraction of words that are {what} must lie in 0 .. 1; found {value!r}")


@dataclass(frozen=True)
class TokenDropout:
    """Each word is dropped with probability `fraction`."""

    fraction: float = 0.1

    def __post_init__(self) -> None:
        check_fraction(self.fraction, "dropped")

    def __call__(self, batch: Sequence[str], generator: torch.Generator) -> list[str]:
        rng = numpy_generator(generator)
        words, text, edges = split_words(batch)
        dropped = rng.random(len(words)) < self.fraction
        lengths = np.diff(edges)
        full = (np.bincount(text[dropped], minlength=len(lengths)) == lengths) & (lengths > 0)
        spared = edges[:-1][full] + (rng.random(int(full.sum())) * lengths[full]).astype(np.int64)
        dropped[spared] = False  # where all words of a text were dropped, one of them is not
        return join_words(batch, words, edges, ~dropped)
