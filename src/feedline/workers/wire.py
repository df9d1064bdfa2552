"""Tickets: the fixed-size records that pass between the parent and its worker processes.

Everything of variable size lies in the slot a ticket names, so a ticket is written and read whole, in one system call
that cannot be interrupted half-way, and any number of workers may read from one pipe.
Not its job: what is in the slot (arena.packing).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np

from feedline.arena.packing import Packed
from feedline.messages import Task
from feedline.sent_by_value import SentByValue, loads


class TaskTicket(NamedTuple):
    """To a worker: the task's pickle lies at the start of that slot. No two tickets have the same serial number."""

    serial: int
    run: int
    slot: int
    capacity: int
    size: int

    @property
    def dismisses(self) -> bool:
        """Is there no task, but leave to go?"""
        return self.serial == 0


LEAVE = TaskTicket(0, 0, 0, 0, 0)
"""Whoever reads it has done its last task."""


class DoneTicket(NamedTuple):
    """From a worker: the outcome lies in the slot its task came in; or some of it in the joint one, which has room."""

    serial: int
    start: int
    size: int
    capacity: int
    joint_capacity: int = 0

    @property
    def packed(self) -> Packed:
        return Packed(self.start, self.size, self.capacity)


_TASK = struct.Struct("<5q")
_DONE = struct.Struct("<5q")
_DONE_MANY = _DONE.size * 64  # what the parent reads at once


class Descriptor:
    """A file descriptor that may be an argument of a process under every start method."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> Any:
        return _received, (DupFd(self.fd),)


def _received(duplicate: Any) -> Descriptor:
    return Descriptor(duplicate.detach())


def dump_task(task: Task, sent: SentByValue | None = None) -> bytes:
    """A task as bytes. Indices go raw: pickling a small array costs more than all the rest.

    To workers that were `sent` classes by value, indices and places that are no plain numbers go in the same way.
    """
    seq, epoch, seed, indices, first, avoid, alone, shards, _, stride, piece_of, _, joint = task
    raw = indices.tobytes() if isinstance(indices, np.ndarray) else None
    place = None if joint is None else (joint.slot.id, joint.slot.capacity)
    rare = (*task[5:-1], place) if avoid or alone or shards or stride > 1 or piece_of >= 0 else ()
    parts = (seq, epoch, seed, raw, None if raw is not None else indices, first, rare)
    if sent is not None and sent.in_use and (raw is None or rare):
        return sent.dumps(parts)
    return pickle.dumps(parts, protocol=5)


def load_task(data: Any) -> Task:
    """The task again, in a worker."""
    seq, epoch, seed, raw, indices, first, rare = loads(data)
    return Task(seq, epoch, seed, indices if raw is None else np.frombuffer(raw, np.int64), first, *rare)


def send_task(fd: int, ticket: TaskTicket) -> bool:
    """Write to a lane; False if it is full."""
    try:
        os.write(fd, _TASK.pack(*ticket))
    except BlockingIOError:
        return False
    return True


def receive_task(fd: int) -> TaskTicket | None:
    """Wait for a ticket in a worker; None when the parent has closed the lane."""
    data = os.read(fd, _TASK.size)
    return TaskTicket(*_TASK.unpack(data)) if data else None


def open_without_waiting(fd: int) -> int:
    """Another descriptor for the reading end of a pipe, which does not wait. (Not to wait belongs to the open file.)"""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def unread_tasks(fd: int) -> list[TaskTicket]:
    """Take back all tickets that no worker has read."""
    tickets = []
    with contextlib.suppress(BlockingIOError):
        while data := os.read(fd, _TASK.size):
            tickets.append(TaskTicket(*_TASK.unpack(data)))
    return tickets


def send_done(fd: int, ticket: DoneTicket) -> None:
    """Write an outcome's ticket from a worker."""
    os.write(fd, _DONE.pack(*ticket))


def receive_done(fd: int) -> list[DoneTicket]:
    """All tickets that are there, without waiting."""
    try:
        data = os.read(fd, _DONE_MANY)
    except BlockingIOError:
        return []
    return [DoneTicket(*fields) for fields in _DONE.iter_unpack(data)]
