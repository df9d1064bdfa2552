"""A recording as one HTML page: what is shown is plain data made by pure functions, how it is shown is a template."""

from feedline.observe.report.report_page import page_of

__all__ = ["page_of"]
