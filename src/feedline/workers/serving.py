"""A worker in a process of its own: it opens the job, makes batches in slots, and writes down what it is doing.

Takes: the segment that holds the board and the parcel, the job, tasks. Gives: outcomes, packed in the slot that the
caller names.
Promises: every task has an outcome, whatever user code raises; the board says at any moment what the worker is doing,
and the segment keeps its last words.
Not its job: how tasks come and outcomes go (process_main: pipes; ray_worker: calls), what a task does (body).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from functools import partial

from feedline.arena.joint import RowMemory, Rows
from feedline.arena.packing import NONE, Packed, Reducers, pack
from feedline.arena.segment import Segment
from feedline.arena.slots import Slot, Writer
from feedline.datasets import Empty
from feedline.errors import add_note
from feedline.messages.outcome import Failure, Outcome
from feedline.messages.progress import IDLE, INITIALISING, MEMORY, PLACE, PREPARING, SENDING, SINCE, TASK, WIDTH, clock
from feedline.messages.task import Task
from feedline.randomness.task_generators import OwnedGenerators
from feedline.supervise import last_words
from feedline.supervise.telling import name_of
from feedline.workers.body import Body, remedy_for
from feedline.workers.held_generators import HeldGenerators
from feedline.workers.job import Job
from feedline.workers.shipping import Parcel

NOTE_MEMORY_EVERY = 50_000_000
"""Nanoseconds between two notes of the worker's memory."""

UNABLE = (
    "could not rebuild what was sent to it. The worker must be able to import the classes and functions in it: define "
    "them at the top of a module, not under if __name__ == '__main__'"
)
ELSEWHERE = (
    "could not rebuild what was sent to it. What the dataset imports must be on every machine of the cluster: install "
    "it there, or hand it on with ray_options={'runtime_env': …}; `feedline preflight --ray` looks at every machine"
)


class Serving:
    """One worker, in its process. `is_leaving` says whether the process was told to end: then SystemExit is ours."""

    def __init__(
        self,
        segment: Segment,
        workers: int,
        cargo: Job | Parcel,
        number: int,
        is_leaving: Callable[[], bool],
        host: str = "",
    ) -> None:
        self.board = segment.board(WIDTH * (1 + workers))
        self.row = self.board[WIDTH * (1 + number) : WIDTH * (2 + number)]
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._note_memory()  # at once: the number in the row is that of a worker before it, or none
        self._body: Body | None = None
        self._held: HeldGenerators | None = None
        self._reducers: Reducers = NONE
        self._broken: Failure | None = None
        self._is_leaving = is_leaving
        self._streams = self._in_turn = False
        self._opened = -1  # the run of the latest task
        last_words.prepare(segment, number)
        self.at(INITIALISING)
        try:
            job = cargo if isinstance(cargo, Job) else cargo.open(segment)
            self._reducers, self._streams, self._in_turn = job.dialect.reducers, job.stream, job.in_turn
            generators = OwnedGenerators()
            self._body = Body(job, number, generators, own_process=True, row=self.row, host=host)
            if self._body.readers is not None:
                last_words.add(self._body.readers.stack)
            self._body.start()
            self._held = HeldGenerators(job) or None  # most datasets hold none
        except Exception as error:
            add_note(error, f"feedline: {name_of(number, os.getpid(), host)} {ELSEWHERE if host else UNABLE}")
            self._broken = Failure.of(error, same_process=False)
        self.at(IDLE)

    def at(self, place: int) -> None:
        """Write down what it does now."""
        self.row[SINCE] = clock()
        self.row[PLACE] = place

    def take(self, serial: int) -> None:
        """It has taken the part with that number."""
        self.at(PREPARING)
        self.row[TASK] = serial

    def rest(self) -> None:
        """It waits for a task."""
        self.at(IDLE)
        if self.row[SINCE] >= self._note_memory_at:
            self._note_memory()

    def has_to_make(self, run: int) -> bool:
        """Is a part of an earlier run to be made, although nobody wants it?

        A worker that gets tasks in turn makes all of them, so that the dataset's own state is the same in every run.
        A stream's worker opens every epoch that others open, so that generators held by the stream stay in step."""
        return self._in_turn or (self._streams and run != self._opened)

    def make(self, task: Task, run: int, slot: Slot, part: tuple[Rows, Slot] | None = None) -> Packed:
        """Do a task and write its outcome into the slot; of a divided batch, its rows go into the joint slot."""
        self._opened = run
        writer = Writer(slot, leased=False)
        elsewhere = None
        if part is not None:
            elsewhere = RowMemory(part[0], partial(part[1].room, shared=True), writer.empty)
        try:
            outcome = self._run(task, writer.empty if elsewhere is None else elsewhere.empty)
        except BaseException as error:  # SystemExit raised by a dataset is its failure; ours comes as SIGTERM
            if isinstance(error, SystemExit) and self._is_leaving():
                raise
            outcome = self._failed(task, error)
        self.at(SENDING)
        try:
            # as a plain tuple, because pickling a class costs a look-up on both sides
            return pack(tuple(outcome), slot, writer, self._reducers, elsewhere)
        except Exception as error:
            if (remedy := remedy_for(error)) is not None:
                add_note(error, remedy)
            failed = self._failed(task, error)._replace(bad=outcome.bad, stream=outcome.stream)
            return pack(tuple(failed), slot, Writer(slot, leased=False))

    def leave(self) -> None:
        """The process is about to end."""
        if self._body is not None and self._body.readers is not None:
            self._body.readers.leave()

    def _run(self, task: Task, empty: Empty) -> Outcome:
        if self._body is None:
            return Outcome(task.seq, failure=self._broken)
        outcome = self._body.run(task, empty)
        return outcome if self._held is None else self._held.told(outcome, task.epoch)

    def _failed(self, task: Task, error: BaseException) -> Outcome:
        assert self._body is not None
        return self._body.failed(task, error)

    def _note_memory(self) -> None:
        """Write down this process's memory: if it is killed for using too much, it can no longer be measured."""
        self._note_memory_at = clock() + NOTE_MEMORY_EVERY
        self.row[MEMORY] = int(os.pread(self._statm, 64, 0).split()[1]) * mmap.PAGESIZE
