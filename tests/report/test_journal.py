"""A journal of any length, thinned in bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise

import pytest

from csst import InputError
from csst.report import report_page, thin
from csst.report.run_view import read_run
from tests.report.samples import write_run


def records(count, classes=2):
    for n in range(count):
        yield {"step": n, **{key: [n / (n + 3)] * classes for key in ("recall", "coverage", "multipliers")}}


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 19, 20, 21, 40, 41, 1000, 1023])
def test_thinned_keeps_first_and_last_evenly(count):
    kept, total = thin(records(count), points=10)
    steps = [record["step"] for record in kept]
    assert total == count
    assert len(steps) == count if count <= 10 else 5 <= len(steps) <= 10
    assert steps[0] == 0
    assert steps[-1] == count - 1
    assert len({b - a for a, b in pairwise(steps[:-1])}) <= 1
    assert steps == sorted(set(steps))


def test_nothing_is_thinned_to_nothing():
    assert thin([]) == ([], 0)
    with pytest.raises(InputError, match="at least 2 points"):
        thin(records(5), points=1)


def test_a_long_journal_takes_little_memory(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", 2, updates=0)
    with (folder / "journal.jsonl").open("w") as file:
        for record in records(100_000):
            file.write(json.dumps(record) + "\n")
    monkeypatch.setattr("csst.report.run_view.DIAGNOSED", 1_000_000)
    tracemalloc.start()
    run = read_run(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert run.updates == 100_000
    assert 250 <= len(run.journal) <= 500
    assert run.journal[-1]["step"] == 99_999
    assert peak < 2_000_000
    assert run.warnings == ["the journal is too long (100,000 updates) to diagnose the multipliers"]


def test_many_classes_keep_fewer_records():
    kept, _ = thin({"recall": [1 / 3] * 6000} for _ in range(400))
    assert sum(len(record["recall"]) for record in kept) <= 1_000_000
    assert len(kept) > 50


def test_a_torn_last_line_is_no_record_and_a_missing_journal_is_empty(tmp_path):
    folder = write_run(tmp_path / "run", 2, updates=4)
    with (folder / "journal.jsonl").open("a") as file:
        file.write('{"step": 5, "rec')
    assert read_run(folder).updates == 5
    (folder / "journal.jsonl").unlink()
    run = read_run(folder)
    assert (run.journal, run.updates) == ([], 0)


def test_a_damaged_line_of_a_long_journal_is_an_error(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", 2, updates=4)
    (folder / "journal.jsonl").write_text("rubbish\n{}\n")
    monkeypatch.setattr("csst.report.run_view.DIAGNOSED", 1)
    with pytest.raises(InputError, match=r"line 1 of .*journal\.jsonl is damaged"):
        read_run(folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rubbish", "line 4 of .* is damaged"),
        ("[1]", "line 4 of .* is damaged"),
        ('{"loss": 1}', "line 4 of .* is damaged"),
        ('{"step": 3, "recall": [1]}', "the journal of .*run is damaged: the number of classes changes"),
    ],
)
def test_a_damaged_line_is_an_error(tmp_path, line, message):
    folder = write_run(tmp_path / "run", 2, updates=4)
    lines = (folder / "journal.jsonl").read_text().splitlines()
    lines[3] = line
    (folder / "journal.jsonl").write_text("".join(f"{text}\n" for text in lines))
    with pytest.raises(InputError, match=message):
        report_page([folder])
