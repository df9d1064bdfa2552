"""Into how many pieces a batch is divided among workers.

Takes: what is known about a loader's samples and the order in which its tasks come back. Gives: a number of pieces; 1
means that the batch stays whole.
Promises: it decides from facts alone; once samples are known to be very fast, their batches are never divided.
Not its job: sending parts out and joining them (batch_splitting).

A batch is divided if the loop would otherwise wait for one worker while others could help. That is so for the first
batches of an epoch, because nothing was prefetched, and while some tasks take much longer than others. A steady flow of
equal batches gains nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

PIECE_SECONDS = 0.002
"""A piece takes at least this long: sending one and taking it in costs about 0.15 ms, less than a tenth of this. No
benchmark chose it: in benchmarks/stragglers.py all pieces are longer."""
PER_WORKER = 2
"""Pieces for each worker while tasks are uneven, so that fast workers take over from slow ones. The best of 1, 2 and 4
in benchmarks/stragglers.py, by little."""
UNKNOWN = 4
"""Pieces for each worker that go out before the first comes back, while nothing is known about the samples."""
JOINING_SHARE = 0.1
"""Joining a batch in the user's process may take at most this share of the time that all workers together need to make
it. Large leaves are in their place already; copying small ones takes 0.12 ms per megabyte."""
REMEMBERED = 256
"""After a task was overtaken, this many further tasks count as uneven."""


class DivisionFacts(NamedTuple):
    """The facts that decide into how many pieces a batch is divided."""

    size: int
    """Samples in the batch."""
    workers: int
    seconds: float | None
    """How long a worker needs for a sample, if that is known."""
    begun: int
    """Pieces (and whole batches) sent out in this epoch before the first came back; then -1."""
    uneven: bool
    """Have later tasks recently overtaken a slow one, in a loop that wants its batches in order?"""
    joining: float = 0.0
    """Seconds per sample that joining a batch takes; 0 if that is not known."""


def pieces_for(facts: DivisionFacts) -> int:
    """The number of pieces; 0 if the batch should wait until the first piece of this epoch is back.

    >>> pieces_for(DivisionFacts(size=64, workers=4, seconds=None, begun=0, uneven=False))
    4
    >>> pieces_for(DivisionFacts(size=64, workers=4, seconds=0.005, begun=-1, uneven=False))
    1
    >>> pieces_for(DivisionFacts(size=64, workers=4, seconds=0.005, begun=-1, uneven=True))
    8
    >>> pieces_for(DivisionFacts(size=64, workers=4, seconds=0.000_01, begun=0, uneven=True))
    1
    """
    if facts.seconds is None:
        return max(1, min(facts.size, facts.workers)) if facts.begun < UNKNOWN * facts.workers else 0
    if facts.uneven:
        wanted = facts.workers * PER_WORKER
    elif facts.begun >= 0:
        wanted = facts.workers
    else:
        return 1
    if facts.joining * facts.workers > facts.seconds * JOINING_SHARE:
        return 1
    return max(1, min(facts.size, wanted, _worth(facts.size, facts.seconds)))


def is_small(size: int, seconds: float) -> bool:
    """Is a batch of this many samples never worth dividing?

    >>> is_small(8, 0.000_01), is_small(64, 0.001)
    (True, False)
    """
    return _worth(size, seconds) < 2


def _worth(size: int, seconds: float) -> int:
    """The most pieces that all take long enough."""
    return int(size * seconds / PIECE_SECONDS)


def bounds(size: int, pieces: int) -> list[tuple[int, int]]:
    """Where each piece begins and ends; their lengths differ by at most one sample.

    >>> bounds(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    edges = [size * number // pieces for number in range(pieces + 1)]
    return list(pairwise(edges))


@dataclass
class Division:
    """What a loader has learnt about dividing its batches, in all its epochs."""

    never: bool = False
    """Batches of this loader turned out not to be divisible."""
    seconds: float | None = None
    """How long a worker needs for a sample, on average."""
    quickest: float = math.inf
    """Seconds per sample in the fastest piece: with more workers than CPUs, the others mostly waited for a CPU. (16
    idle workers in benchmarks/growth.py: 1 ms a sample on average, so batches of 0.5 ms would be divided.)"""
    joining: float | None = None
    """Seconds per sample for joining a batch, at best: the first time costs more, because its memory is new."""


class Race:
    """Does one of the parts that are out take much longer than those sent just before and after it?

    Workers finish equal parts about in order: while one worker makes a part, each of the others makes one too.

    >>> race = Race()
    >>> race.back(was_first=False, workers=2); race.is_uneven
    False
    >>> race.back(was_first=False, workers=2); race.is_uneven
    True
    """

    def __init__(self) -> None:
        self._past = 0
        self._uneven_for = 0

    def sent(self) -> None:
        """A part goes out."""
        if self._uneven_for:
            self._uneven_for -= 1

    def back(self, was_first: bool, workers: int) -> None:
        """A part is back. `was_first`: was it sent before all others that are out?"""
        if was_first:
            self._past = 0
            return
        self._past += 1
        if self._past >= workers:
            self._uneven_for = REMEMBERED

    def begin(self) -> None:
        """A run begins; whether tasks are uneven is remembered."""
        self._past = 0

    @property
    def is_uneven(self) -> bool:
        """Has a part been overtaken recently?"""
        return self._uneven_for > 0
