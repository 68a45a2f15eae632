"""A journal of any length, read in bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise

import pytest

from csst import InputError
from csst.report import thinned_journal
from csst.report.journal import thinned


def write(path, count, classes=2):
    body = json.dumps([0.5] * classes)
    with path.open("w") as file:
        for n in range(count):
            file.write(f'{{"step": {n}, "recall": {body}, "coverage": {body}, "multipliers": {body}}}\n')
    return path


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 19, 20, 21, 40, 41, 1000, 1023])
def test_thinned_keeps_first_and_last_evenly(tmp_path, count):
    records, lines = thinned_journal(write(tmp_path / "j", count), points=10)
    steps = [record["step"] for record in records]
    assert lines == count
    assert len(steps) == count if count <= 10 else 5 <= len(steps) <= 10
    assert steps[0] == 0
    assert steps[-1] == count - 1
    assert len({b - a for a, b in pairwise(steps[:-1])}) <= 1
    assert steps == sorted(set(steps))


def test_a_long_journal_takes_little_memory(tmp_path):
    path = tmp_path / "j"
    with path.open("w") as file:
        for start in range(0, 300_000, 10_000):
            file.write("".join(f'{{"step": {n}}}\n' for n in range(start, start + 10_000)))
    tracemalloc.start()
    records, lines = thinned_journal(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines == 300_000
    assert 250 <= len(records) <= 500
    assert records[-1]["step"] == 299_999
    assert peak < 2_000_000


def test_many_classes_keep_fewer_records(tmp_path):
    records, _ = thinned_journal(write(tmp_path / "j", 400, classes=2000))
    assert sum(len(record["recall"]) * 3 for record in records) <= 1_000_000
    assert len(records) > 50


def test_a_torn_last_line_is_no_record_and_a_missing_journal_is_empty(tmp_path):
    path = write(tmp_path / "j", 5)
    with path.open("a") as file:
        file.write('{"step": 5, "rec')
    records, lines = thinned_journal(path)
    assert [record["step"] for record in records] == [0, 1, 2, 3, 4]
    assert lines == 5
    assert thinned_journal(tmp_path / "none") == ([], 0)


@pytest.mark.parametrize("line", ["rubbish", "[1]", '{"loss": 1}', '{"step": 3, "recall": [1]}'])
def test_a_damaged_line_is_an_error(tmp_path, line):
    path = write(tmp_path / "j", 3)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match="is damaged: after step 2"):
        thinned_journal(path)
    with pytest.raises(InputError, match="at least 2 points"):
        thinned_journal(path, points=1)


def test_thinned_records():
    records = [{"step": n} for n in range(1234)]
    shown = [record["step"] for record in thinned(records)]
    assert len(shown) == 500
    assert (shown[0], shown[-1]) == (0, 1233)
    assert shown == sorted(set(shown))
    assert thinned(records[:500]) == records[:500]
