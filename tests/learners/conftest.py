"""The default's learners as users get them, where a test is about what they are."""

import pytest

from csst.learners import forest, linear, read


@pytest.fixture
def all_variants(monkeypatch):
    monkeypatch.setattr(read, "TREES", forest.TREES)
    monkeypatch.setattr(read, "PENALTIES", linear.PENALTIES)
