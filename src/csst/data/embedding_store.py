"""Embeddings on disk, found again by what was embedded: one file per encoder, a record per example.

A record is the example's key (16 bytes of SHA-256), a checksum and the vector. Records are only ever appended, each
batch at once, so that a killed process loses at most its last batch; a torn end is cut off by the next writer.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from csst.errors import InputError

_MAGIC, _HEAD = b"CSSTEMB1", struct.Struct("<8sQ")


def cache_folder(given: str = "") -> Path:
    """Where embeddings are kept: as given, else $CSST_CACHE, else the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or os.environ.get("CSST_CACHE") or f"{base}/csst").expanduser() / "embeddings"


def _require_shape(vectors: np.ndarray, rows: int, width: int) -> None:
    if vectors.shape != (rows, width):
        raise InputError(f"embeddings must be {rows} rows of {width}; found {vectors.shape}")


class Remembered:
    """The same in memory, for an encoder that has no name to be found again by."""

    def __init__(self) -> None:
        self._vectors: dict[bytes, np.ndarray] = {}

    def locked(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def __contains__(self, key: bytes) -> bool:
        return key in self._vectors

    def get(self, keys: Sequence[bytes]) -> np.ndarray:
        return np.stack([self._vectors[key] for key in keys])

    def put(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        _require_shape(vectors, len(keys), len(next(iter(self._vectors.values()), vectors[0])))
        self._vectors.update(zip(keys, vectors, strict=True))


class EmbeddingStore:
    """The file of one encoder. `width` 0 takes that of the file, or of the first vectors put in."""

    def __init__(self, path: Path, width: int = 0) -> None:
        self.path, self.width = path, width
        self._places: dict[bytes, int] = {}
        self._read = 0  # records whose keys are known
        self.refresh()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process embeds at a time: the others wait, and then find the work done."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = open(self.path.with_suffix(".lock"), "w")  # noqa: SIM115 - closed below
        except OSError as error:
            raise InputError(
                f"embeddings cannot be kept in {self.path.parent} ({error}): name another folder by --embedding.cache"
            ) from None
        with lock:
            with contextlib.suppress(ImportError):  # no such thing on Windows, where one process at a time must do
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            self.refresh()
            yield

    def refresh(self) -> None:
        """Learn the keys of records that were added since."""
        if not self.path.is_file() or self.path.stat().st_size < _HEAD.size:
            return  # nothing yet, or torn in its very first write
        with self.path.open("rb") as file:
            magic, width = _HEAD.unpack(file.read(_HEAD.size))
            if magic != _MAGIC or (self.width and width != self.width):
                raise InputError(
                    f"{self.path} is not a file of embeddings of width {self.width or 'any'}: delete it, "
                    "and they are computed again"
                )
            self.width = int(width)
        records = self._records()
        for place in range(self._read, len(records)):
            self._places[records["key"][place].tobytes()] = place
        self._read = len(records)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def get(self, keys: Sequence[bytes]) -> np.ndarray:
        """The vectors (N, width) of keys that are all there; damaged ones are an error."""
        rows = self._records()[[self._places[key] for key in keys]]
        vectors = np.ascontiguousarray(rows["vector"])
        for at, (sum_, vector) in enumerate(zip(rows["sum"].tolist(), vectors, strict=True)):
            if zlib.crc32(keys[at] + vector.tobytes()) != sum_:
                raise InputError(f"{self.path} is damaged: delete it, and its embeddings are computed again")
        return vectors

    def put(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        """Append vectors; the caller holds the lock."""
        self.width = self.width or vectors.shape[1]
        _require_shape(vectors, len(keys), self.width)
        rows = np.zeros(len(keys), dtype=self._dtype())
        rows["key"] = np.frombuffer(b"".join(keys), dtype="V16")
        rows["vector"] = vectors
        rows["sum"] = [zlib.crc32(key + vector.tobytes()) for key, vector in zip(keys, rows["vector"], strict=True)]
        try:
            with self.path.open("r+b" if self.path.is_file() else "w+b") as file:
                self._cut_torn_end(file)
                file.write(rows.tobytes())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"embeddings cannot be written to {self.path}: {error}") from None
        self.refresh()

    def _cut_torn_end(self, file: BinaryIO) -> None:
        size = file.seek(0, os.SEEK_END)
        if size < _HEAD.size:
            file.seek(0)
            file.truncate()
            file.write(_HEAD.pack(_MAGIC, self.width))
            return
        each = self._dtype().itemsize
        file.truncate(_HEAD.size + (size - _HEAD.size) // each * each)
        file.seek(0, os.SEEK_END)

    def _dtype(self) -> np.dtype:
        return np.dtype([("key", "V16"), ("sum", "<u4"), ("vector", "<f4", (self.width,))])

    def _records(self) -> np.ndarray:
        count = (self.path.stat().st_size - _HEAD.size) // self._dtype().itemsize
        if count < 1:
            return np.zeros(0, dtype=self._dtype())
        return np.memmap(self.path, dtype=self._dtype(), mode="r", offset=_HEAD.size, shape=(count,))
