"""Back-translations of texts in a content store; the key is the hash of a text and the number of the copy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from csst.data.content_store import ContentStore
from csst.errors import InputError

_KIND = "back-translations"


def hash_text(text: str) -> bytes:
    """Return the SHA-256 of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _make_key(text: str, copy: int) -> bytes:
    return hash_text(text) + copy.to_bytes(4, "big")


def _open_store(path: Path, create: bool) -> ContentStore:
    advice = "move it away and run csst augment again"
    return ContentStore(path, _KIND, advice, "free some space, or name another file with -o", create)


class Translations:
    """The translations in a file: `translations[text]` is a list, empty for a text without translations."""

    def __init__(self, path: str | Path) -> None:
        file = Path(path).expanduser()
        if not file.is_file():
            raise InputError(f"there is no file of {_KIND} {str(file)!r}: make it with csst augment")
        self._translations: dict[bytes, list[str]] = {}
        store = _open_store(file, create=False)
        for key, value in store.entries():
            self._translations.setdefault(key[:-4], []).append(value.decode("utf-8", "surrogatepass"))
        store.close()

    def __len__(self) -> int:
        return len(self._translations)

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and hash_text(text) in self._translations

    def __getitem__(self, text: str) -> list[str]:
        return self._translations.get(hash_text(text), [])


class TranslationWriter:
    """Writes a file of translations, or adds to one. Use as a context manager: one process at a time may write.

    Args:
        path: the file.
        made_by: the models ("via") and all other settings of the translation, the same for a whole file.
    """

    def __init__(self, path: str | Path, made_by: Mapping[str, Any]) -> None:
        self.path = Path(path).expanduser()
        self.made_by = made_by
        self.damaged = 0  # number of unreadable translations that were dropped

    def __enter__(self) -> TranslationWriter:
        self.store = _open_store(self.path, create=True)
        try:
            if not self.store.begin(wait=False):
                raise InputError(f"another csst augment is writing {self.path}: wait for it, or write to another file")
            for name, value in self.made_by.items():
                file_value = self.store.keep_setting(name, value)
                if file_value != value:
                    raise InputError(
                        f"{self.path} was made with {name} {file_value!r}, not {value!r}: use the same, or write to "
                        "another file"
                    )
            self.damaged = self.store.drop_damaged()
        except BaseException:
            self.store.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.store.close()  # what was not saved is lost

    def __contains__(self, item: tuple[str, int]) -> bool:
        return _make_key(*item) in self.store

    def __len__(self) -> int:
        return len(self.store)

    def add(self, rows: Iterable[tuple[str, int, str]]) -> None:
        """Add rows of text, number of the copy and translation."""
        self.store.put(
            (_make_key(text, copy), translation.encode("utf-8", "surrogatepass")) for text, copy, translation in rows
        )

    def save(self) -> None:
        """Save all translations added so far."""
        self.store.commit()
        self.store.begin()
