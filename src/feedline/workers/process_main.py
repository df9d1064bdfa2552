"""The main function of a worker process: it sets up, then does task after task until it is told to leave.

Takes: descriptors and the job (or the parcel it is sent in). Promises: the process ends with its parent, ends on
SIGTERM through its `finally` blocks, ignores Ctrl-C, uses one thread for linear algebra and keeps freed memory.
Not its job: making batches (serving), what a task does (body).
"""

from __future__ import annotations

import gc
import os
import signal
import warnings
from types import FrameType
from typing import NamedTuple

from feedline.arena.joint import Rows
from feedline.arena.segment import Segment
from feedline.arena.slots import Slot
from feedline.machine.finalizers import is_within
from feedline.messages.progress import LEAVING, SENT, SINCE, clock
from feedline.supervise import lifeline
from feedline.supervise.shutdown import TOLD_TO_LEAVE
from feedline.workers.freed_memory import keep_freed_memory
from feedline.workers.job import Job
from feedline.workers.one_thread import use_one_thread
from feedline.workers.serving import Serving
from feedline.workers.shipping import Parcel
from feedline.workers.wire import Descriptor, DoneTicket, TaskTicket, load_task, receive_task, send_done


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
    _have_environment(wiring.environment)
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


def _have_environment(wanted: dict[str, str]) -> None:
    """Set what differs. In a worker that was just forked that is little, and to set all of it takes half a ms."""
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in wanted.items() if os.environ.get(name) != value})


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
    """Takes tickets from its lane, and answers each with another."""

    def __init__(self, wiring: Wiring, cargo: Job | Parcel, number: int) -> None:
        self._segment = Segment(wiring.segment.fd)
        self._done = wiring.done.fd
        self._slots: dict[int, Slot] = {}
        self._serving = Serving(self._segment, wiring.workers, cargo, number, lambda: _leaving)

    def serve(self, ticket: TaskTicket) -> None:
        """Do one task and write its outcome into the slot that the task came in."""
        serving = self._serving
        serving.take(ticket.serial)
        slot = self._slot(ticket.slot, ticket.capacity)
        if ticket.run < serving.board[0] and not serving.has_to_make(ticket.run):  # its consumer has left
            send_done(self._done, DoneTicket(ticket.serial, 0, 0, slot.capacity))
        else:
            send_done(self._done, self._serve(ticket, slot))
            serving.row[SENT] += clock() - serving.row[SINCE]
        serving.rest()

    def _serve(self, ticket: TaskTicket, slot: Slot) -> DoneTicket:
        task, place = load_task(slot.mapped(ticket.size).view(0, ticket.size))
        if place is None or task.rows is None:
            return DoneTicket(ticket.serial, *self._serving.make(task, ticket.run, slot))
        joint = self._slot(*place)
        packed = self._serving.make(task, ticket.run, slot, (Rows(*task.rows), joint))
        return DoneTicket(ticket.serial, *packed, joint.capacity)

    def leave(self) -> None:
        """The process is about to end."""
        self._serving.leave()

    def be_dismissed(self) -> None:
        """This worker is no longer needed: its end is not a death."""
        self._serving.at(LEAVING)

    def _slot(self, number: int, capacity: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = Slot(self._segment, number)
        slot.capacity = capacity
        return slot
