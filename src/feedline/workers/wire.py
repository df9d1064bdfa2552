"""Tickets, the fixed-size records that the parent and its worker processes exchange, and the pipes they go through.

Everything of variable size is in the slot that a ticket names. So one system call, which cannot be interrupted half
way, writes or reads a whole ticket, and any number of workers may read from one pipe. The parent never blocks.
Not its job: what is in the slot (arena.packing).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from collections import deque
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np

from feedline.arena.packing import Packed
from feedline.messages.sent_by_value import SentByValue, loads
from feedline.messages.task import Task


class TaskTicket(NamedTuple):
    """To a worker: the task's pickle is at the start of that slot. No two tickets have the same serial number."""

    serial: int
    run: int
    slot: int
    capacity: int
    size: int

    @property
    def dismisses(self) -> bool:
        """Does this ticket tell the worker to leave?"""
        return self.serial == 0


LEAVE = TaskTicket(0, 0, 0, 0, 0)
"""A worker that reads this ticket leaves."""


class DoneTicket(NamedTuple):
    """From a worker: the outcome is in the slot its task came in; of a divided batch, rows are in the joint slot."""

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
"""The defaults of the other fields, which most tasks have."""


class Descriptor:
    """A file descriptor that can be an argument of a process under every start method."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> Any:
        return _received, (DupFd(self.fd),)


def _received(duplicate: Any) -> Descriptor:
    return Descriptor(duplicate.detach())


def dump_task(task: Task, joint: Place | None = None, sent: SentByValue | None = None) -> bytes:
    """A task as bytes, with the joint slot that its rows are written to, if any. Indices are sent raw: pickling a small
    array costs more than everything else.

    If classes were `sent` to the workers by value, indices and places that are not plain numbers are sent that way too.
    """
    indices, rare = task.indices, task[_USUAL:]
    raw = indices.tobytes() if isinstance(indices, np.ndarray) else None
    fields = None if rare == _RARELY else rare
    message = (*task[:_INDICES], raw, None if raw is not None else indices, task.first, fields, joint)
    if sent is not None and sent.in_use and (raw is None or fields is not None):
        return sent.dumps(message)
    return pickle.dumps(message, protocol=5)


def load_task(data: Any) -> tuple[Task, Place | None]:
    """The reverse of `dump_task`, called in a worker."""
    seq, epoch, seed, raw, indices, first, fields, joint = loads(data)
    task = Task(seq, epoch, seed, indices if raw is None else np.frombuffer(raw, np.int64), first)
    if fields is not None:
        task = task._replace(**dict(zip(Task._fields[_USUAL:], fields, strict=True)))
    return task, joint


def receive_task(fd: int) -> TaskTicket | None:
    """Called in a worker: wait for a ticket; None if the parent has closed the lane."""
    data = os.read(fd, _TASK.size)
    return TaskTicket(*_TASK.unpack(data)) if data else None


def open_without_waiting(fd: int) -> int:
    """A second, non-blocking descriptor for a pipe's reading end. (Duplicates share the blocking mode.)"""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def unread_tasks(fd: int) -> list[TaskTicket]:
    """Take back all tickets that no worker has read."""
    tickets = []
    with contextlib.suppress(BlockingIOError):
        while data := os.read(fd, _TASK.size):
            tickets.append(TaskTicket(*_TASK.unpack(data)))
    return tickets


def send_done(fd: int, ticket: DoneTicket) -> None:
    """Called in a worker: send the ticket of an outcome."""
    os.write(fd, _DONE.pack(*ticket))


def receive_done(fd: int) -> list[DoneTicket]:
    """All tickets that are there, without waiting."""
    try:
        data = os.read(fd, _DONE_MANY)
    except BlockingIOError:
        return []
    return [DoneTicket(*fields) for fields in _DONE.iter_unpack(data)]


class Lane:
    """A pipe for task tickets. A ticket that the full pipe does not take waits here; the parent never blocks."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        self._recalling = open_without_waiting(self.reading)  # opened now: after a death no descriptor may be left
        self.waiting: deque[TaskTicket] = deque()

    @property
    def parents_own(self) -> tuple[int, int]:
        """Descriptors that no worker may keep open."""
        return self.writing, self._recalling

    def post(self, ticket: TaskTicket, first: bool) -> None:
        """Send a ticket; if `first`, before all tickets that no worker has read."""
        if first:
            self.recall()
            self.waiting.appendleft(ticket)
        else:
            self.waiting.append(ticket)
        self.flush()

    def flush(self) -> None:
        """Send as many waiting tickets as the pipe has room for."""
        with contextlib.suppress(BlockingIOError):
            while self.waiting:
                os.write(self.writing, _TASK.pack(*self.waiting[0]))
                self.waiting.popleft()

    def recall(self) -> None:
        """Take back tickets that no worker has read: they wait here, in order, until the next flush."""
        self.waiting.extendleft(reversed(unread_tasks(self._recalling)))

    def take_back(self) -> list[int]:
        """Take back all parts that no worker has read, and return their serial numbers. Dismissals are sent again."""
        self.recall()
        taken = [ticket.serial for ticket in self.waiting if not ticket.dismisses]
        self.waiting = deque(ticket for ticket in self.waiting if ticket.dismisses)
        self.flush()
        return taken

    def dismiss(self, count: int) -> None:
        """Make `count` readers leave after the tasks sent so far. Earlier dismissals that were not read are dropped."""
        self.recall()
        self.waiting = deque(ticket for ticket in self.waiting if not ticket.dismisses)
        self.waiting.extend([LEAVE] * max(0, count))
        self.flush()

    def close(self) -> None:
        """Close the pipe."""
        for fd in self.parents_own:
            os.close(fd)
        os.close(self.reading)
