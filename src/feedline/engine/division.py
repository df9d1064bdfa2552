"""Into how many pieces a batch is divided among workers.

Takes: what is known of a loader's samples and of how its tasks come back. Gives: a number of pieces, 1 for the whole.
Promises: decided from facts alone; samples that take next to no time are never divided once that is known.
Not its job: sending parts out and putting them together (splitting).

A batch is divided where somebody would wait for one worker while others could help: the first batches of an epoch,
before which nothing has been made ahead, and all batches while some tasks take much longer than others. A steady flow
of equal batches gains nothing from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

PIECE_SECONDS = 0.002
"""A piece takes at least that long: to send one out and take it in costs about 0.15 ms, less than a tenth of it. Not
chosen by a benchmark: in benchmarks/stragglers.py all pieces are longer."""
PER_WORKER = 2
"""Pieces for each worker while tasks are uneven, so that whoever is not held up takes over: of 1, 2 and 4 the best in
benchmarks/stragglers.py, by little."""
UNKNOWN = 4
"""Pieces for each worker that go out before the first has come back, when nothing is known of the samples."""
JOINING_SHARE = 0.1
"""Of the time in which all workers together make a batch, the most that joining it may take the user's process.
Large leaves are in their place already; a copy of small ones takes 0.12 ms a megabyte."""
REMEMBERED = 256
"""Tasks after one that was overtaken for which that counts."""


class DivisionFacts(NamedTuple):
    """What a division follows from."""

    size: int
    """Samples in the batch."""
    workers: int
    seconds: float | None
    """What a sample takes, as far as it is known."""
    begun: int
    """Pieces (and whole batches) sent out in this epoch before any came back; -1 if one has."""
    uneven: bool
    """Has a task lately taken so long that others overtook it, in a loop that wants its batches in order?"""
    joining: float = 0.0
    """Seconds that putting a batch together takes, for each sample, as far as it is known."""


def pieces_for(facts: DivisionFacts) -> int:
    """How many; 0 if the batch had better wait until one has come back.

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
    """Is a batch of so many samples never worth dividing?

    >>> is_small(8, 0.000_01), is_small(64, 0.001)
    (True, False)
    """
    return _worth(size, seconds) < 2


def _worth(size: int, seconds: float) -> int:
    """Pieces that all take long enough."""
    return int(size * seconds / PIECE_SECONDS)


def bounds(size: int, pieces: int) -> list[tuple[int, int]]:
    """Where each piece begins and ends; none is more than a sample longer than another.

    >>> bounds(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    edges = [size * number // pieces for number in range(pieces + 1)]
    return list(pairwise(edges))


@dataclass
class Division:
    """What a loader knows of dividing its batches, for all its epochs."""

    never: bool = False
    """It has been found that its batches have to be made whole."""
    seconds: float | None = None
    """What a sample takes a worker."""
    quickest: float = math.inf
    """…in the piece that took the least: with more workers than CPUs the others have mostly waited for one. (16 workers
    with nothing to do, benchmarks/growth.py: 1 ms a sample on average, and so pieces of batches that take 0.5 ms.)"""
    joining: float | None = None
    """What putting a batch together takes at best, for each sample: the first time memory is new, which costs more."""


class Race:
    """Parts sent out one after the other: does one of them take much longer than those around it?

    Workers finish equal parts about in order: while one takes one part, each of the others takes one, too.

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
        """One is back; was it, of those that were out, the one that was sent first?"""
        if was_first:
            self._past = 0
            return
        self._past += 1
        if self._past >= workers:
            self._uneven_for = REMEMBERED

    def begin(self) -> None:
        """A run begins; what has been found stays."""
        self._past = 0

    @property
    def is_uneven(self) -> bool:
        """Has one been overtaken lately?"""
        return self._uneven_for > 0
