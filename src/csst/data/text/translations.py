"""A cache of back-translations: one Parquet file, keyed by the content of the text.

    columns   key (sha256 of the text), copy (0, 1, ...), translation, via (the models)

While it is written, finished rows lie in FILE.parts/, each part complete or absent; `finish` merges them into FILE, and
replaces it in one step. A run that is killed loses only what it had not saved. `pyarrow` is an extra (pip install
csst-learn[hf]), imported when first used.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from csst.errors import InputError

Row = tuple[str, int, str]  # key, copy, translation
_MADE_BY = b"csst.made_by"


def key_of(text: str) -> str:
    """The name of a text in the cache: sha256 of its UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _arrow(name: str = "pyarrow") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"a cache of translations needs the package pyarrow ({error}): pip install csst-learn[hf]"
        ) from None


def _schema() -> Any:
    arrow = _arrow()
    kinds = {"key": arrow.string(), "copy": arrow.int32(), "translation": arrow.large_string(), "via": arrow.string()}
    return arrow.schema([arrow.field(name, kind, nullable=False) for name, kind in kinds.items()])


def _read(path: Path) -> Any:
    """The table of a file, its checksums verified; OSError or ValueError where it is damaged."""
    table = _arrow("pyarrow.parquet").read_table(path, page_checksum_verification=True, partitioning=None)
    wanted = _schema()
    if table.schema.names != wanted.names:
        raise ValueError(f"its columns are {', '.join(table.schema.names)}, not {', '.join(wanted.names)}")
    return table.cast(wanted.with_metadata(table.schema.metadata))


def _write(table: Any, path: Path) -> None:
    """The file, complete or not at all."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        options = {"compression": "zstd", "write_page_checksum": True, "write_statistics": False}
        _arrow("pyarrow.parquet").write_table(table, file, **options)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _opened(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"there is no cache of translations {str(path)!r}: make it with csst augment")
    try:
        return _read(path)
    except (OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path} cannot be read as a cache of translations: {reason}; move it away and run csst augment again"
        ) from None


class Translations:
    """The translations of a finished cache: `cache[text]` is a list, empty for a text without any."""

    def __init__(self, path: str | Path) -> None:
        table = _opened(Path(path).expanduser()).sort_by([("key", "ascending"), ("copy", "ascending")])
        self._column = table["translation"].combine_chunks()  # stays in Arrow: half the memory of Python's strings
        self._rows: dict[str, list[int]] = {}
        for row, key in enumerate(table["key"].to_pylist()):
            self._rows.setdefault(key, []).append(row)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and key_of(text) in self._rows

    def __getitem__(self, text: str) -> list[str]:
        return [self._column[row].as_py() for row in self._rows.get(key_of(text), [])]


class TranslationWriter:
    """Writes a cache, and continues one: rows that are there are `finished` and never made again.

    Use as a context manager: one process at a time may write a cache. Leaving it by an error saves nothing more.

    Args:
        path: the file.
        made_by: the models ("via") and everything else that shapes a translation; a cache holds one kind only.
    """

    def __init__(self, path: str | Path, made_by: Mapping[str, Any]) -> None:
        self.path = Path(path).expanduser()
        self.parts = self.path.with_name(self.path.name + ".parts")
        self.made_by = dict(made_by)
        self.finished: set[tuple[str, int]] = set()
        self.damaged = 0  # parts that were cut short, by a full disk for example; their texts are made again
        self._rows: list[Row] = []
        self._number = 0
        self._held = contextlib.ExitStack()

    def __enter__(self) -> TranslationWriter:
        _schema()  # a missing package is told before any work
        if self.path.exists():
            self._take(_opened(self.path))
        with self._held as held:
            with _told(self.parts):
                self.parts.mkdir(parents=True, exist_ok=True)
                held.enter_context(_alone(self.parts / "lock", self.path))
                for part in self._saved():
                    self._number = max(self._number, int(part.stem))
                    try:
                        table = _read(part)
                    except (OSError, ValueError):
                        part.unlink()
                        self.damaged += 1
                    else:
                        self._take(table)
            self._held = held.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError), self._held:
            if self.parts.is_dir() and not self._saved():  # nothing to go on from
                self._remove_parts()

    def add(self, rows: Iterable[Row]) -> None:
        self._rows += rows

    def save(self) -> None:
        """What was added since the last time, as a part of its own."""
        if self._rows:
            self._number += 1
            with _told(self.parts):
                _write(self._table(self._rows), self.parts / f"{self._number:08d}.parquet")
            self.finished.update((key, copy) for key, copy, _ in self._rows)
            self._rows = []

    def finish(self) -> int:
        """Merge all parts into the file, sorted by key and copy; gives the number of its rows."""
        self.save()
        with _told(self.path):
            tables = [_read(path) for path in [self.path, *self._saved()] if path.exists()]
            table = _arrow().concat_tables(tables or [self._table([])]).replace_schema_metadata(self._metadata())
            # A run killed right here has its rows in the file and in the parts.
            first = {pair: row for row, pair in reversed(list(enumerate(_pairs(table))))}
            rows = [first[pair] for pair in sorted(first)]
            table = table.take(_arrow().array(rows, _arrow().int64())).combine_chunks()
            _write(table, self.path)
            self._remove_parts()
        return int(table.num_rows)

    def _remove_parts(self) -> None:
        for path in self.parts.iterdir():
            path.unlink()
        self.parts.rmdir()

    def _saved(self) -> list[Path]:
        return sorted(path for path in self.parts.glob("*.parquet") if path.stem.isdigit())

    def _metadata(self) -> dict[bytes, bytes]:
        return {_MADE_BY: json.dumps(self.made_by, sort_keys=True).encode()}

    def _table(self, rows: Sequence[Row]) -> Any:
        keys, copies, texts = zip(*rows, strict=True) if rows else ((), (), ())
        columns = {"key": keys, "copy": copies, "translation": texts, "via": [str(self.made_by["via"])] * len(rows)}
        return _arrow().table(columns, schema=_schema().with_metadata(self._metadata()))

    def _take(self, table: Any) -> None:
        """Note the rows of a table as finished, if it is of the same kind."""
        found = json.loads((table.schema.metadata or {}).get(_MADE_BY, b"{}"))
        for name, value in self.made_by.items():
            if found.get(name) != value:
                raise InputError(
                    f"{self.path} was made with {name} {found.get(name)!r}, not {value!r}: ask for the same, or write "
                    "to another file"
                )
        self.finished.update(_pairs(table))


def _pairs(table: Any) -> Iterator[tuple[str, int]]:
    return zip(table["key"].to_pylist(), table["copy"].to_pylist(), strict=True)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from None


@contextlib.contextmanager
def _alone(lock: Path, path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, however that ends."""
    with lock.open("w") as file:
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"another csst augment is writing {path}: wait for it, or write elsewhere") from None
        yield
