"""The ledger: every batch that is out, written down once.

Takes: tasks as they are planned, the outcomes of their parts as they come, and who has died. Gives: what is next to
deliver, whether an answer is still wanted, what a dead worker had, which batches have not been sent yet, and which of
the next epoch are out already.
Promises: each batch is delivered once, in order (or as they come), whatever was made twice, comes late or is of a run
that is over. It is pure: it starts no process, reads no clock and calls nobody.
Not its job: sending (loop), deciding about a death (recovery), into how many parts a batch is divided (splitting).

The life of an entry: `add` (planned) → `whole` or `divide` (its parts are out) → `take` (each part's answer) → `settle`
(it has an outcome) → `deliver`. A death or a misfit sends it back to planned (`recall`). A new run drops all of them,
but for those that were sent early for it.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from feedline.machine.finalizers import undisturbed
from feedline.messages.outcome import Outcome
from feedline.messages.task import Task

ANYBODY = -1
"""Instead of a worker's number: whoever is free reads it."""


class Part:
    """Some rows of a batch, usually all of them, that are out. It is out until its answer or its worker's death."""

    # What most parts never have is the class's: to set it for each costs more than all else that is done with one.
    outcome: Outcome | None = None
    """Its answer; set by the workers."""
    worker = ANYBODY
    """Who reads it, if that is fixed; set by the workers."""
    slot: Any = None
    """The place in shared memory that it was sent in, if there is one; set by the workers."""
    joint: Any = None
    """The place that all parts of its batch are written to, if there is one (arena.joint)."""
    is_wanted = True
    is_missing = False
    """Nobody is known to have it since a worker died."""
    suspects: Mapping[int, Any] = MappingProxyType({})
    """Then: who might still have it, by what they were at."""

    def __init__(self, serial: int, entry: Entry, task: Task, start: int = 0) -> None:
        self.serial = serial
        self.entry = entry
        self.task = task
        """What the worker is told: the entry's task, or the same for some of its rows."""
        self.start = start

    def place(self, place: int) -> int:
        """A sample's place in the batch, from its place in this part; what is no place stays what it is."""
        return place + self.start if place >= 0 else place


class Entry:
    """One batch."""

    parts: Sequence[Part] = ()
    outcome: Outcome | None = None
    deaths: tuple[int, ...] = ()
    """The places at which workers have died with it."""

    def __init__(self, task: Task, run: int, sampler_state: Any = None) -> None:
        self.task = task
        self.run = run
        self.sampler_state = sampler_state
        """What the sampler said of its place after this task."""


