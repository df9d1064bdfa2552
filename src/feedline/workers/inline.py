"""No workers: `receive` makes the batch, in the caller's thread.

Takes: a `Job`, the ledger's parts. Gives: their outcomes.
Promises: the same batches as any other kind; the user's own random state is as it was after every batch; where it is
can be seen from another thread.
Not its job: prefetching, looking (engine.inline_watch).
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
from feedline.arena.slots import LocalMemory, SlotPool
from feedline.engine.contract import Traits
from feedline.engine.ledger import Part
from feedline.machine.worker_info import in_worker
from feedline.messages.progress import INDEX, PLACE, PREPARING, SINCE, clock, unwatched
from feedline.observe.meter import spent_by
from feedline.randomness.global_generators import BorrowedGenerators
from feedline.reading.fetch_threads import Readers
from feedline.supervise import watchdog
from feedline.supervise.watch import NO_WORKER, Death, Standing
from feedline.supervise.watchdog import WatchedLoop
from feedline.workers.body import Body
from feedline.workers.job import Job


class InlineWorkers:
    """The contract, kept by nobody but the caller."""

    def __init__(self, job: Job) -> None:
        generators = self._generators = BorrowedGenerators()
        pool = SlotPool() if segment.available else None
        self._row = unwatched()
        self._body = Body(job, None, generators, own_process=False, row=self._row)
        self._sent: deque[Part] = deque()
        self._oldest = 0  # parts of earlier runs are not wanted
        self._memory = LocalMemory(pool)
        self.entry = WatchedLoop()
        self.may_be_stuck = not self._body.only_gathers and not in_worker()
        """Does it run code of the user's, with nobody to look on? In a worker its own parent does."""
        # Not methods of ours: what ends us must not keep the job alive, which may refer to the loader.
        self.traits = Traits(pool, partial(spent_by, [self._row]), work_ahead=False)
        self.stop: Callable[[], None] = partial(_stop, generators, pool, self._body.readers)

    def resize(self, count: int) -> None:
        """There is nobody to be had or dismissed."""
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
        part, row, memory = self._sent.popleft(), self._row, self._memory
        if part.entry.run < self._oldest:
            return (part,)
        if self.may_be_stuck:
            row[SINCE], row[PLACE] = clock(), PREPARING
            entry = self.entry
            entry.task, entry.thread, entry.began = part.task, get_ident(), row[SINCE]
            if watchdog.resting:
                watchdog.wake()
        try:
            part.outcome = self._body.run(part.task, memory.empty)
            return (part,)
        except BaseException:  # Ctrl-C, which may have come while they were put back
            self._generators.leave()
            raise
        finally:
            self.entry.began = 0
            if memory.slot is not None:
                memory.finish()

    def standing(self) -> list[Standing]:
        if not self.entry.began:
            return []
        place, seconds = self._row[PLACE], (clock() - self._row[SINCE]) / 1e9
        instead = self._row[INDEX] - 1 if self._row[INDEX] else None
        return [Standing(NO_WORKER, os.getpid(), self.entry.task, place, seconds, instead=instead)]

    def stacks(self, ask: bool = False) -> dict[int, str]:
        readers = self._body.readers
        if readers is not None and (stack := readers.stack()):
            return {NO_WORKER: stack}
        frame = sys._current_frames().get(self.entry.thread)
        return {} if frame is None else {NO_WORKER: "".join(reversed(traceback.format_stack(frame)))}

    def kill(self, number: int) -> None:
        """The caller is not ended."""

    def revive(self, number: int, elsewhere: bool) -> None:
        """Nobody has died."""


def _stop(generators: BorrowedGenerators, pool: SlotPool | None, readers: Readers | None) -> None:
    generators.close()
    if readers is not None:
        readers.close()
    if pool is not None:
        pool.close()
