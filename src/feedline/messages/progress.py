"""What a worker is doing: a row of integers that the worker writes and the main process reads.

Takes: nothing. Gives: the row's layout, and `Row`: in shared memory for a worker process, in a list for a thread.
Promises: two stores per sample, no locks; a row says what its worker was doing even after the worker was killed.
Not its job: what to do about it (supervise).
"""

from __future__ import annotations

import time
from typing import Protocol

WIDTH = 8
"""Integers in a row: a cache line, so that no two workers write to the same cache line."""
TASK, PLACE, SINCE, MEMORY, INDEX, FETCHED, COLLATED, SENT = range(8)
"""The part's serial number; the sample's place in it, or a code from below; since when; bytes in use at the latest
measurement; the index being read plus one if it is a replacement for the sample at that place, else 0; the nanoseconds
that all workers with this number have spent on reading samples, making batches and sending them.
"""

PREPARING, AT_ONCE, COLLATING, SENDING, INITIALISING, SETTING_UP, IDLE, LEAVING = range(-1, -9, -1)
"""Codes instead of a place: about to begin; reading all samples in one call; making the batch; sending it; in
worker_init_fn; starting; waiting for a task; dismissed and about to leave."""

_AMONG = -100
"""Codes from here downwards: several samples are being read, and the one at that place is the first unfinished one."""

clock = time.monotonic_ns
"""The same clock in every process of a machine."""


class Row(Protocol):
    """One worker's integers."""

    def __getitem__(self, item: int, /) -> int: ...
    def __setitem__(self, item: int, value: int, /) -> None: ...


def among(place: int) -> int:
    """The code that a worker writes if it reads several samples at a time; `place` is the first it waits for."""
    return _AMONG - place


def place_among(place: int) -> int | None:
    """The place in such a code; None if it is not one. Another of the samples may have killed the worker.

    >>> place_among(among(3)), place_among(3), place_among(IDLE)
    (3, None, None)
    """
    return _AMONG - place if place <= _AMONG else None


def unwatched() -> Row:
    """A row that nobody reads."""
    return [0] * WIDTH
