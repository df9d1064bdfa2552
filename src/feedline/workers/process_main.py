"""The main function of a worker process: it sets up, then does task after task until it is told to leave.

Takes: descriptors and the job (or the parcel it is sent in). Promises: the process ends with its parent, ends on
SIGTERM through its `finally` blocks, ignores Ctrl-C, uses one thread for linear algebra and keeps freed memory.
Not its job: what a task does (body).
"""

from __future__ import annotations

import gc
import mmap
import os
import signal
import warnings
from functools import partial
from types import FrameType
from typing import NamedTuple

from feedline.arena.joint import RowMemory, Rows
from feedline.arena.packing import NONE, Packed, Reducers, pack
from feedline.arena.segment import Segment
from feedline.arena.slots import Slot, Writer
from feedline.datasets import Empty
from feedline.errors import add_note
from feedline.machine.finalizers import is_within
from feedline.messages.outcome import Failure, Outcome
from feedline.messages.progress import (
    IDLE,
    INITIALISING,
    LEAVING,
    MEMORY,
    PLACE,
    PREPARING,
    SENDING,
    SENT,
    SINCE,
    TASK,
    WIDTH,
    clock,
)
from feedline.messages.task import Task
from feedline.randomness.task_generators import OwnedGenerators
from feedline.supervise import last_words, lifeline
from feedline.supervise.shutdown import TOLD_TO_LEAVE
from feedline.workers.body import Body, remedy_for
from feedline.workers.freed_memory import keep_freed_memory
from feedline.workers.held_generators import HeldGenerators
from feedline.workers.job import Job
from feedline.workers.one_thread import use_one_thread
from feedline.workers.shipping import Parcel
from feedline.workers.wire import Descriptor, DoneTicket, TaskTicket, load_task, receive_task, send_done

NOTE_MEMORY_EVERY = 50_000_000
"""Nanoseconds between two notes of the worker's memory."""


class Wiring(NamedTuple):
    """The descriptors a worker uses, and those that it inherited by fork and must close."""

    lane: Descriptor
    done: Descriptor
    segment: Descriptor
    lifeline: Descriptor
    parents_own: tuple[int, ...]
    workers: int
    environment: dict[str, str]
    """The parent's environment now; a server that workers are forked from may have an older one."""


