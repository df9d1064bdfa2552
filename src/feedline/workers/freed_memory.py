"""A worker keeps the memory of the samples it has freed, because the next batch needs as much again.

Promises: up to `KEPT` bytes at the end of the heap stay in the worker; more goes back to the system. What the user has
set for glibc's malloc stays, and another malloc is left alone.
Not its job: the memory of batches (arena), the main process, whose memory is the user's.
"""

from __future__ import annotations

import ctypes
import os

KEPT = 1 << 26
"""Bytes that a worker keeps: a batch of 64 × 3×224×224 floats is 38 MB. By default glibc keeps 128 kB, or twice the
largest freed block, so that each batch gets all its pages again from the system: 510 µs of CPU time for such a sample
instead of 160, and 120 µs instead of 50 in benchmarks/peers ("large")."""
_LARGEST_IN_HEAP = 1 << 25
"""glibc's upper limit: larger blocks are mapped, and go back to the system when they are freed."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_USERS_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")


def keep_freed_memory() -> None:
    """Called in a worker, before its first sample."""
    if any(name in os.environ for name in _USERS_OWN) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # only glibc has it
        mallopt(_TRIM_THRESHOLD, KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
