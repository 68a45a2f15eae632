"""One torch thread, no hypothesis deadline and no cache outside the tests, so that they run the same everywhere.

And no work that no test looks at: the same numbers are not computed again, intervals come from few draws.
"""

import os
from functools import cache, partial

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("csst", deadline=None)
settings.load_profile("csst")


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_tests(tmp_path_factory):
    os.environ["CSST_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True, scope="session")
def _little_work():
    """A third of the time of a short run. tests/statistics takes as many draws as users get."""
    from csst.data.toy import Gaussians
    from csst.statistics import expectation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expectation, "DRAWS", 40)
        patch.setattr(Gaussians, "minimax", cache(Gaussians.minimax))  # 400 rounds for each task, always the same
        if not torch.cuda.is_available():  # torch would keep the stack of every seed, once per step, until there is
            patch.setattr(torch.cuda, "manual_seed_all", lambda seed: None)
        yield


@pytest.fixture(scope="module")
def few_trees():
    """Forests of ten trees where the default would have four hundred."""
    from csst.learners import read
    from csst.learners.forest import Forest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "Forest", partial(Forest, trees=10))
        yield
