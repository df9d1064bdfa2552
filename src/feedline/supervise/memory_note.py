"""How much memory a worker has in use, noted now and then for the day it is killed for it.

Takes: the worker's row. Promises: at most twenty short reads of /proc a second.
Not its job: judging the number (telling, growth).
"""

from __future__ import annotations

import mmap
import os

from feedline.progress import MEMORY, Row, clock

_EVERY = 50_000_000  # ns


class MemoryNote:
    """Writes resident memory into a row."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._next = 0
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self.take()

    def take(self) -> None:
        """Note it, unless that was done a moment ago."""
        now = clock()
        if now >= self._next:
            self._next = now + _EVERY
            self._row[MEMORY] = int(os.pread(self._statm, 64, 0).split()[1]) * mmap.PAGESIZE
