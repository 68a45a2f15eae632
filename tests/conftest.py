"""One torch thread, no hypothesis deadline and no cache outside the tests, so that they run the same everywhere."""

import os

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("csst", deadline=None)
settings.load_profile("csst")


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_tests(tmp_path_factory):
    os.environ["CSST_CACHE"] = str(tmp_path_factory.mktemp("cache"))
