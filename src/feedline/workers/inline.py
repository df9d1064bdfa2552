"""No workers: the loop does each task itself, when its batch is asked for.

Promises: the same batches as any other kind; the user's own random state is as it was after every batch; where it is
can be seen from another thread.
Not its job: prefetching, looking (inline_watch).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident

from feedline.ambient import ThisThread
from feedline.arena import segment
from feedline.arena.slots import LocalMemory, SlotPool
from feedline.line.concurrent import Readers
from feedline.messages import Outcome, Task
from feedline.observe.meter import Spent, spent_by
from feedline.observe.recording import Slots
from feedline.progress import INDEX, PLACE, PREPARING, SINCE, clock, count_making, unwatched
from feedline.supervise import watchdog
from feedline.supervise.watch import NO_WORKER, Death, Standing
from feedline.supervise.watchdog import Entry
from feedline.worker_info import in_worker
from feedline.workers.body import Body
from feedline.workers.job import Job


class InlineWorkers:
    """The contract, kept by nobody but the caller."""

    count = 0
    forked = False
    takes_early = False

    def __init__(self, job: Job) -> None:
        ambient = ThisThread(job.dialect.sources)
        pool = SlotPool() if segment.available else None
        self._row = unwatched()
        self._body = Body(job, None, ambient, own_process=False, row=self._row)
        self.entry = Entry()
        self.may_be_stuck = not self._body.only_gathers and not in_worker()
        """Does it run code of the user's, with nobody to look on? In a worker its own parent does."""
        self.pool = pool
        self._memory = LocalMemory(pool)
        # Not methods of ours: what ends us must not keep the job alive, which may refer to the loader.
        self.spent: Callable[[], Spent] = partial(spent_by, [self._row])
        self.release: Callable[[], None] = partial(_release, ambient, pool, self._body.readers)

    def processes(self) -> list[tuple[int, int]]:
        return []

    def credits(self, prefetch_factor: int) -> int:
        return 1

    def start(self) -> None:
        self._body.start()

    def do(self, task: Task) -> Outcome:
        began, entry = clock(), self.entry
        self._row[PLACE], self._row[SINCE] = PREPARING, began
        entry.task, entry.thread, entry.began = task, get_ident(), began
        if watchdog.resting:
            watchdog.wake()
        try:
            return self._body.run(task, self._memory.empty)
        finally:
            entry.began = 0
            self._memory.finish()
            count_making(self._row, began, clock())

    def submit(self, task: Task, urgent: bool = False, early: bool = False) -> None:
        raise AssertionError("there is no worker")

    def submit_first(self, tasks: Sequence[Task]) -> None:
        raise AssertionError("there is no worker")

    def resize(self, count: int) -> None:
        raise AssertionError("there is no worker")

    def ready(self) -> int:
        return 0

    def wait(self, timeout: float | None) -> list[Outcome | Death]:
        raise AssertionError("there is no worker")

    def forget(self, keep_early: bool = False) -> None:
        pass

    def standing(self) -> list[Standing]:
        if not self.entry.began:
            return []
        place, seconds = self._row[PLACE], (clock() - self._row[SINCE]) / 1e9
        instead = self._row[INDEX] - 1 if self._row[INDEX] else None
        return [Standing(NO_WORKER, os.getpid(), self.entry.task, place, seconds, instead=instead)]

    def slots(self) -> Slots:
        return Slots() if self.pool is None else Slots(*self.pool.occupancy())

    def ask_stacks(self) -> None:
        pass

    def stack_of(self, number: int) -> str:
        readers = self._body.readers
        if readers is not None and (stack := readers.stack()):
            return stack
        frame = sys._current_frames().get(self.entry.thread)
        return "" if frame is None else "".join(reversed(traceback.format_stack(frame)))

    def kill(self, number: int) -> None:
        raise AssertionError("there is no worker")

    def revive(self, number: int, elsewhere: bool) -> None:
        raise AssertionError("there is no worker")


def _release(ambient: ThisThread, pool: SlotPool | None, readers: Readers | None) -> None:
    ambient.close()
    if readers is not None:
        readers.close()
    if pool is not None:
        pool.close()
