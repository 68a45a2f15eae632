"""Results to look at."""

from csst.report.page import comparison_page

__all__ = ["comparison_page"]
