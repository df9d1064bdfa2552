"""Worker threads: for datasets that wait or release the GIL, and for those that cannot travel to another process.

Promises: tasks are taken by whichever thread is free, or each by its own in turn (`Job.in_turn`; a stream's always by
the thread that has its shard open); batches are made in slots and handed over as they are.
Not its job: stopping a thread that is stuck in user code, which Python cannot do: it is named and left behind.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from feedline.ambient import PerThread
from feedline.arena import segment
from feedline.arena.joint import RowMemory, Rows
from feedline.arena.slots import LocalMemory, SlotPool
from feedline.errors import WorkerError
from feedline.line.stateful import is_stateful
from feedline.messages import Failure, Outcome, Task
from feedline.observe.meter import Spent, spent_by
from feedline.observe.recording import Slots
from feedline.progress import IDLE, INITIALISING, PLACE, PREPARING, SINCE, Row, clock, count_making, unwatched
from feedline.supervise.watch import Death, Standing
from feedline.workers.body import Body
from feedline.workers.held_generators import generators, with_own_generators
from feedline.workers.job import Job
from feedline.workers.parts import set_apart

log = logging.getLogger("feedline")

Message = tuple[int, Task]
"""The run, and the task."""
Lane = queue.SimpleQueue["Message | None"]
Done = queue.SimpleQueue["tuple[int, Outcome | Death | int] | None"]
"""A number is that of a thread that was dismissed and has left."""
STOP_SECONDS = 0.5
"""For all threads together: a sample under way may end, but nobody waits long after Ctrl-C."""


class ThreadWorkers:
    """The contract, kept by `job.num_workers` threads; or by `count` of them, if the others may come later."""

    do = None
    forked = False
    takes_early = False  # they read the user's own dataset, which may be changed between epochs

    def __init__(self, job: Job, count: int | None = None) -> None:
        self._job = job
        self.count = job.num_workers if count is None else count
        self._owner = os.getpid()
        self.pool = SlotPool() if segment.available else None
        self._lanes: list[Lane] = [queue.SimpleQueue() for _ in range(self.count if job.stream or job.in_turn else 1)]
        self._done: Done = queue.SimpleQueue()
        self._now = _Now()
        self._threads: dict[int, _Worker] = {}
        self._rows: list[Row] = []  # also of threads that were given up
        self.spent: Callable[[], Spent] = partial(spent_by, self._rows)
        self.release: Callable[[], None] = self._stop

    def processes(self) -> list[tuple[int, int]]:
        return []

    def credits(self, prefetch_factor: int) -> int:
        return prefetch_factor * self.count

    def start(self) -> None:
        if self._job.stream and self.count > 1 and isinstance(self._job.dataset, Iterator):
            raise WorkerError(
                "the dataset is an iterator (it has __next__), which several threads cannot share without losing "
                "elements: let __iter__ return a new iterator each time, or use one worker or processes"
            )
        for number in range(self.count):
            self.revive(number, elsewhere=False)

    def resize(self, count: int) -> None:
        """Have so many: start some, or dismiss those who are free first, once the tasks sent so far are taken."""
        if self._now.stopping:  # another thread closes the loader
            return
        self.count = count
        staying = sum(not worker.has_left for worker in self._threads.values())
        lane = self._lanes[0]
        waiting = [message for message in _emptied(lane) if message is not None]  # without leave that nobody has taken
        for message in (*waiting, *[None] * max(0, staying - count)):
            lane.put(message)
        vacant = (number for number in range(self._job.num_workers) if number not in self._threads)
        for number in list(islice(vacant, max(0, count - staying))):
            self.revive(number, elsewhere=False)

    def ready(self) -> int:
        """How many have got as far as their first task."""
        there = [worker for worker in self._threads.values() if not worker.has_left]
        return sum(worker.row[PLACE] != INITIALISING for worker in there)

    def submit(self, task: Task, urgent: bool = False, early: bool = False) -> None:
        self._check_owner()
        lane = self._lanes[task.lane % len(self._lanes)]
        waiting = _emptied(lane) if urgent else []
        lane.put((self._now.run, task))
        for message in waiting:
            lane.put(message)

    def submit_first(self, tasks: Sequence[Task]) -> None:
        for task in reversed(tasks):
            self.submit(task, urgent=True)

    def wait(self, timeout: float | None) -> list[Outcome | Death]:
        self._check_owner()
        found: list[Outcome | Death] = []
        try:
            arrived = self._done.get(timeout=timeout)
            while arrived is not None:
                if isinstance(arrived[1], int):
                    self._see_off(arrived[1])
                elif arrived[0] == self._now.run or isinstance(arrived[1], Death):
                    found.append(arrived[1])
                arrived = self._done.get(block=not found, timeout=timeout)
        except queue.Empty:
            return found
        raise WorkerError("the loader was closed by another thread while this one waited for a batch")

    def _see_off(self, number: int) -> None:
        self._threads.pop(number, None)
        if len(self._threads) < self.count:  # more have left than were to
            self.resize(self.count)

    def forget(self, keep_early: bool = False) -> None:
        self._now.run += 1

    def standing(self) -> list[Standing]:
        return [worker.stands(number) for number, worker in sorted(self._threads.items())]

    def slots(self) -> Slots:
        return Slots() if self.pool is None else Slots(*self.pool.occupancy())

    def ask_stacks(self) -> None:
        pass  # they can be had at any time

    def stack_of(self, number: int) -> str:
        if (stack := self._threads[number].stack()) != "":
            return stack
        frame = sys._current_frames().get(self._threads[number].thread.ident or 0)
        return "" if frame is None else "".join(reversed(traceback.format_stack(frame)))

    def kill(self, number: int) -> None:
        # It cannot be ended, but it can be done without: what it still delivers is not waited for any more.
        worker = self._threads.pop(number)
        worker.wanted = False
        task = worker.task if worker.run == self._now.run else None
        lost = [] if task is None else [task]
        if len(self._lanes) == self._job.num_workers:  # nobody else reads from it
            lane = self._lanes[number]
            for message in _emptied(lane):
                if message is None:  # another thread closes the loader: who comes next is to see that
                    lane.put(None)
                elif message[0] == self._now.run:
                    lost.append(message[1])
        self._done.put((self._now.run, Death(number, None, None, task, worker.row[PLACE], 0, "", tuple(lost))))

    def revive(self, number: int, elsewhere: bool) -> None:
        lane = self._lanes[number % len(self._lanes)]
        worker = self._threads[number] = _Worker(self._job, number, lane, self._done, self.pool, self._now)
        self._rows.append(worker.row)

    def _check_owner(self) -> None:
        if self._owner != os.getpid():
            raise WorkerError(
                "the worker threads are not in this forked copy of the process: begin anew with iter(loader)"
            )

    def _stop(self) -> None:
        self._now.stopping = True
        if self._owner != os.getpid():
            return
        for number in list(self._threads):
            self._lanes[number % len(self._lanes)].put(None)
        deadline = time.monotonic() + STOP_SECONDS
        for worker in list(self._threads.values()):
            thread = worker.thread
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    log.warning("%s is still busy with a sample and is left behind", thread.name)
        self._threads = {}
        self._done.put(None)
        self._done = queue.SimpleQueue()
        if self.pool is not None:
            self.pool.close()


def _emptied(lane: Lane) -> list[Message | None]:
    """What was waiting in a lane: tasks, and None for a worker that may leave."""
    found: list[Message | None] = []
    with contextlib.suppress(queue.Empty):
        while True:
            found.append(lane.get_nowait())
    return found


_copying = threading.Lock()


class _Now:
    """What the threads look at before each task: is it still wanted?"""

    run = 0
    stopping = False


class _Worker:
    """One thread, and what it is at."""

    def __init__(self, job: Job, number: int, lane: Lane, done: Done, pool: SlotPool | None, now: _Now) -> None:
        self.wanted = True
        self.has_left = False
        self.run = 0
        self.task: Task | None = None
        self.stack: Callable[[], str] = str
        """Where it reads, if that is not its own thread; empty if it is."""
        self.row: Row = unwatched()
        self.at(INITIALISING)
        arguments = (self, job, number, lane, done, pool, now)
        self.thread = threading.Thread(target=_work, args=arguments, name=f"feedline-{number}", daemon=True)
        self.thread.start()

    def at(self, place: int) -> int:
        now = self.row[SINCE] = clock()
        self.row[PLACE] = place
        return now

    def stands(self, number: int) -> Standing:
        return Standing(number, None, self.task, self.row[PLACE], (clock() - self.row[SINCE]) / 1e9)


def _work(worker: _Worker, job: Job, number: int, lane: Lane, done: Done, pool: SlotPool | None, now: _Now) -> None:
    # A function of what it needs: a running thread must not keep a dropped loader alive.
    ambient = PerThread()
    memory, of_pieces = LocalMemory(pool), LocalMemory(pool, small=True)
    body, broken = _body(job, number, ambient, worker.row)
    if body is not None and body.readers is not None:
        worker.stack = body.readers.stack
    worker.at(IDLE)
    opened = -1
    try:
        while worker.wanted and (message := lane.get()) is not None and not now.stopping:
            run, task = message
            # Else its consumer has left; but a worker that is given its tasks in turn makes all of them, and a stream's
            # worker opens each epoch that others open, or the generators it holds would fall behind theirs.
            if run == now.run or job.in_turn or (job.stream and run != opened):
                opened = run
                began = worker.at(PREPARING)
                worker.run, worker.task = run, task
                outcome = _outcome(body, broken, task, memory if task.piece_of < 0 else of_pieces)
                count_making(worker.row, began, clock())
                if worker.wanted:  # else another has been given the task
                    done.put((run, outcome))
                worker.task = None
                worker.at(IDLE)
                del outcome
            del message, task  # a batch must not live on here until the next one
        worker.has_left = True
        if worker.wanted and not now.stopping:
            done.put((now.run, number))
    finally:
        if body is not None:
            body.stop()


def _body(job: Job, number: int, ambient: PerThread, row: Row) -> tuple[Body | None, Failure | None]:
    try:
        if job.stream:  # each thread its own, so that worker_init_fn can give it its own share
            with _copying:  # one after the other: some datasets change when they are looked at
                job = replace(job, dataset=_own_copy(job))
        body = Body(job, number, ambient, own_process=False, row=row)
        body.start()
    except BaseException as error:  # the loop waits for an outcome, whatever it is
        ambient.close()  # or the modules' functions would go on looking which thread calls them
        return None, Failure.of(error, same_process=False)
    return body, None


def _own_copy(job: Job) -> Any:
    if is_stateful(job.dataset):
        return set_apart(job.dataset)
    return with_own_generators(job.dataset) if generators(job) else copy.copy(job.dataset)


def _outcome(body: Body | None, broken: Failure | None, task: Task, memory: LocalMemory) -> Outcome:
    if body is None:
        return Outcome(task.seq, failure=broken)
    try:
        if task.rows is None:
            return body.run(task, memory.empty)
        return body.run(task, RowMemory(Rows(*task.rows), task.joint.room, memory.empty).empty)
    except BaseException as error:  # SystemExit and the like
        return body.failed(task, error)
    finally:
        memory.finish()
