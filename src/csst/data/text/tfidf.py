"""The view that replaces words which say little: TF-IDF word replacement (UDA, Xie et al. 2020)."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from csst.data.text.word_views import check_fraction, join_words, numpy_generator, split_words
from csst.errors import InputError

PUNCTUATION = string.punctuation + "«»“”„‘’‚…–—¡¿、。，！？：；（）《》「」"
_CHUNK = 1024  # texts counted at a time
_REMEMBERED = 1_000_000


def strip_punctuation(word: str) -> str:
    """The word in lower case without punctuation around it; punctuation alone is a word too."""
    return word.lower().strip(PUNCTUATION) or word.lower()


def _keep_punctuation(word: str, new: str) -> str:
    inner = word.strip(PUNCTUATION)
    return word.replace(inner, new, 1) if inner else new


class _Numbers(dict[str, int]):
    """Word -> number of what is left without punctuation, -1 if that is not known. Words met are kept."""

    def __init__(self, known: dict[str, int]) -> None:
        super().__init__()
        self.known = known

    def __missing__(self, word: str) -> int:
        number = self.known.get(strip_punctuation(word), -1)
        if number >= 0 and len(self) < _REMEMBERED:
            self[word] = number
        return number

    def look_up(self, words: list[str]) -> tuple[np.ndarray, dict[str, int]]:
        """The number of each word; words that are not known get the numbers that follow, returned too."""
        ids = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        new: dict[str, int] = {}
        for i in np.flatnonzero(ids < 0).tolist():
            ids[i] = new.setdefault(strip_punctuation(words[i]), len(self.known) + len(new))
        return ids, new


@dataclass(frozen=True, eq=False)
class TfIdf:
    """Words that say little are replaced by words that say little; the words that say most stay.

    In a text of n words, with t_i the tf-idf of word i and C = max_i t_i, word i is replaced with probability
    min(f (C - t_i) / Z, 1), f = fraction, Z = sum_i (C - t_i) / n; where all t_i are equal, none is. Its replacement is
    word w of the vocabulary with probability (max_v S(v) - S(w)) / Z', S(w) = frequency(w) idf(w) in the corpus, Z'
    their sum. Punctuation around a replaced word stays. A word that the corpus lacks counts as found in one text of it.

    Args:
        words: the vocabulary, lower case.
        idf: log(texts / texts with the word), one per word.
        cumulative: running sum of the replacement probabilities, one per word.
        rarest: idf of a word that the corpus lacks.
        fraction: fraction of the words that are replaced on average, before the cap at probability 1.
    """

    words: np.ndarray
    idf: np.ndarray
    cumulative: np.ndarray
    rarest: float
    fraction: float = 0.3
    _numbers: _Numbers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_fraction(self.fraction, "replaced")
        object.__setattr__(self, "_numbers", _Numbers({word: i for i, word in enumerate(self.words.tolist())}))

    @classmethod
    def fit(cls, texts: Iterable[str], fraction: float = 0.3) -> TfIdf:
        """The view whose counts are those of a corpus."""
        corpus = list(texts)
        numbers = _Numbers({})
        frequency, documents = np.zeros(0), np.zeros(0)
        for start in range(0, len(corpus), _CHUNK):
            words, text, _ = split_words(corpus[start : start + _CHUNK])
            ids, new = numbers.look_up(words)
            numbers.known.update(new)
            size = len(numbers.known)
            occurring = np.unique(text * size + ids) % max(size, 1)  # each word once per text
            growth = (0, size - len(frequency))
            frequency = np.pad(frequency, growth) + np.bincount(ids, minlength=size)
            documents = np.pad(documents, growth) + np.bincount(occurring, minlength=size)
        if not len(frequency):
            raise InputError("TF-IDF word replacement needs a corpus with words; found none")
        idf = np.log(len(corpus) / documents)
        score = frequency * idf
        weight = score.max() - score
        if not weight.any():
            weight = np.ones_like(weight)  # all words say equally much
        cumulative = np.cumsum(weight)
        vocabulary = np.array(list(numbers.known), dtype=object)
        return cls(vocabulary, idf, cumulative / cumulative[-1], float(np.log(len(corpus))), fraction)

    def probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text, the probability of each of its words to be replaced."""
        words, text, edges = split_words(texts)
        return np.split(self._probabilities(words, text, edges), edges[1:-1]) if len(texts) else []

    def _probabilities(self, words: list[str], text: np.ndarray, edges: np.ndarray) -> np.ndarray:
        ids, _ = self._numbers.look_up(words)
        # A text's length is in the tf of all its words and cancels in (C - t) / Z, so tf can be the count.
        _, pair, counts = np.unique(text * (ids.max(initial=0) + 1) + ids, return_inverse=True, return_counts=True)
        absent = ids >= len(self.idf)
        score = counts[pair] * np.where(absent, self.rarest, self.idf[np.where(absent, 0, ids)])
        used = np.flatnonzero(np.diff(edges))  # texts with words
        if not len(used):
            return np.zeros(0)
        lengths = np.diff(edges)[used]
        below = np.repeat(np.maximum.reduceat(score, edges[used]), lengths) - score
        mean = np.repeat(np.add.reduceat(below, edges[used]) / lengths, lengths)
        return np.minimum(np.divide(self.fraction * below, mean, out=np.zeros_like(mean), where=mean > 0), 1)

    def __call__(self, batch: Sequence[str], generator: torch.Generator) -> list[str]:
        rng = numpy_generator(generator)
        words, text, edges = split_words(batch)
        places = np.flatnonzero(rng.random(len(words)) < self._probabilities(words, text, edges))
        drawn = np.searchsorted(self.cumulative, rng.random(len(places)), side="right")
        for i, new in zip(places.tolist(), self.words[drawn].tolist(), strict=True):
            words[i] = new if words[i].isalnum() else _keep_punctuation(words[i], new)
        return join_words(batch, words, edges)
