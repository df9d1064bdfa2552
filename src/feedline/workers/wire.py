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


Place = tuple[int, int]
"""A slot's number and its capacity."""
_INDICES = Task._fields.index("indices")
_USUAL = Task._fields.index("first") + 1
_RARELY = tuple(Task._field_defaults[name] for name in Task._fields[_USUAL:])
"""What the other fields of most tasks are."""


class Descriptor:
    """A file descriptor that may be an argument of a process under every start method."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> Any:
        return _received, (DupFd(self.fd),)


def _received(duplicate: Any) -> Descriptor:
    return Descriptor(duplicate.detach())


def dump_task(task: Task, joint: Place | None = None, sent: SentByValue | None = None) -> bytes:
    """A task as bytes, and the place that it is to be written to with others. Indices go raw: pickling a small array
    costs more than all the rest.

    To workers that were `sent` classes by value, indices and places that are no plain numbers go in the same way.
    """
    indices, rare = task.indices, task[_USUAL:]
    raw = indices.tobytes() if isinstance(indices, np.ndarray) else None
    fields = None if rare == _RARELY else rare
    message = (*task[:_INDICES], raw, None if raw is not None else indices, task.first, fields, joint)
    if sent is not None and sent.in_use and (raw is None or fields is not None):
        return sent.dumps(message)
    return pickle.dumps(message, protocol=5)


def load_task(data: Any) -> tuple[Task, Place | None]:
    """The same again, in a worker."""
    seq, epoch, seed, raw, indices, first, fields, joint = loads(data)
    task = Task(seq, epoch, seed, indices if raw is None else np.frombuffer(raw, np.int64), first)
    if fields is not None:
        task = task._replace(**dict(zip(Task._fields[_USUAL:], fields, strict=True)))
    return task, joint


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
