"""Here figures are drawn as users see them."""

import pytest

from csst.report.figures import svg

WRITE_SVG = svg.write_svg


@pytest.fixture(autouse=True, scope="package")
def _real_figures(_little_work):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svg, "write_svg", WRITE_SVG)
        yield