def main(wiring: Wiring, cargo: Job | Parcel, number: int) -> None:
    """Run the worker process from its start to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # blocked since its start, but not under forkserver
    for fd in wiring.parents_own:
        os.close(fd)
    os.environ.clear()
    os.environ.update(wiring.environment)
    lifeline.hold(wiring.lifeline.fd)
    signal.signal(signal.SIGTERM, _leave)
    use_one_thread()
    keep_freed_memory()
    gc.freeze()  # inherited objects stay untouched, so their memory stays shared with the parent
    worker = _Worker(wiring, cargo, number)
    try:
        while not _leaving and (ticket := receive_task(wiring.lane.fd)) is not None:
            if ticket.dismisses:
                worker.be_dismissed()
                return
            worker.serve(ticket)
    finally:
        worker.leave()


_leaving = False


def _leave(signum: int, frame: FrameType | None) -> None:
    global _leaving
    _leaving = True
    signal.signal(signum, signal.SIG_IGN)
    warnings.simplefilter("ignore", ResourceWarning)  # the system closes what is open at this point
    # In a finalizer an exception is printed and forgotten.
    if frame is None or not (frame.f_code.co_name == "__del__" or is_within(frame)):
        raise SystemExit(TOLD_TO_LEAVE)


class _Worker:
    def __init__(self, wiring: Wiring, cargo: Job | Parcel, number: int) -> None:
        self._segment = Segment(wiring.segment.fd)
        self._board = self._segment.board(WIDTH * (1 + wiring.workers))
        self._row = self._board[WIDTH * (1 + number) : WIDTH * (2 + number)]
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._note_memory()  # at once: the number in the row is that of a worker before it, or none
        self._done = wiring.done.fd
        self._slots: dict[int, Slot] = {}
        self._body: Body | None = None
        self._held: HeldGenerators | None = None
        self._reducers: Reducers = NONE
        self._broken: Failure | None = None
        self._streams = self._in_turn = False
        self._opened = -1  # the run of the latest task
        last_words.prepare(self._segment, number)
        self._at(INITIALISING)
        try:
            job = cargo if isinstance(cargo, Job) else cargo.open(self._segment)
            self._reducers, self._streams, self._in_turn = job.dialect.reducers, job.stream, job.in_turn
            generators = OwnedGenerators()
            self._body = Body(job, number, generators, own_process=True, row=self._row)
            if self._body.readers is not None:
                last_words.add(self._body.readers.stack)
            self._body.start()
            self._held = HeldGenerators(job) or None  # most datasets hold none
        except Exception as error:
            add_note(
                error,
                f"feedline: worker {number} (pid {os.getpid()}) could not rebuild what was sent to it. The worker "
                "must be able to import the classes and functions in it: define them at the top of a module, not "
                "under if __name__ == '__main__'",
            )
            self._broken = Failure.of(error, same_process=False)
        self._at(IDLE)

    def serve(self, ticket: TaskTicket) -> None:
        """Do one task and write its outcome into the slot that the task came in."""
        self._at(PREPARING)
        self._row[TASK] = ticket.serial
        slot = self._slot(ticket.slot, ticket.capacity)
        if ticket.run < self._board[0] and not self._has_to_do(ticket.run):  # its consumer has left
            send_done(self._done, DoneTicket(ticket.serial, 0, 0, slot.capacity))
        else:
            send_done(self._done, self._serve(ticket, slot))
            self._row[SENT] += clock() - self._row[SINCE]
        self._at(IDLE)
        if self._row[SINCE] >= self._note_memory_at:
            self._note_memory()

    def _note_memory(self) -> None:
        """Write down this process's memory: if it is killed for using too much, it can no longer be measured."""
        self._note_memory_at = clock() + NOTE_MEMORY_EVERY
        self._row[MEMORY] = int(os.pread(self._statm, 64, 0).split()[1]) * mmap.PAGESIZE

    def _has_to_do(self, run: int) -> bool:
        """A worker that gets tasks in turn makes all of them, so that the dataset's own state is the same in every run.
        A stream's worker opens every epoch that others open, so that generators held by the stream stay in step."""
        return self._in_turn or (self._streams and run != self._opened)

    def leave(self) -> None:
        """The process is about to end."""
        if self._body is not None and self._body.readers is not None:
            self._body.readers.leave()

    def be_dismissed(self) -> None:
        """This worker is no longer needed: its end is not a death."""
        self._at(LEAVING)

    def _serve(self, ticket: TaskTicket, slot: Slot) -> DoneTicket:
        self._opened = ticket.run
        task, place = load_task(slot.mapped(ticket.size).view(0, ticket.size))
        if place is None or task.rows is None:
            return DoneTicket(ticket.serial, *self._outcome(task, slot))
        joint = self._slot(*place)
        return DoneTicket(ticket.serial, *self._outcome(task, slot, (Rows(*task.rows), joint)), joint.capacity)

    def _outcome(self, task: Task, slot: Slot, part: tuple[Rows, Slot] | None = None) -> Packed:
        writer = Writer(slot, leased=False)
        elsewhere = None
        if part is not None:
            elsewhere = RowMemory(part[0], partial(part[1].room, shared=True), writer.empty)
        try:
            outcome = self._run(task, writer.empty if elsewhere is None else elsewhere.empty)
        except BaseException as error:  # SystemExit raised by a dataset is its failure; ours comes as SIGTERM
            if isinstance(error, SystemExit) and _leaving:
                raise
            outcome = self._failed(task, error)
        self._at(SENDING)
        try:
            # as a plain tuple, because pickling a class costs a look-up on both sides
            return pack(tuple(outcome), slot, writer, self._reducers, elsewhere)
        except Exception as error:
            if (remedy := remedy_for(error)) is not None:
                add_note(error, remedy)
            failed = self._failed(task, error)._replace(bad=outcome.bad, stream=outcome.stream)
            return pack(tuple(failed), slot, Writer(slot, leased=False))

    def _run(self, task: Task, empty: Empty) -> Outcome:
        if self._body is None:
            return Outcome(task.seq, failure=self._broken)
        outcome = self._body.run(task, empty)
        return outcome if self._held is None else self._held.told(outcome, task.epoch)

    def _at(self, place: int) -> None:
        self._row[SINCE] = clock()
        self._row[PLACE] = place

    def _failed(self, task: Task, error: BaseException) -> Outcome:
        assert self._body is not None
        return self._body.failed(task, error)

    def _slot(self, number: int, capacity: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = Slot(self._segment, number)
        slot.capacity = capacity
        return slot
