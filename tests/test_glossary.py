"""The glossary: every public name is in it, and every name in it exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import csst

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "glossary.md"
NAMES = sorted(set(re.findall(r"`(csst\.[\w.]+)`", PAGE.read_text(encoding="utf-8"))))


def has_name(path: str) -> bool:
    """Whether a dotted path leads to a module, an attribute, a property or an annotated field."""
    found = csst
    for part in path.split(".")[1:]:
        if isinstance(found, type) and not hasattr(found, part):
            return any(part in vars(base).get("__annotations__", {}) for base in found.__mro__)
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(f"{found.__name__}.{part}")
            except ImportError:
                return False
    return True


@pytest.mark.parametrize("name", csst.__all__)
def test_every_public_name_is_in_the_glossary(name):
    assert f"csst.{name}" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_glossary_exists(name):
    assert has_name(name)


def test_a_name_that_does_not_exist_is_noticed():
    assert has_name("csst.Confusion.rates")
    assert not has_name("csst.Confusion.ratios")
    assert not has_name("csst.maths.confusions")
    assert not has_name("csst.Gian")
