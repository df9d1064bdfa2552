"""Many paths, stored compactly: one buffer of bytes, and where each path begins.

Takes: strings, bytes or Path objects, in a list, an array, a column of a table. Gives: `Names`, a read-only sequence.
Promises: about the length of a path plus 8 bytes for each, and no Python object: reading changes no page that forked
workers share; both arrays pickle out of band. File names that are not UTF-8 are returned unchanged.
Not its job: what is read under these names (files_dataset), other records (SharedList).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, overload

import numpy as np

from feedline.datasets import Array
from feedline.errors import OptionError, OptionTypeError

AT_ONCE = 65_536
"""Paths joined at a time: that many are Python strings at the same time."""


class Names(Sequence[str]):
    """Packed paths. `each` gets them in lists of some thousands before they are packed, and returns them; `what` is
    the name that errors give to all of them.

    >>> names = Names(["a/1.jpg", "b/ü.jpg"])
    >>> len(names), names[-1], names[:1], names.nbytes
    (2, 'b/ü.jpg', ['a/1.jpg'], 39)
    """

    def __init__(
        self, paths: Iterable[Any], each: Callable[[list[str]], list[str]] = lambda paths: paths, what: str = "paths"
    ) -> None:
        parts, ends, count, before = [], [np.zeros(1, np.int64)], 0, 0
        for given in _lists(paths):
            joined = os.fsencode("\0".join(each(_as_strings(given, count, what))) + "\0")
            packed = np.frombuffer(joined, np.uint8)
            stops = np.flatnonzero(packed == 0)
            if len(stops) != len(given):
                raise OptionError(f"{what}: one has a zero byte in it, which no name of a file can have")
            # Without the zero bytes, the k-th end moves back by k.
            parts.append(packed[packed != 0])
            ends.append(before + stops - np.arange(len(stops)))
            before += len(parts[-1])
            count += len(given)
        self._data: Array = np.concatenate(parts) if parts else np.empty(0, np.uint8)
        self._offsets: Array = np.concatenate(ends)

    @property
    def nbytes(self) -> int:
        """The size of both arrays.

        >>> Names([]).nbytes
        8
        """
        return self._data.nbytes + self._offsets.nbytes

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        place = range(len(self))[index]
        return os.fsdecode(self._data[self._offsets[place] : self._offsets[place + 1]].tobytes())

    def __repr__(self) -> str:
        return f"Names({len(self)} paths, {self.nbytes} bytes)"


def _lists(paths: Iterable[Any]) -> Iterator[list[Any]]:
    """The paths, some thousands at a time: Arrow's columns make Python strings quickly, but not one by one."""
    if hasattr(paths, "to_pylist"):
        for chunk in getattr(paths, "chunks", [paths]):
            for start in range(0, len(chunk), AT_ONCE):
                yield chunk[start : start + AT_ONCE].to_pylist()
        return
    given = iter(paths)
    while part := list(islice(given, AT_ONCE)):
        yield part


def _as_strings(paths: list[Any], first: int, what: str) -> list[str]:
    if {*map(type, paths)} <= {str, np.str_}:
        return paths
    return [_as_string(path, first + place, what) for place, path in enumerate(paths)]


def _as_string(path: Any, place: int, what: str) -> str:
    try:
        return os.fsdecode(path)  # accepts strings, bytes and Path objects
    except TypeError:
        raise OptionTypeError(f"{what} must be strings or Path objects, but {what}[{place}] is {path!r}") from None
