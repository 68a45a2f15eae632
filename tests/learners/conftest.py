"""Forests of ten trees where the default would have four hundred."""

from functools import partial

import pytest

from csst.learners import read
from csst.learners.forest import Forest


@pytest.fixture(scope="module")
def few_trees():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "Forest", partial(Forest, trees=10))
        yield
