"""The back-translations of texts, kept in a content store: the key is the hash of a text and the number of the copy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from csst.data.content_store import ContentStore
from csst.errors import InputError

_KIND = "back-translations"


def hash_text(text: str) -> bytes:
    """SHA-256 of a text's UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _make_key(text: str, copy: int) -> bytes:
    return hash_text(text) + copy.to_bytes(4, "big")


def _open_store(path: Path, create: bool) -> ContentStore:
    again = "move it away and run csst augment again"
    return ContentStore(path, _KIND, again, "free some space, or name another file with -o", create)


class Translations:
    """The translations of a file: `translations[text]` is a list, empty for a text without any."""

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
        made_by: the models ("via") and everything else that shapes a translation; a file holds one kind only.
    """

    def __init__(self, path: str | Path, made_by: Mapping[str, Any]) -> None:
        self.path, self.made_by = Path(path).expanduser(), made_by
        self.damaged = 0  # translations that could not be read and were dropped

    def __enter__(self) -> TranslationWriter:
        self.store = _open_store(self.path, create=True)
        try:
            if not self.store.begin(wait=False):
                raise InputError(f"another csst augment is writing {self.path}: wait for it, or write to another file")
            for name, value in self.made_by.items():
                kept = self.store.keep_setting(name, value)
                if kept != value:
                    raise InputError(
                        f"{self.path} was made with {name} {kept!r}, not {value!r}: use the same, or write to another "
                        "file"
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
        encoded = ((_make_key(text, copy), new.encode("utf-8", "surrogatepass")) for text, copy, new in rows)
        self.store.put(encoded)

    def save(self) -> None:
        """Keep what was added, whatever happens next."""
        self.store.commit()
        self.store.begin()
