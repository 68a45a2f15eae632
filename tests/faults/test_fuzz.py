"""Random and mutated input: an answer or a sentence, never a crash; the long version is benchmarks/quality/fuzz.py."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import csst
from csst.data import Arrays
from csst.data.images.files import ImageFolder
from csst.recipes import RECIPES, from_dict, recipe


@pytest.fixture(scope="module")
def fuzz():
    path = Path(__file__).parent.parent.parent / "benchmarks" / "quality" / "fuzz.py"
    spec = importlib.util.spec_from_file_location("fuzz_benchmark", path)
    module = sys.modules["fuzz_benchmark"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("what", ["sentences", "recipes", "files", "tables"])
def test_mutated_input_is_accepted_or_gets_a_sentence(fuzz, tmp_path, what):
    inputs = getattr(fuzz, what)(random.Random(7))
    use = {
        "sentences": fuzz.use_sentence,
        "recipes": fuzz.use_recipe,
        "files": fuzz.file_user(tmp_path),
        "tables": fuzz.table_user(tmp_path),
    }[what]
    count = {"sentences": 600, "recipes": 250, "files": 200, "tables": 60}[what]
    _, tries, accepted, _ = fuzz.fuzz(what, inputs, use, count)
    assert count / 50 < accepted < tries  # both kinds were met


def test_the_fuzzer_sees_a_crash_and_a_hang(fuzz, monkeypatch, capsys):
    def crash(given):
        raise KeyError(given)

    with pytest.raises(KeyError):
        fuzz.fuzz("sentences", iter(["x"]), crash, 1)
    assert "'x'" in capsys.readouterr().err
    monkeypatch.setattr(fuzz, "LONGEST", 0.01)

    def slow(given):
        end = time.process_time() + 0.03
        while time.process_time() < end:
            pass

    with pytest.raises(SystemExit, match="took"):
        fuzz.fuzz("sentences", iter(["x"]), slow, 1)


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3))
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3))


@settings(max_examples=80)
@given(st.data())
def test_any_value_of_any_setting(data):
    made = recipe(data.draw(st.sampled_from([name for name in RECIPES if name in ("toy", "digits", "text", "folder")])))
    settings_of = made.as_dict()
    group = data.draw(st.sampled_from(sorted(settings_of)))
    value = data.draw(values)
    if isinstance(settings_of[group], dict) and settings_of[group] and data.draw(st.booleans()):
        settings_of[group][data.draw(st.sampled_from(sorted(settings_of[group])))] = value
    else:
        settings_of[group] = value
    with contextlib.suppress(csst.InputError):
        from_dict(settings_of)


def npz(path, **changes):
    y = np.r_[np.arange(30) % 3, np.full(10, -1)]
    np.savez(path, **{"x": np.random.default_rng(0).normal(size=(40, 2)), "y": y, **changes})
    return Arrays(str(path))


@pytest.mark.parametrize(
    "changes",
    [
        {"y": np.r_[np.arange(30) % 3, np.full(10, -2)]},
        {"y": np.full(40, 10**9)},
        {"y": np.full(40, -1)},
        {"y": np.linspace(0, 1, 40)},
        {"y": np.array(["a"] * 40)},
        {"y": np.zeros((40, 1), dtype=int)},
        {"y": np.zeros(39, dtype=int)},
        {"y": np.r_[np.zeros(29, dtype=int), 1, np.full(10, -1)]},
        {"x": np.full((40, 2), np.nan)},
        {"x": np.full((40, 2), np.inf)},
        {"x": np.zeros((0, 2)), "y": np.zeros(0, dtype=int)},
        {"x": np.array([["a", "b"]] * 40)},
        {"x": np.zeros((40, 2), dtype=complex)},
        {"x": np.zeros(())},
        {"class_names": np.array(["a", "a", "b"])},
        {"class_names": np.array(["a", "b"])},
        {"x_unlabeled": np.zeros((5, 3))},
        {"x_validation": np.zeros((5, 2))},
        {"x_validation": np.zeros((6, 2)), "y_validation": np.array([0, 0, 0, 1, 1, 1])},
        {"x_test": np.zeros((3, 2)), "y_test": np.array([0, 1, 7])},
    ],
)
def test_arrays_that_make_no_sense(tmp_path, changes):
    with pytest.raises(csst.InputError) as error:
        npz(tmp_path / "a.npz", **changes).load(0)
    assert len(str(error.value)) < 500


def pictures(folder, wrong, content):
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8)).save(folder / name / f"{number}.png")
    (folder / "a" / wrong).write_bytes(content)
    return ImageFolder(path=str(folder), size=8)


def bomb():
    """A PNG that says it has 10,000 x 10,000 pixels and holds few bytes."""

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    side = (10_000).to_bytes(4, "big")
    pixels = zlib.compress(bytes(10_001) * 10_000, 1)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", side + side + b"\x08\0\0\0\0")
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("wrong", "content", "says"),
    [
        ("zero.png", b"", "empty"),
        ("lying.png", b"GIF89a but not really", "cannot be read"),
        ("lying.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n", "not a PNG"),
        ("bomb.png", bomb(), "exceeds limit"),
    ],
)
def test_images_that_are_none(tmp_path, wrong, content, says):
    begun = time.process_time()
    with pytest.raises(csst.InputError, match=says) as error:
        pictures(tmp_path / "images", wrong, content).load(0)
    assert wrong in str(error.value)
    assert time.process_time() - begun < 1


def test_empty_folders_and_names_that_differ_by_case(tmp_path):
    made = pictures(tmp_path / "images", "9.png", (b"x"))
    (tmp_path / "images" / "a" / "9.png").unlink()
    (tmp_path / "images" / "c").mkdir()
    with pytest.raises(csst.InputError, match=r"\['c'\].*have none"):
        made.load(0)
    (tmp_path / "images" / "c").rename(tmp_path / "images" / "A")
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "A" / "1.png")
    with pytest.raises(csst.InputError, match="differ only by case"):
        made.load(0)
