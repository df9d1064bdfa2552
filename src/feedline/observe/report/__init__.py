"""A recording as one HTML page: pure functions make plain data, and a template shows it."""

from feedline.observe.report.report_page import page_of

__all__ = ["page_of"]
