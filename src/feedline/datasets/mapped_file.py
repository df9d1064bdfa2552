"""How an array is pickled: a mapped file by its name, everything else as one out-of-band buffer.

Takes: an array, `np.memmap` or plain.
Gives: `packed` (what to pickle) and `unpacked` (the array again; a mapped file is opened read-only).
Promises: a worker gets the same bytes, and a 100 GB mapping is never copied into memory for this.
Not its job: deciding where out-of-band buffers go (workers).
"""

from __future__ import annotations

import mmap
import os
from typing import Any, NamedTuple, cast

import numpy as np

from feedline.datasets.reading import Array


class MappedRows(NamedTuple):
    """The file that holds an array, and where in it."""

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    def open(self) -> Array:
        return np.memmap(self.path, dtype=self.dtype, mode="r", offset=self.offset, shape=self.shape)


def packed(array: Array) -> Array | MappedRows:
    """What to pickle in place of `array`.

    >>> packed(np.arange(6)[::2]).flags.c_contiguous
    True
    """
    if isinstance(array, np.memmap):
        mapped = _mapped_rows(array)
        if mapped is not None:
            return mapped
    plain = array.view(np.ndarray)
    # NumPy pickles other layouts, and np.memmap, in band.
    return plain if plain.flags.forc else np.ascontiguousarray(plain)


def unpacked(pickled: Array | MappedRows) -> Array:
    """The array that was packed.

    >>> unpacked(packed(np.arange(3)))
    array([0, 1, 2])
    """
    return pickled.open() if isinstance(pickled, MappedRows) else pickled


def _mapped_rows(array: np.memmap[Any, Any]) -> MappedRows | None:
    """Where the array is in its file, or None if the file may not have the same bytes."""
    mapping, path = cast(Any, array)._mmap, array.filename
    # No path: the result of a calculation, a np.memmap only by name. Mode "c": changes are not written to the file.
    if path is None or array.mode == "c" or not array.flags.c_contiguous or not array.size:
        return None
    # A slice of a memmap keeps its parent's offset, so count from where the mapping starts.
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    into = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    mapped = MappedRows(os.fspath(path), array.dtype, array.shape, start + into)
    return mapped if _same_ends(array, mapped) else None


def _same_ends(array: Array, mapped: MappedRows) -> bool:
    """Does the file still exist, with the same first and last rows? It may have been replaced."""
    try:
        again = mapped.open()
    except (OSError, ValueError):
        return False
    return all(array[row].tobytes() == again[row].tobytes() for row in (0, -1))
