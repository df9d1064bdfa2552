"""No workers: `make` makes a batch, in the caller's thread.

Takes: a `Job`, tasks. Gives: their outcomes. (As a kind of worker it also takes the ledger's parts.)
Promises: the same batches as any other kind; after every batch the user's own random state is as it was before; another
thread can see which sample it is reading.
Not its job: prefetching, watching (engine.inline_watch).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident

from feedline.arena import segment
from feedline.arena.kept import KeptPool
from feedline.arena.slots import LocalMemory, SlotPool
from feedline.engine.contract import Traits
from feedline.engine.ledger import Part
from feedline.machine.worker_info import in_worker
from feedline.messages.outcome import Outcome
from feedline.messages.progress import INDEX, PLACE, SINCE, clock, unwatched
from feedline.messages.task import Task
from feedline.observe.meter import spent_by
from feedline.randomness.task_generators import BorrowedGenerators
from feedline.reading.fetch_threads import Readers
from feedline.supervise import watchdog
from feedline.supervise.watch import NO_WORKER, Death, Standing
from feedline.supervise.watchdog import WatchedLoop
from feedline.workers.body import Body
from feedline.workers.job import Job


class InlineWorkers:
    """Implements the contract in the caller's thread."""

    def __init__(self, job: Job, kept: KeptPool | None = None) -> None:
        kept = kept or KeptPool(keeps=False)
        generators = self._generators = BorrowedGenerators()
        pool = kept.take() if segment.available else None
        self._row = unwatched()
        self._body = Body(job, None, generators, own_process=False, row=self._row)
        self._sent: deque[Part] = deque()
        self._oldest = 0  # parts of earlier runs are not wanted
        self._seen = 0, 0, 0
        """The sample at the last look, when that was, and when it was last known not to have begun."""
        self._memory = LocalMemory(pool, prefers_ordinary=True)
        self.entry = WatchedLoop()
        self.may_be_stuck = not self._body.only_gathers and not in_worker()
        """Does it run user code that nobody else watches? (Inside a worker, the worker's parent watches.)"""
        # Not bound methods: the finalizer that calls them must not keep the job alive, which may refer to the loader.
        self.traits = Traits(pool, partial(spent_by, [self._row]), work_ahead=False)
        self.stop: Callable[[], None] = partial(_stop, generators, pool, kept, self._body.readers, [])

    def resize(self, count: int) -> None:
        """Start; there are no workers to start or dismiss."""
        self._body.start()

    def send(self, part: Part, first: bool = False) -> None:
        if first:
            self._sent.appendleft(part)
        else:
            self._sent.append(part)

    def drop_before(self, run: int) -> None:
        self._oldest = run

    def receive(self, timeout: float | None) -> Sequence[Part | Death]:
        if not self._sent:
            return ()
        part = self._sent.popleft()
        if part.entry.run >= self._oldest:
            part.outcome = self.make(part.task)
        return (part,)

    def make(self, task: Task) -> Outcome:
        """Make a batch now. The loop calls this directly: nothing has to be sent."""
        memory, entry, began = self._memory, self.entry, clock()
        if self.may_be_stuck:
            entry.task, entry.thread, entry.began = task, get_ident(), began
            if watchdog.resting:
                watchdog.wake()
        try:
            return self._body.run(task, memory, began)
        except BaseException:  # Ctrl-C, which may have come while they were put back
            self._generators.leave()
            raise
        finally:
            entry.began = 0
            if memory.slot is not None:
                memory.finish()

    def _glance(self) -> tuple[int, int]:
        """Which sample is being read, and since when. To write that down for each takes as long as reading a small
        one: so another thread looks now and then, and counts from its last look at an earlier one."""
        place, since, samples = self._row[PLACE], self._row[SINCE], self._body.read_so_far
        if samples is None:
            return place, since
        place, now = len(samples), clock()
        seen, looked, before = self._seen
        if looked < since:  # the look was at an earlier batch
            seen, looked, before = 0, since, since
        self._seen = place, now, before if place == seen else looked
        return place, self._seen[2]

    def standing(self) -> list[Standing]:
        if not self.entry.began:
            return []
        place, since = self._glance()
        seconds = (clock() - since) / 1e9
        instead = self._row[INDEX] - 1 if self._row[INDEX] else None
        return [Standing(NO_WORKER, os.getpid(), self.entry.task, place, seconds, instead=instead)]

    def stacks(self, ask: bool = False) -> dict[int, str]:
        readers = self._body.readers
        if readers is not None and (stack := readers.stack()):
            return {NO_WORKER: stack}
        frame = sys._current_frames().get(self.entry.thread)
        return {} if frame is None else {NO_WORKER: "".join(reversed(traceback.format_stack(frame)))}

    def kill(self, number: int) -> None:
        """Does nothing: the caller cannot be ended."""

    def revive(self, number: int, elsewhere: bool) -> None:
        """Does nothing: no worker can die."""


def _stop(
    generators: BorrowedGenerators,
    pool: SlotPool | None,
    kept: KeptPool,
    readers: Readers | None,
    stopped: list[bool],
) -> None:
    generators.close()
    if readers is not None:
        readers.close()
    if pool is not None and not stopped:
        kept.give(pool)
        stopped.append(True)  # from now on it may belong to the next epoch
