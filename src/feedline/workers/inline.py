"""No workers: the loop does each task itself, when its batch is asked for.

Promises: the same batches as any other kind; the user's own random state is as it was after every batch.
Not its job: prefetching.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from feedline.ambient import ThisThread
from feedline.arena import segment
from feedline.arena.slots import LocalMemory, SlotPool
from feedline.line.concurrent import Readers
from feedline.messages import Outcome, Task
from feedline.observe.meter import Spent, spent_by
from feedline.observe.recording import Slots
from feedline.progress import clock, count_making, unwatched
from feedline.supervise.watch import Death, Standing
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
        began = clock()
        try:
            return self._body.run(task, self._memory.empty)
        finally:
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
        return []  # whoever could look is the one at work

    def slots(self) -> Slots:
        return Slots() if self.pool is None else Slots(*self.pool.occupancy())

    def ask_stacks(self) -> None:
        pass

    def stack_of(self, number: int) -> str:
        raise AssertionError("there is no worker")

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
