"""As many draws as users get: here the intervals themselves are tested."""

import pytest

from csst.estimation import expectation

DRAWS = expectation.DRAWS


@pytest.fixture(autouse=True, scope="package")
def _all_draws(_little_work):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expectation, "DRAWS", DRAWS)
        yield
