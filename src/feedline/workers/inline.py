"""No workers: the loop does each task itself, when it waits for it.

Promises: the same batches as any other kind; the user's own random state is as it was after every batch.
Not its job: prefetching.
"""

from __future__ import annotations

from collections import deque

from feedline.ambient import Borrowed
from feedline.arena import segment
from feedline.arena.slots import LocalMemory, SlotPool
from feedline.messages import Outcome, Task
from feedline.workers.body import Body, Job

GATHERED_AT_ONCE = 8
"""Batches of plain in-memory arrays that are gathered together when they are small: benchmarks/in_memory.py."""


class InlineWorkers:
    """The contract, kept by nobody but the caller."""

    count = 0

    def __init__(self, job: Job) -> None:
        self._body = Body(job, None, Borrowed(job.dialect.sources), own_process=False)
        self._pool = SlotPool() if segment.available else None
        self._memory = LocalMemory(self._pool)
        self._tasks: deque[Task] = deque()

    def credits(self, prefetch_factor: int) -> int:
        return GATHERED_AT_ONCE if self._body.gathers_plainly else 1

    def start(self) -> None:
        self._body.start()

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def wait(self, timeout: float | None) -> list[Outcome]:
        try:
            if len(self._tasks) > 1 and (together := self._body.run_together(list(self._tasks), self._memory.empty)):
                self._tasks.clear()
                return together
            return [self._body.run(self._tasks.popleft(), self._memory.empty)] if self._tasks else []
        finally:
            self._memory.finish()

    def forget(self) -> None:
        self._tasks.clear()

    def stop(self) -> None:
        self._tasks.clear()
        if self._pool is not None:
            self._pool.close()
