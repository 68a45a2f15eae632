"""A journal of any length in bounded memory: read line by line, thinned to evenly spaced records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from csst.errors import InputError

#: records that are kept at most, and numbers in them (a record has a few per class)
POINTS, ENTRIES = 500, 1_000_000
_LISTS = ("recall", "coverage", "multipliers")


def thinned_journal(path: str | Path, points: int = POINTS) -> tuple[list[dict[str, Any]], int]:
    """At most `points` records of a journal.jsonl, the first and the last among them, and how many lines it has.

    Kept are evenly spaced lines: every n-th, with n the smallest power of two that is enough. Only these are decoded,
    and no more than 2 `points` lines are in memory at once. A torn last line, left by a kill in the middle of a
    write, is no record. With very many classes fewer records are kept.
    """
    if points < 2:
        raise InputError(f"a thinned journal has at least 2 points, its first and its last; found points = {points}")
    path = Path(path)
    if not path.is_file():
        return [], 0
    kept: list[bytes] = []
    stride, lines, last = 1, 0, b""
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            if lines % stride == 0:
                if lines == 0:
                    points = max(2, min(points, ENTRIES // max(1, line.count(b","))))
                if len(kept) == 2 * points:
                    kept, stride = kept[::2], 2 * stride
                if lines % stride == 0:
                    kept.append(line)
            last = line
            lines += 1
    if len(kept) > points:
        kept, stride = kept[::2], 2 * stride
    if lines and (lines - 1) % stride:
        kept = [*(kept[:-1] if len(kept) == points else kept), last]
    return _decoded(kept, path), lines


def thinned(records: Sequence[dict[str, Any]], points: int = POINTS) -> list[dict[str, Any]]:
    """At most `points` of these records, evenly spaced, the first and the last among them."""
    if len(records) <= points:
        return list(records)
    return [records[round(n * (len(records) - 1) / (points - 1))] for n in range(points)]


def _decoded(kept: list[bytes], path: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for line in kept:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            raise InputError(f"{path} is damaged: after step {_step(records)} comes a line that is no record")
        sizes = {key: len(record.get(key) or ()) for key in _LISTS}
        if records and sizes != {key: len(records[0].get(key) or ()) for key in _LISTS}:
            raise InputError(f"{path} is damaged: after step {_step(records)} the number of classes changes")
        records.append(record)
    return records


def _step(records: list[dict[str, Any]]) -> str:
    return str(records[-1]["step"]) if records else "(none)"