class Ledger:
    """Of one set of workers, for all the runs (epochs) they serve.

    >>> ledger = Ledger()
    >>> ledger.begin()
    >>> first, second = (ledger.whole(ledger.add(Task(seq, 0, 0, [seq]))) for seq in range(2))
    >>> first.outcome, second.outcome = Outcome(0), Outcome(1)
    >>> _ = ledger.take(second); ledger.following is None
    True
    >>> _ = ledger.take(first); ledger.deliver(ledger.following), ledger.following.task.seq
    (1, 1)
    """

    def __init__(self) -> None:
        self.out: dict[int, Part] = {}
        """Parts by serial number, in the order they were sent; also those that nobody wants any more."""
        self.run = 0
        self.early: list[Entry] = []
        """Batches of the next run that are out already, or were, and their worker died."""
        self.back = 0
        """Entries of this run that have an outcome and are not delivered."""
        self._in_order = True
        self.queue: deque[Entry] = deque()
        """This run's batches that are not delivered, in the order of their tasks. To be looked at only."""
        self._arrived: deque[Entry] = deque()  # those of them that have an outcome, as they came, if that is the order
        self._serial = 0
        self._divided = 0

    def begin(self, in_order: bool = True) -> None:
        """A run begins: what is out is of no use any more, but for what was sent early."""
        self._in_order = in_order
        self.end()
        if self.early:
            self.run += 1

    def end(self) -> None:
        """This run is over, whatever of it is out. What was sent early for the next one stays what it is."""
        for entry in self.queue:
            self.recall(entry)
        self.queue.clear()
        self._arrived.clear()
        self.back = 0
        if self.early and self.early[0].run == self.run:  # for this one, which has not come so far as to take it over
            self.drop_early()
        elif not self.early:
            self.run += 1

    def let_go_later(self) -> Callable[[], None]:
        """What drops the batches of this run if nobody can ask for them any more. It does nothing to a later run, and
        does not keep the ledger: an error in it may, by its traceback, refer to whoever is to be noticed as gone."""
        return partial(_let_go, weakref.ref(self), self.run)

    def clear(self) -> None:
        """The workers are gone, and no answer will come."""
        self.drop_early()
        self.end()
        self.out.clear()
        self._divided = 0

    def add(self, task: Task, sampler_state: Any = None) -> Entry:
        """A batch is planned."""
        entry = Entry(task, self.run, sampler_state)
        self.queue.append(entry)
        return entry

    def plan(self, task: Task, sampler_state: Any = None) -> Part:
        """A batch is planned, and goes out as one part."""
        entry = Entry(task, self.run, sampler_state)
        self.queue.append(entry)
        self._serial = serial = self._serial + 1
        part = self.out[serial] = Part(serial, entry, task)
        entry.parts = (part,)
        return part

    def add_early(self, task: Task) -> Entry:
        """A batch of the next run is planned."""
        entry = Entry(task, self.run + 1)
        self.early.append(entry)
        return entry

    def adopt(self, entry: Entry, task: Task, sampler_state: Any) -> None:
        """The run that has begun begins with this batch, which was sent early for it."""
        entry.task, entry.sampler_state = task, sampler_state
        self.queue.append(entry)
        if entry.outcome is not None:
            self._has_arrived(entry)

    def drop_early(self) -> None:
        """What was sent early will not do."""
        for entry in self.early:
            self.recall(entry)
        self.early = []
        self.run += 1

    def whole(self, entry: Entry) -> Part:
        """The batch goes out as one part."""
        self._serial = serial = self._serial + 1
        part = self.out[serial] = Part(serial, entry, entry.task)
        entry.parts = (part,)
        return part

    def divide(self, entry: Entry, tasks: Iterable[tuple[int, Task]], joint: Any = None) -> Sequence[Part]:
        """The batch goes out in parts: the first row of each, and its task. All write to the joint place, if any."""
        entry.parts = [self._part(entry, task, start) for start, task in tasks]
        for part in entry.parts:
            part.joint = joint
        self._divided += len(entry.parts)
        return entry.parts

    def _part(self, entry: Entry, task: Task, start: int = 0) -> Part:
        self._serial += 1
        part = self.out[self._serial] = Part(self._serial, entry, task, start)
        return part

    def take(self, part: Part) -> Entry | None:
        """A part is back. The entry, if all its parts are now; None too if this one is not wanted (any more).

        An entry of one part is settled by it; the parts of any other are to be joined by whoever asks.
        """
        if self.out.pop(part.serial, None) is None:
            return None
        entry, outcome, is_whole = part.entry, part.outcome, part.task.rows is None
        if not is_whole:
            self._divided -= 1
        if outcome is None or not part.is_wanted or entry.run < self.run:
            return None
        if not is_whole:
            return None if any(each.outcome is None for each in entry.parts) else entry
        entry.parts, entry.outcome = (), outcome
        if entry.run == self.run and entry not in self.early:
            self._has_arrived(entry)
        return entry

    def is_wanted(self, part: Part) -> bool:
        """Does anybody wait for it, now or in the next run?"""
        return part.is_wanted and part.entry.run >= self.run

    def settle(self, entry: Entry, outcome: Outcome) -> None:
        """The batch has an outcome; answers of parts that are still out do not count any more."""
        self.recall(entry)
        entry.outcome = outcome
        if entry.run == self.run and entry not in self.early:
            self._has_arrived(entry)

    def _has_arrived(self, entry: Entry) -> None:
        self.back += 1
        if not self._in_order:
            self._arrived.append(entry)

    def recall(self, entry: Entry) -> None:
        """Have none of its parts out, as far as anybody waits for them: it is planned once more."""
        for part in entry.parts:
            part.is_wanted = False
            if part.outcome is not None or part.serial not in self.out:
                # Nobody writes there for this part any more. What it holds would be in the way of the next try: whoever
                # has received several at once still has it in hand.
                part.joint = part.outcome = None
        entry.parts = ()

    @property
    def following(self) -> Entry | None:
        """The batch that is to be delivered now, if there is one."""
        if not self._in_order:
            return self._arrived[0] if self._arrived else None
        if self.queue and self.queue[0].outcome is not None:
            return self.queue[0]
        return None

    def oldest(self) -> float:
        """The number of the first batch of this run that is not delivered; infinite if all that are planned are."""
        return self.queue[0].task.seq if self.queue else math.inf

    @property
    def awaited(self) -> int | None:
        """The number of the batch that is waited for, if it matters which comes."""
        return self.queue[0].task.seq if self.queue and self._in_order else None

    def deliver(self, entry: Entry) -> float:
        """The batch leaves. The number of the first one now that has not; infinite if all that are planned have."""
        if self._in_order:
            self.queue.popleft()
        else:
            self._arrived.popleft()
            self.queue.remove(entry)
        self.back -= 1
        return self.queue[0].task.seq if self.queue else math.inf

    def unsent(self) -> list[Entry]:
        """Batches of this run that are planned, and not out."""
        return [entry for entry in self.queue if not entry.parts and entry.outcome is None]

    def divided(self) -> list[Entry]:
        """Batches of this run of which several parts are out."""
        return [entry for entry in self.queue if len(entry.parts) > 1]

    @property
    def has_divided(self) -> bool:
        """Is a part out that is not a whole batch, wanted or not?"""
        return self._divided > 0

    def is_first(self, part: Part) -> bool:
        """Was no part that is still wanted sent before this one, which is out?"""
        return next((each for each in self.out.values() if self.is_wanted(each)), None) is part

    def held_by(self, worker: int) -> list[Part]:
        """All that was sent to this worker alone; it is not out any more."""
        return [self._pop(part) for part in list(self.out.values()) if part.worker == worker]

    def missing(self, own: int, unread: Iterable[int], at: dict[int, tuple[Any, int]]) -> tuple[list[Part], list[Part]]:
        """A worker died that read what anybody might. Nobody works on the parts returned first, as far as is known.

        `own` is what it was at, `unread` are those that nobody has read and that have been taken back, and `at` says of
        each living worker who it is and what it is at. Perhaps one of them has just read a part and is about to say so:
        then that is made twice, and the place it was sent in stays its own until all who might have it are at something
        else. The parts returned second are nobody's for sure, and not out any more.
        """
        known = {serial for _, serial in at.values()}
        lost = [part for serial, part in self.out.items() if serial not in known and not part.is_missing]
        freed = [self._pop(self.out[serial]) for serial in (own, *unread) if serial in self.out]
        for part in lost:
            part.is_missing, part.suspects = True, at
        for part in list(self.out.values()):
            if part.is_missing and part.serial not in known:
                part.suspects = {number: was for number, was in part.suspects.items() if at.get(number) == was}
                if not part.suspects:
                    freed.append(self._pop(part))
        return lost, freed

    def abandon(self, part: Part) -> None:
        """Its worker cannot be ended, and may yet write to its place: that is nobody else's, ever."""
        self._pop(part)

    def _pop(self, part: Part) -> Part:
        if self.out.pop(part.serial, None) is not None and part.task.rows is not None:
            self._divided -= 1
        return part

    @undisturbed
    def __del__(self) -> None:
        # An entry and its parts refer to each other: batches that nobody gets must not wait for the garbage collector.
        for entry in (*self.queue, *self.early):
            entry.parts = ()


def _let_go(ledger: Callable[[], Ledger | None], run: int) -> None:
    if (kept := ledger()) is not None and kept.run == run:
        kept.end()
