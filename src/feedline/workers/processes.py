"""Worker processes: fork, forkserver or spawn.

Takes: a `Job`, tasks. Gives: outcomes whose large arrays are views on shared memory.
Promises: any free worker takes the next task (a stream's tasks go to the worker that has its shard open); the parent
never blocks on a worker except in `wait`, where it waits for outcomes and deaths together.
Not its job: what a worker does (process_main, body), repairing after a death (supervise).
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from feedline.arena.packing import unpack
from feedline.arena.segment import BOARD, PAGE
from feedline.arena.slots import Slot, SlotPool
from feedline.errors import WorkerDied, WorkerError, add_note
from feedline.messages import Failure, Outcome, Task
from feedline.supervise import lifeline
from feedline.supervise.shutdown import end, words_for
from feedline.workers import process_main
from feedline.workers.body import Job
from feedline.workers.one_thread import environment_of_new_workers
from feedline.workers.shipping import Parcel, ship, without_unimportable_main
from feedline.workers.warm import processes_from
from feedline.workers.wire import Descriptor, DoneTicket, TaskTicket, dump_task, receive_done, send_task


class ProcessWorkers:
    """The contract, kept by `job.num_workers` processes."""

    def __init__(self, job: Job, context: str | BaseContext | None) -> None:
        self._job: Job | None = job  # until it has been sent: it may refer to the loader
        self._streams = job.stream
        self.count = job.num_workers
        self._context: Any = context if isinstance(context, BaseContext) else multiprocessing.get_context(context)
        self._origin: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self._context.get_start_method() == "spawn":
            self._context = multiprocessing.get_context("forkserver")
            self._origin = processes_from(job.dialect.preload)
        self.forked = self._context.get_start_method() == "fork"
        self._owner = os.getpid()
        self._pool = SlotPool()
        self._lanes: list[_Lane] = []
        self._done: tuple[int, int] = (-1, -1)
        self._processes: list[BaseProcess] = []
        self._selector = selectors.DefaultSelector()
        self._slots: dict[int, tuple[Slot, int]] = {}  # slot number → slot, and the task's number for messages
        self._run = 0
        self._board: memoryview | None = None
        self.release: Callable[[], None] = self._stop

    def processes(self) -> list[tuple[int, int]]:
        return [(number, process.pid) for number, process in enumerate(self._processes) if process.pid is not None]

    def credits(self, prefetch_factor: int) -> int:
        return prefetch_factor * self.count

    def start(self) -> None:
        if multiprocessing.current_process().daemon:
            raise WorkerError(
                "a worker process cannot start worker processes: inside a dataset use num_workers=0 or workers='thread'"
            )
        try:
            self._start()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                add_note(error, "feedline: each worker takes a few descriptors: lower num_workers or raise `ulimit -n`")
            raise

    def _start(self) -> None:
        assert self._job is not None
        self._board = self._pool.segment.board(create=True)
        forked = self._context.get_start_method() == "fork"
        cargo: Job | Parcel = self._job if forked else ship(self._job, self._pool.segment)
        for _ in range(self.count if self._streams else 1):
            self._lanes.append(_Lane())
        self._done = os.pipe()
        os.set_blocking(self._done[0], False)
        self._selector.register(self._done[0], selectors.EVENT_READ, None)
        parents_own = (self._done[0], *(lane.writing for lane in self._lanes)) if forked else ()
        if not forked:
            resource_tracker.ensure_running()  # or the first start runs it, and that unblocks SIGINT again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # Ctrl-C is the parent's to handle
        try:
            with self._origin, environment_of_new_workers(), without_unimportable_main():
                for number in range(self.count):
                    self._start_one(number, cargo, parents_own)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._job = None

    def _start_one(self, number: int, cargo: Job | Parcel, parents_own: tuple[int, ...]) -> None:
        lane = self._lanes[number % len(self._lanes)]
        wiring = process_main.Wiring(
            Descriptor(lane.reading),
            Descriptor(self._done[1]),
            Descriptor(self._pool.segment.fd),
            Descriptor(lifeline.reading_end()),
            parents_own,
            dict(os.environ),
        )
        process = self._context.Process(
            target=process_main.main, args=(wiring, cargo, number), name=f"feedline-{number}", daemon=True
        )
        process.start()
        self._processes.append(process)
        self._selector.register(process.sentinel, selectors.EVENT_READ, (number, process))

    def submit(self, task: Task) -> None:
        self._check_owner()
        slot = self._pool.take()
        data = dump_task(task)
        slot.room(len(data)).view(0, len(data))[:] = data
        self._slots[slot.id] = (slot, task.seq)
        ticket = TaskTicket(self._run, slot.id, slot.capacity, len(data))
        self._lanes[task.seq % len(self._lanes)].post(ticket)

    def wait(self, timeout: float | None) -> list[Outcome]:
        self._check_owner()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            tickets = receive_done(self._done[0])
            if tickets:
                for lane in self._lanes:
                    lane.flush()
                outcomes = [outcome for ticket in tickets if (outcome := self._open(ticket)) is not None]
                if outcomes:
                    return outcomes
                continue
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = self._selector.select(remaining)
            if not ready:
                return []
            dead = [key.data for key, _ in ready if key.data is not None]
            if dead and len(dead) == len(ready):  # what the dead one had finished has been read
                raise self._obituary(*dead[0])

    def forget(self) -> None:
        self._run += 1
        if self._board is not None:
            self._board[0] = self._run

    def _stop(self) -> None:
        if self._owner != os.getpid():  # a forked child's copy: the workers are not its own
            return
        processes, self._processes = self._processes, []
        end(processes)
        self._selector.close()
        for lane in self._lanes:
            lane.close()
        if self._done != (-1, -1):
            for fd in self._done:
                os.close(fd)
            self._done = (-1, -1)
        self._lanes = []
        if self._board is not None:
            self._board = None
            self._pool.segment.free(BOARD, 0, PAGE)
        self._slots.clear()
        self._pool.close()

    def _check_owner(self) -> None:
        if self._owner != os.getpid():  # both would take outcomes meant for the other
            raise WorkerError(
                f"this iteration belongs to process {self._owner}, of which this one ({os.getpid()}) is a forked copy: "
                "begin a new one here with iter(loader)"
            )

    def _open(self, ticket: DoneTicket) -> Outcome | None:
        slot, seq = self._slots.pop(ticket.slot)
        try:
            if ticket.run != self._run:
                slot.capacity = max(slot.capacity, ticket.capacity)
                return None
            return Outcome(*unpack(ticket.packed, slot, self._pool))
        except Exception as error:
            add_note(error, f"feedline: batch {seq} came from its worker but could not be rebuilt in the main process")
            return Outcome(seq, failure=Failure.of(error, same_process=True))
        finally:
            self._pool.put(slot)

    def _obituary(self, number: int, process: BaseProcess) -> WorkerDied:
        process.join()
        return WorkerDied(
            f"worker {number} (pid {process.pid}) {words_for(process.exitcode)}. Its own last words, if any, are on "
            "standard error. With num_workers=0 the same happens in this process, where a debugger sees it."
        )


class _Lane:
    """A pipe that tasks go out through. What it does not take at once waits here; the parent never blocks."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        self._waiting: deque[TaskTicket] = deque()

    def post(self, ticket: TaskTicket) -> None:
        self._waiting.append(ticket)
        self.flush()

    def flush(self) -> None:
        while self._waiting and send_task(self.writing, self._waiting[0]):
            self._waiting.popleft()

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)
