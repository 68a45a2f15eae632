"""Strong views of texts, by name: word replacement, word dropout, back-translation.

The weak view of a text is the text itself. `TextViews` holds the settings; `TextViews.build(corpus)` makes the view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import torch

from csst.data.task import View, identity_view
from csst.data.text.translations import Translations
from csst.data.text.word_views import TfIdf, TokenDropout, make_numpy_generator
from csst.errors import InputError
from csst.setting_checks import check_choices

__all__ = ["STRONG", "TextViews", "TfIdf", "TokenDropout", "Translated"]

Strong = Literal["tfidf", "dropout", "backtranslation", "none"]
Missing = Literal["error", "tfidf", "dropout", "none"]
STRONG: tuple[str, ...] = get_args(Strong)


class Cache(Protocol):
    """Translations of a text: a list, which may be empty."""

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
        translations = [self.cache[text] for text in batch]
        places = [i for i, copies in enumerate(translations) if not copies and batch[i].strip()]
        if places and self.missing == "error":
            raise InputError(_describe_untranslated(len(places), len(batch)))
        chances = make_numpy_generator(generator).random(len(batch)).tolist()
        views = list(batch)
        for i, copies in enumerate(translations):
            if copies:
                views[i] = copies[int(chances[i] * len(copies))]
        if places and self.missing != "error":
            replacements = self.missing([batch[i] for i in places], generator)
            for i, text in zip(places, replacements, strict=True):
                views[i] = text
        return views


def _describe_untranslated(count: int, total: int) -> str:
    return (
        f"{count} of {total} texts have no back-translation in the cache: run csst augment on their file, or choose "
        "a view for them with --data.views.missing"
    )


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
            raise InputError(f"{self.cache}: {_describe_untranslated(count, len(corpus))}")
        return Translated(cache)

    def _build_word_view(self, name: str, corpus: Sequence[str]) -> View:
        if name == "tfidf":
            return TfIdf.fit(corpus, self.strength)
        if name == "dropout":
            return TokenDropout(self.strength)
        return identity_view
