"""Errors a user can meet: one plain sentence that says what, why, what was found and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input. Every error that `csst` raises about its input is one of these, and so a `ValueError`."""


class ObjectiveError(InputError):
    """A mistake in an objective sentence, shown with a caret under the place."""

    def __init__(self, sentence: str, text: str = "", start: int = 0, end: int = 0) -> None:
        self.sentence, self.text, self.start, self.end = sentence, text, start, max(end, start + 1)
        super().__init__(sentence + self._marked())

    def __reduce__(self) -> tuple[type[ObjectiveError], tuple[str, str, int, int]]:
        return type(self), (self.sentence, self.text, self.start, self.end)

    def _marked(self) -> str:
        if not self.text:
            return ""
        # A caret only lines up below a line whose tabs and line breaks are single spaces.
        line = "".join(" " if c.isspace() else c for c in self.text)
        first = max(0, self.start - 60)
        shown = line[first : self.start + 60]
        width = max(1, min(self.end, first + len(shown)) - self.start)
        return f"\n  {shown}\n  {' ' * (self.start - first)}{'^' * width}"


def nearest(word: str, words: Iterable[str]) -> str:
    """A hint that names the closest valid word: "; did you mean 'recall'?", or nothing."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
