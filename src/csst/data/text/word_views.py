"""Views of texts that change words and need no model and no corpus.

    EDA             words swapped, deleted, inserted or replaced by synonyms (Wei and Zou 2019)
    TokenDropout    words dropped
    SpanMask        runs of words removed, or each replaced by a mask word

A view is called with a list of texts and a `torch.Generator` and gives a new list; the same generator state gives the
same views. A word is what stands between white space, so a text written without spaces is a single word. White space
becomes single spaces. A text keeps at least one word; a text without words stays as it is. Time is linear in words.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, compress

import numpy as np
import torch

from csst.errors import InputError

OPERATIONS = ("swap", "delete", "insert", "synonym")


def draws(generator: torch.Generator) -> np.random.Generator:
    """NumPy's random numbers, seeded by one draw of the view's generator: many small draws are far cheaper so."""
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))


def flat(texts: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """All words in one list; the text of each word; where each text's words start, and the last end (N + 1)."""
    split = [text.split() for text in texts]
    lengths = np.fromiter(map(len, split), np.int64, len(split))
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return list(chain.from_iterable(split)), np.repeat(np.arange(len(split)), lengths), edges


def joined(texts: Sequence[str], words: list[str], edges: np.ndarray, kept: np.ndarray | None = None) -> list[str]:
    """The words of each text, or those that are kept; a text without words as it was."""
    if kept is not None:
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[edges]
        words = list(compress(words, kept.tolist()))
    ends = edges.tolist()
    return [" ".join(words[a:b]) if b > a else text for text, a, b in zip(texts, ends, ends[1:], strict=False)]


def objects(words: Sequence[str]) -> np.ndarray:
    array = np.empty(len(words), dtype=object)
    array[:] = words
    return array


def check_share(value: float, what: str, most: float = 1.0) -> None:
    if not 0 <= value <= most:
        raise InputError(f"the share of words that are {what} must lie in 0 .. {most:g}; found {value!r}")


