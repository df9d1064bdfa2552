"""SQLite's columns hold values of any type, and ADBC converts them to one type: here lost digits are detected.

Takes: a record batch that ADBC made. Gives: nothing, or MixedTypes: then the query is run again by Python's own
sqlite3, which gives each value unchanged, and the values are converted to texts (or bytes) here, in full.
Promises: no number loses a digit. ADBC writes a fraction among texts with seven digits (1.234568e-01), and an integer
among fractions with 53 bits; whatever looks like one of these is suspected, even if it was a text all along.
Not its job: integers among texts: ADBC writes those in full.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors.missing_packages import extra
from feedline.sources.sql.gathering import text_parts
from feedline.sources.sql.mistakes import MixedTypes

EXACT = 2.0**53
"""From here on float64 cannot represent every integer…"""
LARGEST = 2.0**63
"""…and from here on SQLite has no integers."""
SHORTEST, LONGEST = len("1.000000e+00"), len("-1.000000e+300")
SIGNS = (ord("+"), ord("-"))


def check_digits(batch: Any) -> None:
    """MixedTypes if a column may have lost digits."""
    arrow = extra("pyarrow", "sql", "SQL")
    types = arrow.types
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if types.is_float64(array.type):
            suspect = _may_have_been_whole(array.drop_null().to_numpy())
        elif types.is_string(array.type) or types.is_binary(array.type):
            suspect = _may_have_been_fractions(*text_parts(arrow, array))
        else:
            continue
        if suspect:
            raise MixedTypes(f"column {name} may have lost digits")


def _may_have_been_whole(values: npt.NDArray[Any]) -> bool:
    size = np.abs(values)
    return bool(((size >= EXACT) & (size < LARGEST)).any())


def _may_have_been_fractions(starts: npt.NDArray[Any], content: npt.NDArray[np.uint8]) -> bool:
    """Does any text look as if written by C's %e: a digit, a dot, six digits, e, a sign, two or three digits?"""
    sizes = np.diff(starts)
    ends = starts[1:][(sizes >= SHORTEST) & (sizes <= LONGEST)]
    for exponent in (2, 3):
        at = ends - exponent - 2  # where the e would be
        if ((content[at] == ord("e")) & (content[at - 7] == ord(".")) & np.isin(content[at + 1], SIGNS)).any():
            return True
    return False
