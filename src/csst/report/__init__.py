"""Results to look at: one self-contained HTML page."""

from csst.report.journal import thinned_journal
from csst.report.page import comparison_page, report_page

__all__ = ["comparison_page", "report_page", "thinned_journal"]
