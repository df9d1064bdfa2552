"""Worker threads: for datasets that wait or release the GIL, and for those that cannot travel to another process.

Promises: tasks are taken by whichever thread is free (a stream's by the thread that has its shard open); batches
are made in slots and handed over as they are.
Not its job: stopping a thread that is stuck in user code, which Python cannot do: it is named and left behind.
"""

from __future__ import annotations

import logging
import queue
import threading

from feedline.ambient import PerThread
from feedline.arena import segment
from feedline.arena.slots import LocalMemory, SlotPool
from feedline.errors import WorkerError
from feedline.messages import Outcome, Task
from feedline.workers.body import Body, Job

log = logging.getLogger("feedline")

Lane = queue.SimpleQueue["tuple[int, Task] | None"]
Done = queue.SimpleQueue["tuple[int, Outcome]"]
STOP_SECONDS = 5.0


class ThreadWorkers:
    """The contract, kept by `job.num_workers` threads."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.count = job.num_workers
        self._pool = SlotPool() if segment.available else None
        self._lanes: list[Lane] = [queue.SimpleQueue() for _ in range(self.count if job.stream else 1)]
        self._done: Done = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._run = 0

    def credits(self, prefetch_factor: int) -> int:
        return prefetch_factor * self.count

    def start(self) -> None:
        if self._job.stream and self.count > 1 and iter(self._job.dataset) is self._job.dataset:
            raise WorkerError(
                "the dataset is an iterator (iter(dataset) is dataset), which several threads cannot share without "
                "losing elements: let __iter__ return a new iterator each time, or use one worker or processes"
            )
        for number in range(self.count):
            lane = self._lanes[number % len(self._lanes)]
            arguments = (self._job, number, lane, self._done, self._pool, self._stopping)
            thread = threading.Thread(target=_work, args=arguments, name=f"feedline-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, task: Task) -> None:
        self._lanes[task.seq % len(self._lanes)].put((self._run, task))

    def wait(self, timeout: float | None) -> list[Outcome]:
        outcomes = []
        try:
            arrived = self._done.get(timeout=timeout)
            while True:
                if arrived[0] == self._run:
                    outcomes.append(arrived[1])
                arrived = self._done.get(block=not outcomes, timeout=timeout)
        except queue.Empty:
            return outcomes

    def forget(self) -> None:
        self._run += 1

    def stop(self) -> None:
        self._stopping.set()
        for number in range(len(self._threads)):
            self._lanes[number % len(self._lanes)].put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(STOP_SECONDS)
                if thread.is_alive():
                    log.warning("%s is still busy with a sample and is left behind", thread.name)
        self._threads = []
        self._done = queue.SimpleQueue()
        if self._pool is not None:
            self._pool.close()


def _work(job: Job, number: int, lane: Lane, done: Done, pool: SlotPool | None, stopping: threading.Event) -> None:
    # A function of what it needs, not a method: a running thread must not keep a dropped loader alive.
    body = Body(job, number, PerThread(), own_process=False)
    memory = LocalMemory(pool)
    body.start()
    try:
        while (message := lane.get()) is not None and not stopping.is_set():
            run, task = message
            try:
                outcome = body.run(task, memory.empty)
            except BaseException as error:  # SystemExit and the like: the loop waits for an outcome
                outcome = body.failed(task, error)
            memory.finish()
            done.put((run, outcome))
            del message, task, outcome  # a batch must not live on here until the next one
    finally:
        body.stop()
