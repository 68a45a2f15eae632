"""`python -m benchmarks.results_check --repeat`: a twentieth of a page's lines, measured once more and compared."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    names = ("benchmarks.lines", "benchmarks.results_check")
    yield [importlib.import_module(name) for name in names]
    for name in ("benchmarks", *names):
        sys.modules.pop(name, None)


@pytest.fixture
def log(tmp_path, modules):
    """A page with 60 lines whose value is the square of the seed, and with a twentieth of them to repeat."""
    lines, checker = modules
    page = checker.insert_line("# A page\n\n| 0.5 |\n", checker.Measurement("1a2b3c4", ("rules",)))
    (tmp_path / "page.md").write_text(page)
    log = lines.Log(tmp_path / "page.jsonl", ("seed",))
    log.measure([{"seed": seed} for seed in range(60)], lambda cell: {"value": cell["seed"] ** 2, "seconds": 1})
    log.repeated_fraction = 0.05
    return log


def repeat(log, lines, measure, cells=60):
    with pytest.raises(lines.Repeated) as found:
        log.measure([{"seed": seed} for seed in range(cells)], measure)
    return found.value


def test_lines_that_repeat_are_noted_with_their_commit(log, modules, monkeypatch, tmp_path):
    lines, checker = modules
    text = log.file.read_text()
    found = repeat(log, lines, lambda cell: {"value": cell["seed"] ** 2, "seconds": 9})
    assert len(found.numbers) == 3
    assert found.differences == []
    assert log.file.read_text() == text  # nothing is measured into the log
    monkeypatch.setattr(checker, "run_git", lambda *words, **options: "4d5e6f7 2026-11-18\n")
    assert checker.note_repeated(log.file, found.numbers, found.differences) == 0
    measurement = checker.Measurement.read((tmp_path / "page.md").read_text())
    assert measurement.commit == "1a2b3c4"
    assert measurement.last_commit == "4d5e6f7"
    numbers = ", ".join(map(str, found.numbers))
    assert f"to the digit: lines {numbers} of page.jsonl." in (tmp_path / "page.md").read_text()
    again = checker.insert_line((tmp_path / "page.md").read_text(), measurement)
    assert again == (tmp_path / "page.md").read_text()  # writing it again changes nothing


@pytest.mark.parametrize("cells", [60, 1])
def test_a_line_that_differs_or_is_gone_is_shown_and_nothing_noted(log, modules, tmp_path, capsys, cells):
    lines, checker = modules
    found = repeat(log, lines, lambda cell: {"value": cell["seed"] ** 2 + 1e-9, "seconds": 1}, cells)
    assert len(found.differences) == 3
    assert checker.note_repeated(log.file, found.numbers, found.differences) == 1
    assert "3 of 3 lines" in capsys.readouterr().out
    assert "Repeated" not in (tmp_path / "page.md").read_text()


def test_the_drawn_lines_are_always_the_same(log, modules):
    lines, _ = modules
    first = repeat(log, lines, lambda cell: {"value": 0})
    assert first.numbers == repeat(log, lines, lambda cell: {"value": 1}).numbers
    seeds = [json.loads(line)["seed"] for line in log.file.read_text().splitlines()]
    assert [seeds[number - 1] for number in first.numbers] == [number - 1 for number in first.numbers]
