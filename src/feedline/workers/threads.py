"""Worker threads: for datasets that wait or release the GIL, and for those that cannot be sent to another process.

Takes: a `Job`, the ledger's parts. Gives: outcomes, and a death for each thread that was given up.
Promises: any free thread takes the next part, or each thread takes its own in turn (`Job.in_turn`; a stream's part goes
to the thread that has its shard open); batches are made in slots and handed over without a copy.
Not its job: stopping a thread that is stuck in user code. Python cannot do that: the thread is named and left behind.
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
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from types import FrameType
from typing import Any

from feedline.arena import segment
from feedline.arena.joint import RowMemory, Rows
from feedline.arena.slots import LocalMemory, SlotPool
from feedline.engine.contract import CLOSED_MEANWHILE, Traits
from feedline.engine.ledger import Ledger, Part
from feedline.errors import WorkerError
from feedline.messages.outcome import Failure, Outcome
from feedline.messages.progress import IDLE, INITIALISING, PLACE, PREPARING, SINCE, Row, clock, unwatched
from feedline.observe.meter import spent_by
from feedline.randomness.redirection import ThreadGenerators
from feedline.resume.stateful import is_stateful
from feedline.supervise.watch import Death, Standing
from feedline.workers.body import Body
from feedline.workers.copying import set_apart, with_own_generators
from feedline.workers.held_generators import generators
from feedline.workers.job import Job

log = logging.getLogger("feedline")

Lane = queue.SimpleQueue["Part | None"]
"""A thread that takes None from its lane leaves."""
Answers = queue.SimpleQueue["Part | Death | int | None"]
"""An int is the number of a dismissed thread that has left; None says that the workers have been stopped."""
STOP_SECONDS = 0.5
"""For all threads together: they may finish the sample they read, but the user must not wait long after Ctrl-C."""


class ThreadWorkers:
    """Implements the contract with at most `job.num_workers` threads."""

    def __init__(self, job: Job, ledger: Ledger) -> None:
        self._job = job
        self._ledger = ledger
        self._owner = os.getpid()
        self._pool = SlotPool() if segment.available else None
        self._own_lanes = job.stream or job.in_turn
        self._count = 0
        self._lanes: list[Lane] = []
        self._answers: Answers = queue.SimpleQueue()
        self._now = _Now()
        self._threads: dict[int, _ThreadWorker] = {}
        self._rows: list[Row] = []  # including those of threads that were given up
        self.traits = Traits(self._pool, partial(spent_by, self._rows))

    def resize(self, count: int) -> None:
        """Start threads, or dismiss those that become free first after all parts sent so far are taken."""
        if self._now.stopping:  # another thread is closing the loader
            return
        if not self._lanes:
            self._open(count)
        self._count = count
        staying = sum(not worker.has_left for worker in self._threads.values())
        if not self._own_lanes:
            lane = self._lanes[0]
            waiting = [part for part in _emptied(lane) if part is not None]  # drops dismissals that no thread has taken
            for part in (*waiting, *[None] * max(0, staying - count)):
                lane.put(part)
        unused_numbers = (number for number in range(self._job.num_workers) if number not in self._threads)
        for number in list(islice(unused_numbers, max(0, count - staying))):
            self.revive(number, elsewhere=False)

    def _open(self, count: int) -> None:
        if self._job.stream and count > 1 and isinstance(self._job.dataset, Iterator):
            raise WorkerError(
                "the dataset is an iterator (it has __next__), which several threads cannot share without losing "
                "elements: let __iter__ return a new iterator each time, or use one worker or processes"
            )
        self._lanes = [queue.SimpleQueue() for _ in range(max(1, count) if self._own_lanes else 1)]

    def send(self, part: Part, first: bool = False) -> None:
        self._check_owner()
        number = part.task.lane % len(self._lanes)
        lane = self._lanes[number]
        if self._own_lanes:
            part.worker = number
        waiting = _emptied(lane) if first else []
        lane.put(part)
        for each in waiting:
            lane.put(each)

    def drop_before(self, run: int) -> None:
        self._now.run = run

    def receive(self, timeout: float | None) -> list[Part | Death]:
        self._check_owner()
        found: list[Part | Death] = []
        answers = self._answers  # read first: if another thread calls stop() now, None arrives in this queue
        if self._now.stopping:
            raise WorkerError(CLOSED_MEANWHILE)
        try:
            arrived = answers.get(timeout=timeout)
            while arrived is not None:
                if isinstance(arrived, int):
                    self._forget_ended(arrived)
                else:
                    found.append(arrived)
                arrived = answers.get(block=not found, timeout=timeout)
        except queue.Empty:
            return found
        raise WorkerError(CLOSED_MEANWHILE)

    def _forget_ended(self, number: int) -> None:
        self._threads.pop(number, None)
        if len(self._threads) < self._count:  # more have left than should
            self.resize(self._count)

    def standing(self) -> list[Standing]:
        return [worker.stands(number) for number, worker in sorted(self._threads.items()) if not worker.has_left]

    def stacks(self, ask: bool = False) -> dict[int, str]:
        frames = sys._current_frames()
        return {number: worker.stack_in(frames) for number, worker in sorted(self._threads.items())}

    def kill(self, number: int) -> None:
        # A thread cannot be ended, but it can be given up: nobody waits for its answers any more.
        worker = self._threads.pop(number)
        worker.wanted = False
        part, place = worker.part, worker.row[PLACE]
        lost = [] if part is None else [part]
        if self._own_lanes:  # no other thread reads from this lane
            lane = self._lanes[number]
            for each in _emptied(lane):
                if each is None:  # another thread is closing the loader: the next reader must see that
                    lane.put(None)
                else:
                    lost.append(each)
        for each in lost:
            self._ledger.abandon(each)
        if part is not None:
            place = part.place(place)
            part = part if self._ledger.is_wanted(part) else None
        self._answers.put(Death(number, None, None, part, place, 0, "", tuple(lost)))

    def revive(self, number: int, elsewhere: bool) -> None:
        lane = self._lanes[number % len(self._lanes)]
        worker = self._threads[number] = _ThreadWorker(self._job, number, lane, self._answers, self._pool, self._now)
        self._rows.append(worker.row)

    def _check_owner(self) -> None:
        if self._owner != os.getpid():
            raise WorkerError(
                "the worker threads are not in this forked copy of the process: begin a new iteration with iter(loader)"
            )

    def stop(self) -> None:
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
                    log.warning("%s is still busy with a sample; the loader does not wait for it", thread.name)
        self._threads = {}
        self._answers.put(None)
        self._answers = queue.SimpleQueue()
        if self._pool is not None:
            self._pool.close()


def _emptied(lane: Lane) -> list[Part | None]:
    """Takes everything out of a lane: parts, and None for each dismissal."""
    found: list[Part | None] = []
    with contextlib.suppress(queue.Empty):
        while True:
            found.append(lane.get_nowait())
    return found


_copying = threading.Lock()


class _Now:
    """What the threads check before each part: is it still wanted?"""

    run = 0
    stopping = False


class _ThreadWorker:
    """One thread, and what it is doing."""

    def __init__(self, job: Job, number: int, lane: Lane, answers: Answers, pool: SlotPool | None, now: _Now) -> None:
        self.wanted = True
        self.has_left = False
        self.part: Part | None = None
        self.reading: Callable[[], str] = str
        """The stack of the thread that reads its sample; empty if it reads in its own thread."""
        self.row: Row = unwatched()
        self.at(INITIALISING)
        arguments = (self, job, number, lane, answers, pool, now)
        self.thread = threading.Thread(target=_work, args=arguments, name=f"feedline-{number}", daemon=True)
        self.thread.start()

    def at(self, place: int) -> int:
        now = self.row[SINCE] = clock()
        self.row[PLACE] = place
        return now

    def stands(self, number: int) -> Standing:
        part, place, seconds = self.part, self.row[PLACE], (clock() - self.row[SINCE]) / 1e9
        if part is None:
            return Standing(number, None, None, place, seconds)
        return Standing(number, None, part.entry.task, part.place(place), seconds)

    def stack_in(self, frames: dict[int, FrameType]) -> str:
        if (stack := self.reading()) != "":
            return stack
        frame = frames.get(self.thread.ident or 0)
        return "" if frame is None else "".join(reversed(traceback.format_stack(frame)))


def _work(
    worker: _ThreadWorker, job: Job, number: int, lane: Lane, answers: Answers, pool: SlotPool | None, now: _Now
) -> None:
    # A function, not a method: a running thread must not keep a dropped loader alive.
    generators = ThreadGenerators()
    memory, of_parts = LocalMemory(pool), LocalMemory(pool, small=True)
    body, broken = _body(job, number, generators, worker.row)
    if body is not None and body.readers is not None:
        worker.reading = body.readers.stack
    worker.at(IDLE)
    opened = -1
    try:
        while worker.wanted and (part := lane.get()) is not None and not now.stopping:
            run = part.entry.run
            # Parts of older runs are not made. But a worker that gets parts in turn makes all of them, and a stream's
            # worker opens each epoch that others open: else its generators would fall behind theirs.
            if run >= now.run or job.in_turn or (job.stream and run != opened):
                opened = run
                worker.at(PREPARING)
                worker.part = part
                outcome = _outcome(body, broken, part, memory if part.task.rows is None else of_parts)
                if worker.wanted:  # else another worker was given the batch
                    part.outcome = outcome
                del outcome
            if worker.wanted:
                answers.put(part)
            worker.part = None
            worker.at(IDLE)
            del part  # else this batch would stay in memory until the next part
        worker.has_left = True
        if worker.wanted and not now.stopping:
            answers.put(number)
    finally:
        if body is not None:
            body.stop()


def _body(job: Job, number: int, generators: ThreadGenerators, row: Row) -> tuple[Body | None, Failure | None]:
    body: Body | None = None
    try:
        if job.stream:  # each thread has a copy, so that worker_init_fn can give it its own share
            with _copying:  # one at a time: copying some datasets changes them
                job = replace(job, dataset=_own_copy(job))
        body = Body(job, number, generators, own_process=False, row=row)
        body.start()
    except BaseException as error:  # the loop waits for an outcome, whatever it is
        # Or the functions of `random` and of a framework would go on looking which thread calls them.
        generators.close() if body is None else body.stop()
        return None, Failure.of(error, same_process=False)
    return body, None


def _own_copy(job: Job) -> Any:
    if is_stateful(job.dataset):
        return set_apart(job.dataset)
    return with_own_generators(job.dataset) if generators(job) else copy.copy(job.dataset)


def _outcome(body: Body | None, broken: Failure | None, part: Part, memory: LocalMemory) -> Outcome:
    task, joint = part.task, part.joint
    if body is None:
        return Outcome(task.seq, failure=broken)
    try:
        if joint is None or task.rows is None:
            return body.run(task, memory)
        return body.run(task, RowMemory(Rows(*task.rows), joint.room, memory).empty)
    except BaseException as error:  # SystemExit and the like
        return body.failed(task, error)
    finally:
        memory.finish()
