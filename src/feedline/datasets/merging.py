"""One batch from the batches of several datasets.

Takes: batches, and the places of their samples in the whole batch. Gives: the whole batch.
Promises: the same as default collation of all the samples; NotImplemented if the batches differ in shape or kind, so
that collation can decide or raise an error.
Not its job: making the batches (joining).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from feedline.datasets.reading import SMALL_LEAF, Empty, IntArray


def merged(batches: Sequence[Any], places: Sequence[IntArray], empty: Empty) -> Any:
    """Put the samples of each batch at their places in the whole batch.

    >>> both = merged([(np.array([1, 2]),), (np.array([30]),)], [np.array([0, 2]), np.array([1])], np.empty)
    >>> both[0].tolist()
    [1, 30, 2]
    """
    first = batches[0]
    if len({type(batch) for batch in batches}) > 1:
        return NotImplemented
    if type(first) is np.ndarray:
        return _merged_arrays(batches, places, empty)
    if type(first) is tuple and len({len(batch) for batch in batches}) == 1:
        fields = [merged(column, places, empty) for column in zip(*batches, strict=True)]
        return NotImplemented if any(field is NotImplemented for field in fields) else tuple(fields)
    if type(first) is dict and all(batch.keys() == first.keys() for batch in batches):
        values = merged([tuple(batch[key] for key in first) for batch in batches], places, empty)
        return NotImplemented if values is NotImplemented else dict(zip(first, values, strict=True))
    return NotImplemented


def _merged_arrays(arrays: Sequence[Any], places: Sequence[IntArray], empty: Empty) -> Any:
    first = arrays[0]
    if len({(array.dtype, array.shape[1:]) for array in arrays}) > 1:
        return NotImplemented
    shape = (sum(map(len, places)), *first.shape[1:])
    size = sum(array.nbytes for array in arrays)
    whole = empty(shape, first.dtype) if size >= SMALL_LEAF else np.empty(shape, first.dtype)
    for array, at in zip(arrays, places, strict=True):
        whole[at] = array
    return whole
