"""Views of texts: words dropped, uninformative words replaced (TF-IDF, UDA, Xie et al. 2020), back-translation.

The weak view of a text is the text itself. `TextViews` holds the settings of the strong view, and `TextViews.build`
makes it for a corpus. A view takes a list of texts and a `torch.Generator` and returns a new list; the same generator
state gives the same views. Words are separated by white space, so a text without spaces is a single word. White space
becomes single spaces. A text keeps at least one word; a text without words is unchanged. Time is linear in words.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import Literal, Protocol

import numpy as np
import torch

from csst.data.task import View, identity_view
from csst.data.text.translations import Translations
from csst.errors import InputError
from csst.setting_checks import check_choices

PUNCTUATION = string.punctuation + "«»“”„‘’‚…–—¡¿、。，！？：；（）《》「」"
_CHUNK = 1024  # texts counted at a time
_REMEMBERED = 1_000_000  # spellings of words kept in memory, at most
Strong = Literal["tfidf", "dropout", "backtranslation", "none"]
Missing = Literal["error", "tfidf", "dropout", "none"]


def make_numpy_generator(generator: torch.Generator) -> np.random.Generator:
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


@dataclass(frozen=True)
class TokenDropout:
    """Each word is dropped with probability `fraction`."""

    fraction: float = 0.1

    def __call__(self, batch: Sequence[str], generator: torch.Generator) -> list[str]:
        rng = make_numpy_generator(generator)
        words, text, edges = split_words(batch)
        is_dropped = rng.random(len(words)) < self.fraction
        lengths = np.diff(edges)
        loses_all = (np.bincount(text[is_dropped], minlength=len(lengths)) == lengths) & (lengths > 0)
        # A text that would lose all words keeps a random one of them.
        places = edges[:-1][loses_all] + (rng.random(int(loses_all.sum())) * lengths[loses_all]).astype(np.int64)
        is_dropped[places] = False
        return join_words(batch, words, edges, ~is_dropped)


def strip_punctuation(word: str) -> str:
    """Return the word in lower case without punctuation around it; punctuation alone is a word too."""
    return word.lower().strip(PUNCTUATION) or word.lower()


def _keep_punctuation(word: str, replacement: str) -> str:
    core = word.strip(PUNCTUATION)
    return word.replace(core, replacement, 1) if core else replacement


class _Numbers(dict[str, int]):
    """Numbers of words, punctuation ignored; -1 for a word outside the vocabulary. Spellings are cached."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        super().__init__()
        self.vocabulary = vocabulary

    def __missing__(self, word: str) -> int:
        number = self.vocabulary.get(strip_punctuation(word), -1)
        if number >= 0 and len(self) < _REMEMBERED:
            self[word] = number
        return number

    def look_up(self, words: list[str]) -> tuple[np.ndarray, dict[str, int]]:
        """Return the number of each word, and the numbers of new words, which follow the vocabulary."""
        ids = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        new_words: dict[str, int] = {}
        for i in np.flatnonzero(ids < 0).tolist():
            ids[i] = new_words.setdefault(strip_punctuation(words[i]), len(self.vocabulary) + len(new_words))
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
            numbers.vocabulary.update(new_words)
            size = len(numbers.vocabulary)
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
        vocabulary = np.array(list(numbers.vocabulary), dtype=object)
        return cls(vocabulary, idf, cumulative / cumulative[-1], float(np.log(len(corpus))), fraction)

    def probabilities(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return for each text the probability that each of its words is replaced."""
        words, text, edges = split_words(texts)
        return np.split(self._compute_probabilities(words, text, edges), edges[1:-1]) if len(texts) else []

    def _compute_probabilities(self, words: list[str], text: np.ndarray, edges: np.ndarray) -> np.ndarray:
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
        rng = make_numpy_generator(generator)
        words, text, edges = split_words(batch)
        places = np.flatnonzero(rng.random(len(words)) < self._compute_probabilities(words, text, edges))
        numbers = np.searchsorted(self.cumulative, rng.random(len(places)), side="right")
        for i, word in zip(places.tolist(), self.words[numbers].tolist(), strict=True):
            words[i] = word if words[i].isalnum() else _keep_punctuation(words[i], word)
        return join_words(batch, words, edges)


class Cache(Protocol):
    """Translations of a text: a list, which may be empty."""

    def __getitem__(self, text: str, /) -> Sequence[str]: ...


@dataclass(frozen=True, eq=False)
class Translated:
    """Each text becomes one of its stored back-translations, drawn evenly; a text without words stays.

    Args:
        cache: translations of a text, as `Translations` reads them from a file.
        missing: the view of texts without a translation.
    """

    cache: Cache
    missing: View = identity_view

    def __call__(self, batch: Sequence[str], generator: torch.Generator) -> list[str]:
        translations = [self.cache[text] for text in batch]
        places = [i for i, copies in enumerate(translations) if not copies and batch[i].strip()]
        chances = make_numpy_generator(generator).random(len(batch)).tolist()
        views = list(batch)
        for i, copies in enumerate(translations):
            if copies:
                views[i] = copies[int(chances[i] * len(copies))]
        if places:
            replacements = self.missing([batch[i] for i in places], generator)
            for i, text in zip(places, replacements, strict=True):
                views[i] = text
        return views


@dataclass(frozen=True)
class TextViews:
    """The strong view of texts; their weak view is the text itself.

    Args:
        strong: tfidf replaces words that say little, dropout drops words, backtranslation takes translations that csst
            augment made, none changes nothing.
        strength: fraction of the words that are changed; unused by backtranslation and none.
        cache: the file of back-translations that csst augment wrote.
        missing: view of a text without back-translation; error stops and says how many there are.
    """

    strong: Strong = "tfidf"
    strength: float = 0.3
    cache: str = ""
    missing: Missing = "error"

    def __post_init__(self) -> None:
        check_choices(self, "views.")
        if not 0 <= self.strength <= 1:
            raise InputError(f"views.strength must be a fraction of the words, 0 .. 1; found {self.strength!r}")

    def build(self, corpus: Sequence[str]) -> View:
        """Return the strong view; `corpus` provides the word counts, and its texts must have translations."""
        if self.strong != "backtranslation":
            return self._build_word_view(self.strong, corpus)
        if not self.cache:
            raise InputError("back-translation needs a cache: --data.views.cache FILE, made by csst augment")
        cache = Translations(self.cache)
        if self.missing != "error":
            return Translated(cache, self._build_word_view(self.missing, corpus))
        count = sum(text not in cache and bool(text.strip()) for text in corpus)
        if count:
            raise InputError(
                f"{self.cache}: {count} of {len(corpus)} texts have no back-translation in the cache: run csst augment "
                "on their file, or choose a view for them with --data.views.missing"
            )
        return Translated(cache)

    def _build_word_view(self, name: str, corpus: Sequence[str]) -> View:
        if name == "tfidf":
            return TfIdf.fit(corpus, self.strength)
        if name == "dropout":
            return TokenDropout(self.strength)
        return identity_view
