"""Results to look at: one self-contained HTML page."""

from csst.report.comparison import outcomes_page
from csst.report.page import comparison_page, report_page
from csst.report.run_view import thin

__all__ = ["comparison_page", "outcomes_page", "report_page", "thin"]
