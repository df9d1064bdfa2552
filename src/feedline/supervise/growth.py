"""Does a worker's memory grow, and why? Pure functions from measurements to a finding.

Takes: what was measured, when. Gives: a `Growth`, or nothing.
Promises: growth that stops is no finding (a cache that fills, imports, the first epoch); no process is touched here.
Not its job: measuring and telling (memory).

Why not simply private memory and Rss: both hold the batches' slots too, which come and go with the user's own doing.
Anonymous memory ("own") holds Python's objects and no slots. It grows with a leak. Reading objects inherited by
fork copies their pages, and leaves it as it was: then private memory grows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

MB = 1 << 20
STEPS = 3
"""Epochs' ends in a row that must show growth, after one that may be the end of warming up."""
STEPS_WITHIN = 6
"""Within an epoch there is less to go by: at 10 s a look, a minute."""
LEAST, LEAST_SHARE, MUCH = 32 * MB, 0.2, 256 * MB
"""In all, and a fifth of what there was unless it is much: a forked worker has all that its parent had. A slow leak
gets there in time, because the steps become longer."""
EVENNESS = 0.5
"""The slowest step's rate, as a share of the fastest's. A cache that fills slows down: one of two workers that keeps
what it gets of a shuffled dataset grows half as much in each epoch as in the one before. It also means that no step is
below 2 MB, where the noise of Python's allocator begins."""
LEAST_COPIED = 32 * MB
"""A forked worker copies some 10 MB of the interpreter and its libraries by merely running."""
MOST_POINTS = 8


class Point(NamedTuple):
    """A measurement: when (in epochs, or in minutes), and how much."""

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
    """Measurements of one process, thinned out as they become many, so that slow growth shows as well.

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
        """Is it kept?"""
        kept = self._seen % self._every == 0
        self._seen += 1
        if kept:
            self.points.append(point)
            if len(self.points) > MOST_POINTS:
                self.points = self.points[::2]
                self._every *= 2
        return kept


def steady(points: Sequence[Point], steps: int = STEPS, least_share: float = LEAST_SHARE) -> Growth | None:
    """Growth in each of the last `steps` steps, at much the same rate, and much in all.

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
    """Bytes that were shared after the fork and are not any more: private memory beyond what came anew.

    >>> copied(own_at_fork=500, own=520, private=120)
    100
    """
    return private - max(0, own - own_at_fork)
