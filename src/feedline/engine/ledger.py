"""The ledger: the one record of all batches that are out.

Takes: tasks as they are planned, the outcomes of their parts as they arrive, and deaths of workers. Gives: the next
batch to deliver, whether an answer is still wanted, which parts a dead worker had, which batches have not been sent
yet, and which batches of the next epoch are already out.
Promises: each batch is delivered once, in order (or as batches arrive), even if an answer comes twice, late, or from a
run that is over. It is pure: it starts no process, reads no clock and calls no other part of the engine.
Not its job: sending (loop), deciding about a death (recovery), how many parts a batch has (batch_splitting).

The life of an entry: `add` (planned) → `whole` or `divide` (its parts are out) → `take` (each part's answer) → `settle`
(it has an outcome) → `deliver`. After a death or a misfit the entry is planned again (`recall`). A new run drops all
entries except those that were sent early for it.
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

ANY_WORKER = -1
"""Instead of a worker's number: any free worker may read the part."""


class Part:
    """Rows of a batch, usually all of them, sent to a worker. A part is out until its answer or its worker's death."""

    # Defaults are class attributes, because setting them for each part would cost more than everything else here.
    outcome: Outcome | None = None
    """Its answer; set by the workers."""
    worker = ANY_WORKER
    """The worker that reads it, if that is fixed; set by the workers."""
    slot: Any = None
    """The slot in shared memory that it was sent in, if there is one; set by the workers."""
    joint: Any = None
    """The slot that all parts of its batch are written to, if there is one (arena.joint)."""
    is_wanted = True
    is_missing = False
    """A worker has died, and no living worker is known to have this part."""
    suspects: Mapping[int, Any] = MappingProxyType({})
    """For a missing part: the workers that might have it → what each was doing at that death."""

    def __init__(self, serial: int, entry: Entry, task: Task, start: int = 0) -> None:
        self.serial = serial
        self.entry = entry
        self.task = task
        """What the worker is told: the entry's task, or that task with some of its rows."""
        self.start = start

    def place(self, place: int) -> int:
        """A sample's place in the batch, from its place in this part; a negative code (no sample) stays as it is."""
        return place + self.start if place >= 0 else place


class Entry:
    """One batch."""

    parts: Sequence[Part] = ()
    outcome: Outcome | None = None
    deaths: tuple[int, ...] = ()
    """The places of the samples at which workers have died while making this batch."""

    def __init__(self, task: Task, run: int, sampler_state: Any = None) -> None:
        self.task = task
        self.run = run
        self.sampler_state = sampler_state
        """The sampler's state after this task."""


