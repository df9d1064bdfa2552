"""Ordinary memory for batches that are made and used in one process, checked against the limits as the process grows.

Takes: the sizes of leaves. Gives: whether they may be in ordinary memory; a `MemoryShortage` if too little is left.
Promises: a user who keeps every batch gets an error before the system kills the process, as with slots; memory that is
used again costs nothing, and memory that was freed inside the C library's heap counts as free.
Not its job: leaves of over `LARGEST` bytes, for which the C library asks the system each time (slots keep theirs).

Measured by benchmarks/ordinary_memory.py: 16 rows are stacked into ordinary memory in 10 µs if they have 256 KB (in a
slot 19), in 108 if 4 MB (122), in 950 if 16 MB (1,084), but in 4,650 if 32 MB (3,470).
"""

from __future__ import annotations

import ctypes
import mmap

from feedline.arena.segment import available, check_room
from feedline.errors import MemoryShortage

LARGEST = 1 << 24
"""Half of what segment.RESERVE leaves free: so much may be taken between two looks."""
LOOK = 1 << 23
"""After so many bytes the process's size is read: 6 µs, and writing so much takes 200."""

_given = 0
_checked = 0
"""Bytes given out since the last look, and the process's size when the limits were last checked. Of the whole process,
and not exact with several threads; they need not be."""


def may_give(size: int) -> bool:
    """May a large leaf be in ordinary memory? Raises `MemoryShortage` if too little is left."""
    if size > LARGEST:
        return False
    note(size)
    return True


def note(size: int) -> None:
    """So many bytes go to the user, in ordinary memory that is just taken or was taken by the user's own code. Raises
    `MemoryShortage` if too little is left."""
    global _given
    _given += size
    if _given >= LOOK:
        _look(size)


def _look(size: int) -> None:
    global _given, _checked
    now = _resident()
    if now > _checked + LOOK or not now:
        try:
            check_room(size)
        except MemoryShortage:
            if not _trim():
                raise
            check_room(size)
            now = _resident()
        _checked = now
    _checked = min(now, _checked)  # after it has shrunk, others may have taken the memory
    _given = 0


def _trim() -> bool:
    """Have the C library give back memory that has been freed inside its heap; only glibc can. Was there any?"""
    trim = getattr(_libc, "malloc_trim", None)
    return trim is not None and bool(trim(0))


_libc = ctypes.CDLL(None) if available else None


def _resident() -> int:
    try:
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            return int(statm.read().split()[1]) * mmap.PAGESIZE
    except OSError:  # not Linux
        return 0