def _spare_one(chosen: np.ndarray, text: np.ndarray, edges: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """`chosen`, but where all words of a text were, one of them is not."""
    lengths = np.diff(edges)
    full = (np.bincount(text[chosen], minlength=len(lengths)) == lengths) & (lengths > 0)
    out = chosen.copy()
    out[edges[:-1][full] + (rng.random(int(full.sum())) * lengths[full]).astype(np.int64)] = False
    return out


@dataclass(frozen=True)
class TokenDropout:
    """Each word is dropped with probability `share`."""

    share: float = 0.1

    def __post_init__(self) -> None:
        check_share(self.share, "dropped")

    def __call__(self, batch: Sequence[str], generator: torch.Generator) -> list[str]:
        rng = draws(generator)
        words, text, edges = flat(batch)
        dropped = _spare_one(rng.random(len(words)) < self.share, text, edges, rng)
        return joined(batch, words, edges, ~dropped)


@dataclass(frozen=True)
class SpanMask:
    """Runs of words are removed, or each run is replaced by one mask word.

    Whether a word is masked is a two-state Markov chain along the text: a run ends after each word with probability
    1 / length, and one begins after an unmasked word with probability share / (length (1 - share)). So every word is
    masked with probability `share`, and runs have `length` words on average. The chain takes share <= length / (1 +
    length).

    Args:
        share: share of the words that are masked.
        length: words of a run on average, at least 1.
        mask_word: stands for a run; empty removes the run.
    """

    share: float = 0.15
    length: float = 3.0
    mask_word: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.length < float("inf"):
            raise InputError(f"masked runs must have at least 1 word on average; found {self.length!r}")
        check_share(self.share, f"masked, in runs of {self.length:g} words,", self.length / (1 + self.length))
        if len(self.mask_word.split()) > 1:
            raise InputError(f"the mask word must be a single word; found {self.mask_word!r}")

    def __call__(self, batch: Sequence[str], generator: torch.Generator) -> list[str]:
        rng = draws(generator)
        words, text, edges = flat(batch)
        masked = _spare_one(self._chain(text, rng), text, edges, rng)
        kept = ~masked
        if self.mask_word:
            begins = masked.copy()  # a run's first word in its text
            begins[1:] &= ~masked[:-1] | (text[1:] != text[:-1])
            for i in np.flatnonzero(begins).tolist():
                words[i] = self.mask_word
            kept |= begins
        return joined(batch, words, edges, kept)

    def _chain(self, text: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The states of all texts' chains, True where masked.

        With one u for each word, a word is masked if u < begin after an unmasked word and if u < stay after a masked
        one. So below both and above both the past does not matter, and in between the state stays (begin < stay) or
        changes (stay < begin): the state is that of the last word without a past, changed so many times.
        """
        begin, stay = self.share / (self.length * (1 - self.share)), 1 - 1 / self.length
        u = rng.random(len(text))
        first = np.diff(text, prepend=-1) != 0
        without_past = first | (u < min(begin, stay)) | (u >= max(begin, stay))
        last = np.maximum.accumulate(np.where(without_past, np.arange(len(text)), 0))
        state = np.where(first, u < self.share, u < min(begin, stay))[last]
        if stay < begin:
            changes = np.cumsum(~without_past)
            state ^= (changes - changes[last]) % 2 == 1
        return state


@dataclass(frozen=True)
class EDA:
    """One operation per text, drawn among `operations`, on max(1, round(share n)) of its n words.

    swap: pairs of words change places; delete: each word is deleted with probability `share`; insert: words of the text
    are inserted again at random places; synonym: words are replaced by synonyms. With synonym among the operations,
    insert inserts synonyms, as in the paper. Words without a synonym stay. Texts of one word only get synonyms.

    Args:
        share: share of the words that are changed; the paper's alpha.
        operations: some of swap, delete, insert, synonym. Only synonym needs WordNet (pip install nltk, its corpus).
    """

    share: float = 0.1
    operations: tuple[str, ...] = OPERATIONS[:3]
    _synonyms: Callable[[str], tuple[str, ...]] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_share(self.share, "changed")
        if not self.operations or set(self.operations) - set(OPERATIONS):
            raise InputError(f"EDA's operations are some of {', '.join(OPERATIONS)}; found {self.operations!r}")
        object.__setattr__(self, "_synonyms", wordnet() if "synonym" in self.operations else None)

    def __call__(self, batch: Sequence[str], generator: torch.Generator) -> list[str]:
        rng = draws(generator)
        which = rng.integers(len(self.operations), size=len(batch)).tolist()
        return [self._changed(text, self.operations[k], rng) for text, k in zip(batch, which, strict=True)]

    def _changed(self, text: str, operation: str, rng: np.random.Generator) -> str:
        words = text.split()
        if not words or not self.share or (len(words) == 1 and operation != "synonym"):
            return text
        count = max(1, round(self.share * len(words)))
        if operation == "swap":
            for a, b in rng.integers(len(words), size=(count, 2)).tolist():
                words[a], words[b] = words[b], words[a]
        elif operation == "delete":
            kept = rng.random(len(words)) >= self.share
            kept[rng.integers(len(words))] |= not kept.any()
            words = [word for word, keep in zip(words, kept.tolist(), strict=True) if keep]
        else:
            chosen = rng.permutation(len(words))[:count]
            new = [self._synonym(words[i], rng) for i in chosen.tolist()]
            if operation == "insert":
                words = np.insert(objects(words), rng.integers(len(words) + 1, size=count), objects(new)).tolist()
            else:
                for i, word in zip(chosen.tolist(), new, strict=True):
                    words[i] = word
        return " ".join(words)

    def _synonym(self, word: str, rng: np.random.Generator) -> str:
        found = self._synonyms(word.lower()) if self._synonyms else ()
        return found[int(rng.integers(len(found)))] if found else word


def wordnet() -> Callable[[str], tuple[str, ...]]:
    """Synonyms by WordNet, through nltk: the other words of the synsets of a word, in alphabetical order."""
    try:
        corpus = importlib.import_module("nltk.corpus").wordnet
        corpus.ensure_loaded()
    except ImportError as error:
        raise InputError(
            f"synonyms need the package nltk ({error}): pip install nltk, or ask for no synonyms"
        ) from None
    except LookupError:
        raise InputError(
            "synonyms need nltk's WordNet corpus, which is not here: python -m nltk.downloader wordnet"
        ) from None

    @lru_cache(maxsize=100_000)
    def synonyms(word: str) -> tuple[str, ...]:
        names = {name.replace("_", " ") for synset in corpus.synsets(word) for name in synset.lemma_names()}
        return tuple(sorted(name for name in names if name.lower() != word))

    return synonyms
