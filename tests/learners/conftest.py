"""The default's learners with less to try, where a test is about what is made of them."""

from functools import partial

import pytest

from csst.learners import read
from csst.learners.forest import Forest


@pytest.fixture(scope="module")
def small_members():
    """Forests of ten trees and one penalty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "Forest", partial(Forest, trees=10))
        patch.setattr(read, "PENALTIES", (0.1,))
        yield