class Ledger:
    """The ledger of one set of workers, for all runs (epochs) they serve.

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
        """Parts by serial number, in the order they were sent, including parts that are no longer wanted."""
        self.run = 0
        self.early: list[Entry] = []
        """Batches of the next run that were sent already, even if their worker has died since."""
        self.back = 0
        """How many entries of this run have an outcome and are not delivered."""
        self._in_order = True
        self.queue: deque[Entry] = deque()
        """This run's batches that are not delivered, in the order of their tasks. Other modules only read it."""
        self._arrived: deque[Entry] = deque()  # unless in order: entries of `queue` with an outcome, as they arrived
        self._serial = 0
        self._divided = 0

    def begin(self, in_order: bool = True) -> None:
        """A run begins: batches that are out are no longer wanted, except those sent early."""
        self._in_order = in_order
        self.end()
        if self.early:
            self.run += 1

    def end(self) -> None:
        """This run is over, whatever is still out. Batches sent early for the next run stay early."""
        for entry in self.queue:
            self.recall(entry)
        self.queue.clear()
        self._arrived.clear()
        self.back = 0
        if self.early and self.early[0].run == self.run:  # sent early for this run, which never used them
            self.drop_early()
        elif not self.early:
            self.run += 1

    def let_go_later(self) -> Callable[[], None]:
        """A function that drops this run's batches, for when nobody can ask for them any more. It leaves later runs
        alone. It does not keep the ledger alive: an error in the ledger may refer, through its traceback, to the
        iterator whose end calls this function."""
        return partial(_let_go, weakref.ref(self), self.run)

    def clear(self) -> None:
        """The workers have ended, and no answer will come."""
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
        """The new run does begin with this batch, which was sent early for it."""
        entry.task, entry.sampler_state = task, sampler_state
        self.queue.append(entry)
        if entry.outcome is not None:
            self._has_arrived(entry)

    def drop_early(self) -> None:
        """The batches sent early are the wrong ones: drop them."""
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
        """The batch goes out in parts; `tasks` has each part's first row and task. All write to `joint`, if given."""
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
        """A part is back. Returns its entry if all parts are back; None if not, or if the part is not wanted.

        An entry of one part is settled here; several parts have to be joined by the caller.
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
        """Is the part needed, in this run or the next?"""
        return part.is_wanted and part.entry.run >= self.run

    def settle(self, entry: Entry, outcome: Outcome) -> None:
        """The batch has an outcome; answers of its parts that are still out no longer count."""
        self.recall(entry)
        entry.outcome = outcome
        if entry.run == self.run and entry not in self.early:
            self._has_arrived(entry)

    def _has_arrived(self, entry: Entry) -> None:
        self.back += 1
        if not self._in_order:
            self._arrived.append(entry)

    def recall(self, entry: Entry) -> None:
        """Answers of its parts no longer count: the entry is planned again."""
        for part in entry.parts:
            part.is_wanted = False
            if part.outcome is not None or part.serial not in self.out:
                # No worker writes for this part any more. Its slot must be free for the next try, although a caller
                # that received several parts at once still refers to this one.
                part.joint = part.outcome = None
        entry.parts = ()

    @property
    def following(self) -> Entry | None:
        """The batch to deliver now, if there is one."""
        if not self._in_order:
            return self._arrived[0] if self._arrived else None
        if self.queue and self.queue[0].outcome is not None:
            return self.queue[0]
        return None

    def oldest(self) -> float:
        """The number of this run's first batch that is not delivered; infinite if all planned batches are delivered."""
        return self.queue[0].task.seq if self.queue else math.inf

    @property
    def awaited(self) -> int | None:
        """The number of the batch that the loop waits for; None if it takes any batch."""
        return self.queue[0].task.seq if self.queue and self._in_order else None

    def deliver(self, entry: Entry) -> float:
        """The batch is delivered. Returns what `oldest` says afterwards."""
        if self._in_order:
            self.queue.popleft()
        else:
            self._arrived.popleft()
            self.queue.remove(entry)
        self.back -= 1
        return self.queue[0].task.seq if self.queue else math.inf

    def unsent(self) -> list[Entry]:
        """Batches of this run that are planned but not out."""
        return [entry for entry in self.queue if not entry.parts and entry.outcome is None]

    def divided(self) -> list[Entry]:
        """Batches of this run that went out in several parts."""
        return [entry for entry in self.queue if len(entry.parts) > 1]

    @property
    def has_divided(self) -> bool:
        """Is a part of a divided batch out, wanted or not?"""
        return self._divided > 0

    def is_first(self, part: Part) -> bool:
        """Is this part the oldest of the wanted parts that are out?"""
        return next((each for each in self.out.values() if self.is_wanted(each)), None) is part

    def held_by(self, worker: int) -> list[Part]:
        """All parts that were sent to this worker alone. They are no longer out."""
        return [self._pop(part) for part in list(self.out.values()) if part.worker == worker]

    def missing(self, own: int, unread: Iterable[int], at: dict[int, tuple[Any, int]]) -> tuple[list[Part], list[Part]]:
        """A worker died that shared a pipe with others. Returns lost parts, and parts whose slots are free.

        `own` is the serial number of the part it was making, `unread` are those of parts that were taken back before
        any worker read them, and `at` says which process each living worker is, and which part it is making. A lost
        part is one that no living worker is known to be making. But one of them may have read it a moment ago, without
        saying so yet: then the part is made twice, and its slot stays in use until its answer comes or, at a later
        death, all workers that might have it are gone or making something else. Parts returned second are certainly
        with no worker, and are no longer out; those of `own` and `unread` may be in both lists.
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
        """Its worker cannot be ended and may still write to the slot, so that slot is never used again."""
        self._pop(part)

    def _pop(self, part: Part) -> Part:
        if self.out.pop(part.serial, None) is not None and part.task.rows is not None:
            self._divided -= 1
        return part

    @undisturbed
    def __del__(self) -> None:
        # An entry and its parts refer to each other, and undelivered batches must not wait for the garbage collector.
        for entry in (*self.queue, *self.early):
            entry.parts = ()


def _let_go(ledger: Callable[[], Ledger | None], run: int) -> None:
    if (kept := ledger()) is not None and kept.run == run:
        kept.end()
