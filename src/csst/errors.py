"""Errors for users: one plain sentence that says what is needed and why, what was found, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input; the base of all errors that `csst` raises about its input."""


class ObjectiveError(InputError):
    """A mistake in an objective sentence, shown with a caret under the place."""

    def __init__(self, sentence: str, text: str = "", start: int = 0, end: int = 0) -> None:
        self.sentence = sentence
        self.text = text
        self.start = start
        self.end = max(end, start + 1)
        super().__init__(sentence + self._point_at_text())

    def __reduce__(self) -> tuple[type[ObjectiveError], tuple[str, str, int, int]]:
        return type(self), (self.sentence, self.text, self.start, self.end)

    def _point_at_text(self) -> str:
        if not self.text:
            return ""
        # A caret only lines up below a line whose tabs and line breaks are single spaces.
        line = "".join(" " if c.isspace() else c for c in self.text)
        begin = max(0, self.start - 60)
        excerpt = line[begin : self.start + 60]
        width = max(1, min(self.end, begin + len(excerpt)) - self.start)
        return f"\n  {excerpt}\n  {' ' * (self.start - begin)}{'^' * width}"


def nearest(word: str, words: Iterable[str]) -> str:
    """Return a hint with the most similar valid word, "; did you mean 'recall'?"; "" if none is similar."""
    matches = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""
