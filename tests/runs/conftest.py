"""A recipe of forty steps."""

from dataclasses import replace

import pytest

from csst.recipes import recipe


@pytest.fixture
def short():
    base = recipe("toy")
    data = replace(base.data, labeled=90, unlabeled=120, validation=20, test=40)
    return replace(base, data=data, training=replace(base.training, steps=40))
