"""A stored file opened for a library that seeks: on disk its path, elsewhere ranges of it.

Takes: a place and a name, or bytes. Gives: a path, or a file object that reads ranges when they are asked for.
Promises: of an object in object storage only blocks that are needed are read; an error of the place is kept, because
libraries that call back from C lose it.
Not its job: what is in the file (sound_window, video_clip).
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from feedline.errors import SourceError
from feedline.sources.places import FilePlace

BLOCK = 1 << 18
"""Bytes of a request: a window of compressed sound is smaller, and a request costs as long as reading this much."""
Source = str | bytes
"""A path on disk, or a whole file."""


class StoredRanges(io.RawIOBase):
    """An object as a file: what is read is asked for."""

    def __init__(self, place: FilePlace, name: str) -> None:
        self._place, self._name = place, name
        self._size = place.size(name)
        self._at = 0
        self.failure: Exception | None = None
        """What went wrong first."""

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read from any place."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """The next byte to be read."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """One request."""
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        try:
            data = self._place.read_range(self._name, self._at, end)
        except Exception as error:
            self.failure = self.failure or error
            raise
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextmanager
def opened(source: Source, place: FilePlace | None = None) -> Iterator[Any]:
    """What a library may open: a path, or a file object."""
    if place is not None:
        assert isinstance(source, str)
        ranges = StoredRanges(place, source)
        try:
            yield io.BufferedReader(ranges, BLOCK)
        except Exception:
            if ranges.failure is not None:  # the cause, which the library's own error does not name
                raise ranges.failure from None
            raise
    elif isinstance(source, bytes):
        if not source:
            raise SourceError("the file is empty")
        yield io.BytesIO(source)
    else:
        size = os.stat(source).st_size  # a missing file is a FileNotFoundError that names it
        if not os.path.isfile(source):
            raise SourceError("is not a regular file")
        if not size:
            raise SourceError("the file is empty")
        yield source
