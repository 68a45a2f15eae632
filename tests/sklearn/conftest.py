"""Intervals from few draws: these tests look at what they are made from, tests/statistics at how well they hold."""

import pytest

from csst.statistics import expectation


@pytest.fixture(autouse=True, scope="package")
def _few_draws():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expectation, "DRAWS", 40)
        yield
