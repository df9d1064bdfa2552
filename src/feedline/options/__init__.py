"""A loader's options. Each is declared once (table), checked alone (single_values) and with others (together, core).

The names that other packages need are here; code that makes a front imports from the files.
"""

from feedline.options.needed import Options
from feedline.options.single_values import LOCAL_KINDS
from feedline.options.table import ErrorPolicy
from feedline.options.together import check_sampler

__all__ = ["LOCAL_KINDS", "ErrorPolicy", "Options", "check_sampler"]
