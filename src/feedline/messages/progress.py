"""Where a worker is: a row of integers that it writes and whoever watches it reads.

Takes: nothing. Gives: the row's layout, and `Row`, which a worker process has in shared memory and a thread in a list.
Promises: two stores per sample, no locks; a row says what its worker was at even after it was killed.
Not its job: what follows from it (supervise).
"""

from __future__ import annotations

import time
from typing import Protocol

WIDTH = 8
"""Integers in a row: a cache line, so that no two workers write to the same one."""
TASK, PLACE, SINCE, MEMORY, INDEX, FETCHED, COLLATED, SENT = range(8)
"""The task's serial number; the sample's place in it, or one of the below; since when; bytes in use when last seen; the
index being read if it is not the one the task names at that place (a neighbour, in its stead), plus one, or 0; the
nanoseconds that whoever was in this place has spent on reading samples, making batches and handing them over.
"""

PREPARING, AT_ONCE, COLLATING, SENDING, INITIALISING, SETTING_UP, IDLE, LEAVING = range(-1, -9, -1)
"""Instead of a place: about to begin; all samples in one call; making the batch; handing it over; in worker_init_fn;
being born; waiting for a task; dismissed, and on its way out."""

_AMONG = -100
"""From here downwards: the sample at that place is the first, of several that are being read, that is not finished."""

clock = time.monotonic_ns
"""The same clock in every process of a machine."""


class Row(Protocol):
    """One worker's integers."""

    def __getitem__(self, item: int, /) -> int: ...
    def __setitem__(self, item: int, value: int, /) -> None: ...


def among(place: int) -> int:
    """What a worker that reads several samples at a time writes instead of a place: of the first that it waits for."""
    return _AMONG - place


def place_among(place: int) -> int | None:
    """The sample's place, if that is what was written; it need not be the one that has killed a worker.

    >>> place_among(among(3)), place_among(3), place_among(IDLE)
    (3, None, None)
    """
    return _AMONG - place if place <= _AMONG else None


def unwatched() -> Row:
    """A row that nobody reads."""
    return [0] * WIDTH
