"""No workers: the loop does each task itself, when it waits for it.

Promises: the same batches as any other kind; the user's own random state is as it was after every batch.
Not its job: prefetching.
"""

from __future__ import annotations

from feedline.ambient import Borrowed
from feedline.arena import segment
from feedline.arena.slots import LocalMemory, SlotPool
from feedline.messages import Outcome, Task
from feedline.workers.body import Body, Job


class InlineWorkers:
    """The contract, kept by nobody but the caller."""

    count = 0

    def __init__(self, job: Job) -> None:
        self._body = Body(job, None, Borrowed(job.dialect.sources), own_process=False)
        self._pool = SlotPool() if segment.available else None
        self._memory = LocalMemory(self._pool)
        self._task: Task | None = None

    def start(self) -> None:
        self._body.start()

    def submit(self, task: Task) -> None:
        self._task = task

    def wait(self, timeout: float | None) -> list[Outcome]:
        task, self._task = self._task, None
        if task is None:
            return []
        try:
            return [self._body.run(task, self._memory.empty)]
        finally:
            self._memory.finish()

    def forget(self) -> None:
        self._task = None

    def stop(self) -> None:
        self._task = None
        if self._pool is not None:
            self._pool.close()
