"""Strong views of texts, by name: word replacement, small edits, dropout, masked runs, back-translation.

The weak view of a text is the text itself. `TextViews` are the settings; `build(corpus)` makes the view of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from csst.data.task import View, identity_view
from csst.data.text.tfidf import TfIdf
from csst.data.text.translations import Translations
from csst.data.text.word_views import EDA, OPERATIONS, SpanMask, TokenDropout, draws
from csst.errors import InputError, nearest

__all__ = ["EDA", "STRONG", "SpanMask", "TextViews", "TfIdf", "TokenDropout", "Translated"]

STRONG = ("tfidf", "eda", "dropout", "span", "backtranslation", "none")


class Cache(Protocol):
    """Translations of a text: a list, empty where there is none."""

    def __getitem__(self, text: str, /) -> Sequence[str]: ...


@dataclass(frozen=True, eq=False)
class Translated:
    """Each text becomes one of its stored back-translations, drawn evenly; a text without words stays.

    Args:
        cache: translations of a text, as `Translations` reads them from a file.
        missing: the view of texts without a translation; "error" refuses them and says how many there are.
    """

    cache: Cache
    missing: View | Literal["error"] = "error"

    def __call__(self, batch: Sequence[str], generator: torch.Generator) -> list[str]:
        found = [self.cache[text] for text in batch]
        absent = [i for i, texts in enumerate(found) if not texts and batch[i].strip()]
        if absent and self.missing == "error":
            raise InputError(_untranslated(len(absent), len(batch)))
        uniform = draws(generator).random(len(batch)).tolist()
        out = [
            texts[int(u * len(texts))] if texts else text for text, texts, u in zip(batch, found, uniform, strict=True)
        ]
        if absent and self.missing != "error":
            other = self.missing([batch[i] for i in absent], generator)
            for i, text in zip(absent, other, strict=True):
                out[i] = text
        return out


def _untranslated(count: int, total: int) -> str:
    return (
        f"{count} of {total} texts have no back-translation in the cache: run csst augment on their file, or choose "
        "a view for them by missing"
    )


@dataclass(frozen=True)
class TextViews:
    """The strong view of texts; their weak view is the text itself.

    Args:
        strong: tfidf replaces words that say little, eda swaps, deletes or inserts words, dropout drops words, span
            masks runs of words, backtranslation takes translations that csst augment made, none changes nothing.
        strength: share of the words that are changed; unused by backtranslation and none.
        span: words of a masked run on average.
        mask_word: stands for each masked run, such as [MASK]; empty removes the run.
        synonyms: let eda use synonyms of WordNet; needs nltk and its corpus.
        cache: the file of back-translations that csst augment wrote.
        missing: view of a text without back-translation; error stops and says how many there are.
    """

    strong: Literal["tfidf", "eda", "dropout", "span", "backtranslation", "none"] = "tfidf"
    strength: float = 0.3
    span: float = 3.0
    mask_word: str = ""
    synonyms: bool = False
    cache: str = ""
    missing: Literal["error", "tfidf", "eda", "dropout", "span", "none"] = "error"

    def __post_init__(self) -> None:
        for name, value, words in (
            ("strong", self.strong, STRONG),
            ("missing", self.missing, ("error", *(word for word in STRONG if word != "backtranslation"))),
        ):
            if value not in words:
                raise InputError(
                    f"views.{name} must be one of {', '.join(words)}; found {value!r}{nearest(value, words)}"
                )
        if not 0 <= self.strength <= 1:
            raise InputError(f"views.strength must be a share of words, 0 .. 1; found {self.strength!r}")

    def build(self, corpus: Sequence[str]) -> View:
        """The strong view; `corpus` is what word counts come from, and what must be translated."""
        if self.strong != "backtranslation":
            return self._named(self.strong, corpus)
        if not self.cache:
            raise InputError("back-translation needs a cache: views.cache FILE.parquet, made by csst augment")
        cache = Translations(self.cache)
        if self.missing != "error":
            return Translated(cache, self._named(self.missing, corpus))
        absent = sum(text not in cache and bool(text.strip()) for text in corpus)
        if absent:
            raise InputError(f"{self.cache}: {_untranslated(absent, len(corpus))}")
        return Translated(cache)

    def _named(self, name: str, corpus: Sequence[str]) -> View:
        if name == "tfidf":
            return TfIdf.fit(corpus, self.strength)
        if name == "eda":
            return EDA(self.strength, OPERATIONS if self.synonyms else OPERATIONS[:3])
        if name == "dropout":
            return TokenDropout(self.strength)
        if name == "span":
            return SpanMask(self.strength, self.span, self.mask_word)
        return identity_view
