"""Figures as users see them, where a test looks at what is drawn."""

import pytest

from tests.report.samples import draw_figures


@pytest.fixture
def real_figures():
    with draw_figures():
        yield
