"""A cache of computed values, found by the content they belong to: one SQLite file, shared by runs and processes.

A file maps keys (hashes of contents) to values (bytes), each with a checksum, and stores the settings that all values
share. Changes are made in transactions: a killed process loses its last transaction and leaves nothing half-written.
One process writes at a time, and others may read meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from csst.errors import InputError

_APPLICATION_ID = 0x43535354  # "CSST"
_TABLES = (
    "CREATE TABLE IF NOT EXISTS content (key BLOB PRIMARY KEY, checksum INTEGER NOT NULL, value BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)
_PATIENCE = 2.0  # seconds that SQLite waits for a lock by itself, deaf to Ctrl-C


class ContentStore:
    """Values by the hash of their content.

    Args:
        path: the file; None keeps everything in memory.
        kind: kind of the values, in the plural; a file holds one kind only.
        advice: advice for a file that cannot be read, for the error.
        write_advice: advice for a place that cannot be written, for the error.
        create: whether to create a missing file; otherwise it is an error.
    """

    def __init__(
        self, path: Path | None, kind: str, advice: str = "", write_advice: str = "", create: bool = True
    ) -> None:
        self.path = path
        self.kind = kind
        self.advice = advice
        self.write_advice = write_advice
        with self._explain_errors():
            self._connection = self._connect()
        self.close = weakref.finalize(self, self._connection.close)
        try:
            self._prepare(create)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return int(self._query("SELECT count(*) FROM content")[0][0])

    def __contains__(self, key: bytes) -> bool:
        return bool(self._query("SELECT 1 FROM content WHERE key = ?", key))

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of these keys, all of which must exist; raise an error for a damaged value."""
        rows = [self._query("SELECT checksum, value FROM content WHERE key = ?", key)[0] for key in keys]
        return [self._check(key, *row) for key, row in zip(keys, rows, strict=True)]

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys with their values, sorted by key; raise an error for a damaged value."""
        for key, checksum, value in self._query("SELECT key, checksum, value FROM content ORDER BY key"):
            yield key, self._check(key, checksum, value)

    def _check(self, key: bytes, checksum: int, value: bytes) -> bytes:
        if _compute_checksum(key, value) != checksum:
            raise self._unreadable("a value does not match its checksum")
        return value

    def put(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Add values, within a transaction; an existing key keeps its value."""
        rows = [(key, _compute_checksum(key, value), value) for key, value in entries]
        with self._explain_errors():
            self._connection.executemany("INSERT OR IGNORE INTO content VALUES (?, ?, ?)", rows)

    def drop_damaged(self) -> int:
        """Delete damaged values, within a transaction, and return their number."""
        rows = self._query("SELECT key, checksum, value FROM content")
        keys = [key for key, checksum, value in rows if _compute_checksum(key, value) != checksum]
        for key in keys:
            self._query("DELETE FROM content WHERE key = ?", key)
        return len(keys)

    def keep_setting(self, name: str, value: Any) -> Any:
        """Return the file's value of a setting; store this value if it has none yet (within a transaction)."""
        self._query("INSERT OR IGNORE INTO setting VALUES (?, ?)", name, json.dumps(value))
        return json.loads(self._query("SELECT value FROM setting WHERE name = ?", name)[0][0])

    def begin(self, wait: bool = True) -> bool:
        """Begin a transaction; while another process writes, wait for it or return False."""
        return self._execute_alone("BEGIN IMMEDIATE", wait)

    def commit(self) -> None:
        """Save all changes since `begin`."""
        with self._explain_errors():
            self._connection.commit()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write alone; an error in the block discards all changes."""
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.rollback()
            raise

    def _connect(self) -> sqlite3.Connection:
        options: dict[str, Any] = {"timeout": _PATIENCE, "isolation_level": None}
        if self.path is None:
            return sqlite3.connect(":memory:", **options)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if os.access(self.path.parent, os.W_OK):
            return sqlite3.connect(self.path, **options)
        return sqlite3.connect(f"{self.path.resolve().as_uri()}?immutable=1", uri=True, **options)

    def _prepare(self, create: bool) -> None:
        """Check that the file is a content store of this kind; set up an empty file."""
        # Tables before the mark: both are written together, so whoever sees tables that another process makes
        # meanwhile sees its mark, too.
        tables = self._query("SELECT 1 FROM sqlite_master")
        mark = self._query("PRAGMA application_id")[0][0]
        if mark != _APPLICATION_ID and (tables or not create):
            raise self._unreadable("it was not written by csst")
        if create:
            self._execute_alone("PRAGMA journal_mode = WAL")
            self._query("PRAGMA synchronous = NORMAL")
        if mark != _APPLICATION_ID:
            with self.transaction():
                for table in _TABLES:
                    self._query(table)
                self._query(f"PRAGMA application_id = {_APPLICATION_ID}")
                self.keep_setting("kind", self.kind)
        kind = json.loads(self._query("SELECT value FROM setting WHERE name = 'kind'")[0][0])
        if kind != self.kind:
            raise self._unreadable(f"it holds {kind}")

    def _execute_alone(self, sql: str, wait: bool = True) -> bool:
        """Execute a statement that locks the file; without waiting, return False if another process has the lock."""
        while True:
            with self._explain_errors():
                try:
                    self._connection.execute(sql).fetchall()
                    return True
                except sqlite3.OperationalError as error:
                    if "locked" not in str(error):
                        raise
            if not wait:
                return False

    def _query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._explain_errors():
            return self._connection.execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.OperationalError) as error:
            raise InputError(f"{self.path} cannot be written ({error}): {self.write_advice}") from None
        except sqlite3.DatabaseError as error:
            raise self._unreadable(str(error)) from None

    def _unreadable(self, reason: str) -> InputError:
        return InputError(f"{self.path} cannot be read as a file of {self.kind}: {reason}; {self.advice}")


def _compute_checksum(key: bytes, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(key))
