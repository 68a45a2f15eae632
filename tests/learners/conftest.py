"""The default's learners with less to try, where a test is about what is made of them."""

import pytest

from csst.learners import read
from csst.learners.forest import Forest


def small_forest(trees):
    return Forest(trees=min(trees, 10))


@pytest.fixture(scope="module")
def small_members():
    """Forests of ten trees at most and one penalty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "Forest", small_forest)
        patch.setattr(read, "PENALTIES", (0.1,))
        yield
