"""Texts as words and back, and the view that drops words.

A view takes a list of texts and a `torch.Generator` and returns a new list; the same generator state gives the same
views. Words are separated by white space, so a text without spaces is a single word. White space becomes single spaces.
A text keeps at least one word; a text without words is unchanged. Time is linear in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress

import numpy as np
import torch

from csst.errors import InputError


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """Return a NumPy generator seeded by one draw of the view's generator: many small draws are much faster with it."""
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))


def split_words(texts: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return all words, the index of each word's text, and edges (N + 1): text i has words[edges[i]:edges[i + 1]]."""
    words_by_text = [text.split() for text in texts]
    lengths = np.fromiter(map(len, words_by_text), np.int64, len(texts))
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return list(chain.from_iterable(words_by_text)), np.repeat(np.arange(len(texts)), lengths), edges


def join_words(texts: Sequence[str], words: list[str], edges: np.ndarray, mask: np.ndarray | None = None) -> list[str]:
    """Return texts of these words, or of the words in the mask; a text without words is returned unchanged."""
    if mask is not None:
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(mask)])[edges]
        words = list(compress(words, mask.tolist()))
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
        is_dropped = rng.random(len(words)) < self.fraction
        lengths = np.diff(edges)
        loses_all = (np.bincount(text[is_dropped], minlength=len(lengths)) == lengths) & (lengths > 0)
        # A text that would lose all words keeps a random one of them.
        places = edges[:-1][loses_all] + (rng.random(int(loses_all.sum())) * lengths[loses_all]).astype(np.int64)
        is_dropped[places] = False
        return join_words(batch, words, edges, ~is_dropped)
