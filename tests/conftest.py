"""One torch thread, no hypothesis deadline and no cache outside the tests, so that they run the same everywhere."""

import os
from functools import partial

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("csst", deadline=None)
settings.load_profile("csst")


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_tests(tmp_path_factory):
    os.environ["CSST_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def few_trees():
    """Forests of ten trees where the default would have four hundred."""
    from csst.learners import read
    from csst.learners.forest import Forest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "Forest", partial(Forest, trees=10))
        yield
