"""A view that replaces uninformative words: TF-IDF word replacement (UDA, Xie et al. 2020)."""

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
_REMEMBERED = 1_000_000  # spellings of words kept in memory, at most


def strip_punctuation(word: str) -> str:
    """Return the word in lower case without punctuation around it; punctuation alone is a word too."""
    return word.lower().strip(PUNCTUATION) or word.lower()


def _keep_punctuation(word: str, new: str) -> str:
    core = word.strip(PUNCTUATION)
    return word.replace(core, new, 1) if core else new


class _Numbers(dict[str, int]):
    """Numbers of words, punctuation ignored; -1 for a word outside the vocabulary `known`. Spellings are cached."""

    def __init__(self, known: dict[str, int]) -> None:
        super().__init__()
        self.known = known

    def __missing__(self, word: str) -> int:
        number = self.known.get(strip_punctuation(word), -1)
        if number >= 0 and len(self) < _REMEMBERED:
            self[word] = number
        return number

    def look_up(self, words: list[str]) -> tuple[np.ndarray, dict[str, int]]:
        """Return the number of each word, and the numbers of new words, which follow those of the vocabulary."""
        ids = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        new_words: dict[str, int] = {}
        for i in np.flatnonzero(ids < 0).tolist():
            ids[i] = new_words.setdefault(strip_punctuation(words[i]), len(self.known) + len(new_words))
        return ids, new_words


@dataclass(frozen=True, eq=False)
class TfIdf:
    """Uninformative words are replaced by other uninformative words; the most informative words stay.

    In a text of n words, with t_i the tf-idf of word i and C = max_i t_i, word i is replaced with probability
    min(f (C - t_i) / Z, 1), f = fraction, Z = sum_i (C - t_i) / n; 0 if all t_i are equal. Its replacement is word w of
    the vocabulary with probability (max_v S(v) - S(w)) / Z', S(w) = frequency(w) idf(w) in the corpus, Z' the sum.
    Punctuation around a replaced word stays. A word outside the corpus counts as if one text of the corpus had it.

    Args:
        words: the vocabulary, lower case.
        idf: log(texts / texts with the word), one per word.
        cumulative: running sum of the replacement probabilities, one per word.
        rarest: idf of a word that the corpus lacks.
        fraction: fraction of the words replaced on average, before the cap at probability 1.
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
        """Return the view with the word counts of a corpus."""
        corpus = list(texts)
        numbers = _Numbers({})
        frequency = np.zeros(0)
        documents = np.zeros(0)
        for start in range(0, len(corpus), _CHUNK):
            words, text, _ = split_words(corpus[start : start + _CHUNK])
            ids, new_words = numbers.look_up(words)
            numbers.known.update(new_words)
            size = len(numbers.known)
            ids_by_text = np.unique(text * size + ids) % max(size, 1)  # each word once per text
            growth = (0, size - len(frequency))
            frequency = np.pad(frequency, growth) + np.bincount(ids, minlength=size)
            documents = np.pad(documents, growth) + np.bincount(ids_by_text, minlength=size)
        if not len(frequency):
            raise InputError("TF-IDF word replacement needs a corpus with words; found none")
        idf = np.log(len(corpus) / documents)
        score = frequency * idf
        weight = score.max() - score
        if not weight.any():
            weight = np.ones_like(weight)  # all words are equally informative
        cumulative = np.cumsum(weight)
        vocabulary = np.array(list(numbers.known), dtype=object)
        return cls(vocabulary, idf, cumulative / cumulative[-1], float(np.log(len(corpus))), fraction)

    def probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return for each text the probability that each of its words is replaced."""
        words, text, edges = split_words(texts)
        return np.split(self._probabilities(words, text, edges), edges[1:-1]) if len(texts) else []

    def _probabilities(self, words: list[str], text: np.ndarray, edges: np.ndarray) -> np.ndarray:
        ids, _ = self._numbers.look_up(words)
        # The length of a text is a factor of all its tf and cancels in (C - t) / Z, so that tf can be the count.
        _, pairs, counts = np.unique(text * (ids.max(initial=0) + 1) + ids, return_inverse=True, return_counts=True)
        is_new = ids >= len(self.idf)
        scores = counts[pairs] * np.where(is_new, self.rarest, self.idf[np.where(is_new, 0, ids)])
        nonempty_texts = np.flatnonzero(np.diff(edges))
        if not len(nonempty_texts):
            return np.zeros(0)
        starts = edges[nonempty_texts]
        lengths = np.diff(edges)[nonempty_texts]
        deficits = np.repeat(np.maximum.reduceat(scores, starts), lengths) - scores
        means = np.repeat(np.add.reduceat(deficits, starts) / lengths, lengths)
        return np.minimum(np.divide(self.fraction * deficits, means, out=np.zeros_like(means), where=means > 0), 1)

    def __call__(self, batch: Sequence[str], generator: torch.Generator) -> list[str]:
        rng = numpy_generator(generator)
        words, text, edges = split_words(batch)
        places = np.flatnonzero(rng.random(len(words)) < self._probabilities(words, text, edges))
        numbers = np.searchsorted(self.cumulative, rng.random(len(places)), side="right")
        for i, word in zip(places.tolist(), self.words[numbers].tolist(), strict=True):
            words[i] = word if words[i].isalnum() else _keep_punctuation(words[i], word)
        return join_words(batch, words, edges)
