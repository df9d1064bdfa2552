"""Does a worker's memory grow, and why? Pure functions from measurements to a finding.

Takes: what was measured, when. Gives: a `Growth`, or nothing.
Promises: growth that stops is no finding (a cache that fills, imports, the first epoch); no process is accessed here.
Not its job: measuring and warning (worker_memory).

Why not just private memory and Rss? Both include the slots of batches, which vary with what the user does. Anonymous
memory ("own") contains Python's objects and no slots. It grows with a leak. Reading objects inherited by fork copies
their pages: then private memory grows, but anonymous memory does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

MB = 1 << 20
STEPS = 3
"""Growth must show at the end of this many epochs in a row, after one epoch that may only have warmed up."""
STEPS_WITHIN = 6
"""The same within an epoch: at one measurement per 10 s, a minute."""
LEAST, LEAST_SHARE, MUCH = 32 * MB, 0.2, 256 * MB
"""Growth must be at least 32 MB, and at least a fifth of the memory it began with or 256 MB, whichever is less: a
forked worker begins with all that its parent had. A slow leak gets there in time, because steps become longer."""
EVENNESS = 0.5
"""The slowest step must grow at least at this share of the fastest step's rate. A cache that fills slows down: if each
of two workers keeps the shuffled samples it reads, it grows half as much in each epoch as in the one before. So no step
is below 2 MB, where the noise of Python's allocator begins."""
LEAST_COPIED = 32 * MB
"""A forked worker copies about 10 MB of the interpreter and its libraries just by running."""
MOST_POINTS = 8


class Point(NamedTuple):
    """A measurement: when (in epochs or minutes), and how many bytes."""

    when: float
    own: int


class Growth(NamedTuple):
    """Memory grew steadily between two moments."""

    since: Point
    until: Point

    @property
    def rate(self) -> float:
        """Bytes per epoch, or per minute."""
        return (self.until.own - self.since.own) / (self.until.when - self.since.when)


class History:
    """Measurements of one process. When there are many, every second one is dropped, so that slow growth shows too.

    >>> history = History()
    >>> for when in range(40):
    ...     _ = history.add(Point(when, 0))
    >>> [point.when for point in history.points]
    [0, 8, 16, 24, 32]
    """

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._every = 1
        self._seen = 0

    def add(self, point: Point) -> bool:
        """Add a measurement. Is it kept?"""
        kept = self._seen % self._every == 0
        self._seen += 1
        if kept:
            self.points.append(point)
            if len(self.points) > MOST_POINTS:
                self.points = self.points[::2]
                self._every *= 2
        return kept


def steady(points: Sequence[Point], steps: int = STEPS, least_share: float = LEAST_SHARE) -> Growth | None:
    """Growth in each of the last `steps` steps, at a similar rate, and large enough in total; else None.

    >>> growth = steady([Point(epoch, epoch * 20 * MB) for epoch in range(1, 5)])
    >>> growth.rate / MB
    20.0
    """
    window = points[-steps - 1 :]
    if len(window) <= steps:
        return None
    rates = []
    for before, after in pairwise(window):
        if after.when <= before.when:
            return None
        rates.append((after.own - before.own) / (after.when - before.when))
    grown = window[-1].own - window[0].own
    least = max(LEAST, min(least_share * window[0].own, MUCH))
    if grown < least or min(rates) < EVENNESS * max(rates):
        return None
    return Growth(window[0], window[-1])


def copied(own_at_fork: int, own: int, private: int) -> int:
    """Bytes that were shared after the fork and no longer are: private memory that is not newly allocated.

    >>> copied(own_at_fork=500, own=520, private=120)
    100
    """
    return private - max(0, own - own_at_fork)
