"""The default's learners as users get them, where a test is about what they are."""

import pytest

from csst.learners import catalog, forest, linear


@pytest.fixture
def all_variants(monkeypatch):
    monkeypatch.setattr(catalog, "TREES", forest.TREES)
    monkeypatch.setattr(catalog, "PENALTIES", linear.PENALTIES)
