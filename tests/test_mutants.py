"""benchmarks/quality/mutants.py puts the faults where it says, and always the same ones."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "benchmarks" / "quality" / "mutants.py"


@pytest.fixture(scope="module")
def mutants():
    spec = importlib.util.spec_from_file_location("mutants_of_csst", PATH)
    module = sys.modules["mutants_of_csst"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mutants_of_csst"]


def test_every_fault_that_is_written_down_still_applies(mutants):
    """`named` stops where a text is not in its file any more."""
    made = mutants.named()
    assert len(made) == len(mutants.NAMED)
    for mutant in made:
        assert mutant.compile()
        assert mutant.place


@pytest.mark.slow
def test_there_are_at_least_two_hundred_and_they_stay_the_same(mutants):
    rooms = list(mutants.ROOMS)
    drawn = mutants.draw(rooms)
    keys = [mutant.key for mutant in drawn]
    assert len(set(keys)) == len(keys) >= 200
    assert {mutant.room for mutant in drawn} == set(rooms)
    again = [mutant.key for mutant in mutants.draw(["learners"])]
    assert again == [mutant.key for mutant in drawn if mutant.room == "learners"]


def test_a_room_has_as_many_as_it_says_and_always_the_same(mutants):
    """One room, and not all of them, which takes seconds."""
    assert len(mutants.NAMED) + sum(room.drawn for room in mutants.ROOMS.values()) >= 200
    drawn = mutants.draw(["learners"])
    keys = [mutant.key for mutant in drawn]
    assert (
        len(set(keys)) == len(keys) == mutants.ROOMS["learners"].drawn + sum(m[0] == "learners" for m in mutants.NAMED)
    )
    assert {mutant.room for mutant in drawn} == {"learners"}
    assert [mutant.key for mutant in mutants.draw(["learners"])] == keys
    assert len(mutants.draw(["learners"], each=3)) == 3 + sum(m[0] == "learners" for m in mutants.NAMED)


def test_every_room_has_modules_and_tests(mutants):
    for room in mutants.ROOMS.values():
        for pattern in room.modules:
            assert list((mutants.SOURCE / "csst").glob(pattern)), pattern
        for tests in room.tests:
            assert (mutants.ROOT / tests).exists(), tests


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("a < b", ["a <= b"]),
        ("a * b", ["a / b"]),
        ("x.sum(1)", ["x.mean(1)", "x.sum(2)"]),
        ("not a", ["a"]),
        ("a and b", ["a or b"]),
        ("b if a else c", ["b if not a else c"]),
        ("-x", ["x"]),
        ("0.25", ["0.5"]),
        ("1e-9 * x", []),
        ("zip(a, b, strict=True)", []),
        ("warnings.warn(f'{a + b}')", []),
        ("'a' + b", []),
    ],
)
def test_what_a_fault_is(mutants, tmp_path, monkeypatch, code, changed):
    (tmp_path / "csst").mkdir()
    (tmp_path / "csst" / "one.py").write_text(f"def f():\n    return {code}\n")
    monkeypatch.setattr(mutants, "SOURCE", tmp_path)
    for number, words in enumerate(changed):
        mutant = mutants.generate("room", "one.py")[number]  # compiling changes the tree, so each needs its own
        assert mutant.place == "f"
        names = {}
        exec(mutant.compile(), names)
        assert mutants.generate("room", "one.py")[number].new in ast.unparse(ast.parse(words))
        assert callable(names["f"])
    assert len(mutants.generate("room", "one.py")) == len(changed)


def test_survivors_are_listed_with_their_reason(mutants):
    line = {"room": "maths", "line": 3, "seconds": 60.0, "tests": 4, "killed": True, "key": "a"}
    known = next(iter(mutants.REASONS))
    lines = [line, {**line, "killed": False, "key": f"{known} #0"}, {**line, "killed": False, "key": "b", "tests": 0}]
    page = mutants.describe(lines)
    assert "1 of 3 small faults (33 %)" in page
    assert "in 3 minutes of CPU" in page
    assert "| maths | 3 | 1 | 60.0 |" in page
    assert mutants.REASONS[known] in page
    assert "`b` (line 3): no test of the room calls it" in page
