"""The places of values in ascending order, as fast as the values allow.

Takes: an array of numbers. Gives: the places that sort it; equal values keep their order. Not its job: anything else.
"""

from __future__ import annotations

import numpy as np

from feedline.datasets import Array, IntArray


def places_by(values: Array) -> IntArray:
    """The places that sort the values.

    >>> places_by(np.array([30, 10, 20, 10])).tolist()
    [1, 3, 2, 0]
    """
    if values.size and values.dtype.kind in "iu" and values.min() >= 0 and values.max() < 1 << 16:
        # NumPy sorts 16-bit integers by counting: 10 million take 0.15 s instead of 1 s.
        values = values.astype(np.uint16)
    return np.argsort(values, kind="stable")
