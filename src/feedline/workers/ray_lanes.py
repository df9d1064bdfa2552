"""Which parts a worker of a Ray cluster gets with its next call.

Takes: parts as they are sent, what calls took, how large batches were. Gives: the parts of one call.
Promises: a call carries `WORTHWHILE` seconds of work if there is so much, but not what other free workers could make;
no more batches are out than `SHARE_OF_STORE` of Ray's memory on this machine holds; parts of a run that is over are
given back without being made, except where a worker must stay in step. Pure: nothing here knows Ray.
Not its job: sending (ray_fleet), what was sent to whom (ledger).
"""

from __future__ import annotations

import math
from collections import deque

from feedline.engine.ledger import Part

WORTHWHILE = 0.01
"""Seconds of work that a call carries if there is enough: a call takes 1 to 2 ms (benchmarks/ray_overhead.py)."""
SHARE_OF_STORE = 0.5
"""Of Ray's memory on this machine; the rest is for the user's own objects."""


class Lanes:
    """The parts that no worker has taken yet: in one lane for all workers, or (`own`) in one for each."""

    def __init__(self, own: bool, makes_all: bool) -> None:
        self.own = own
        self.oldest = 0
        """Parts of earlier runs are not wanted any more."""
        self.unopened = 0
        """Batches that have come and are not copied out of Ray's memory yet."""
        self._makes_all = makes_all
        self._lanes: list[deque[Part]] = [deque()]
        self._store = 0.0
        self._cost = math.inf
        self._largest = 0

    def open(self, lanes: int, store: float) -> None:
        """There are so many lanes, and Ray's memory has so many bytes."""
        self._lanes, self._store = [deque() for _ in range(lanes)], store

    def add(self, part: Part, first: bool) -> None:
        """A part to be made, after all others or before them."""
        number = part.task.lane % len(self._lanes)
        if self.own:
            part.worker = number
        if first:
            self._lanes[number].appendleft(part)
        else:
            self._lanes[number].append(part)

    def take(self, worker: int, run: int, ready: int, out: int) -> tuple[list[Part], list[Part]]:
        """What that worker, whose latest part was of `run`, makes next; and parts that need not be made.

        `ready` workers could take parts, and `out` parts are with workers."""
        lane = self._lane_of(worker)
        chosen: list[Part] = []
        unwanted: list[Part] = []
        most = self._most(len(lane), max(1, ready))
        while lane and len(chosen) < most:
            part = lane.popleft()
            if self._is_unwanted(part, run):
                unwanted.append(part)
            elif self._has_room(out + self.unopened + len(chosen)):
                run = part.entry.run
                chosen.append(part)
            else:
                lane.appendleft(part)
                break
        return chosen, unwanted

    def made(self, parts: int, seconds: float, largest: int) -> None:
        """A call with so many parts took so long; its largest batch had so many bytes."""
        self._cost = seconds / parts
        self._largest = max(self._largest, largest)

    def has_own(self, worker: int) -> bool:
        """Is there something that only this worker can make?"""
        return self.own and bool(self._lane_of(worker))

    def lost(self, worker: int) -> list[Part]:
        """The worker has died: what no other takes from its lane."""
        if not self.own:
            return []
        lane = self._lane_of(worker)
        return [lane.popleft() for _ in range(len(lane))]

    def _lane_of(self, worker: int) -> deque[Part]:
        return self._lanes[worker % len(self._lanes)]

    def _is_unwanted(self, part: Part, run: int) -> bool:
        # A stream's worker opens every run that others open; one that gets parts in turn makes them all (serving).
        return part.entry.run < self.oldest and not self._makes_all and not (self.own and part.entry.run != run)

    def _most(self, waiting: int, ready: int) -> int:
        """How many parts a call carries: not more than are left for each worker that could make them."""
        fair = waiting if self.own else math.ceil(waiting / ready)
        return max(1, min(math.ceil(WORTHWHILE / self._cost) if self._cost else fair, fair))

    def _has_room(self, out: int) -> bool:
        return not out or (out + 1) * self._largest <= SHARE_OF_STORE * self._store
