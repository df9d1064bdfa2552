"""Facts about workers, as values: where each one is, and how one ended.

Not its job: gathering them (workers), deciding anything (policy), putting them into words (telling).
"""

from __future__ import annotations

from typing import NamedTuple

from feedline.messages import Task

NO_WORKER = -1
"""Instead of a worker's number: the loop makes the batch itself."""


class Standing(NamedTuple):
    """Where a worker is right now."""

    worker: int
    pid: int | None
    """None for a thread."""
    task: Task | None
    place: int
    """The sample's place in the task, or one of progress's other places."""
    seconds: float
    """Since it has been there."""
    state: str = ""
    """What the system says of the process, if that is why it does not get on."""
    instead: int | None = None
    """The index that is read in the stead of the sample at that place, if one is."""


class Death(NamedTuple):
    """A worker that has ended without having been told to."""

    worker: int
    pid: int | None
    exitcode: int | None
    task: Task | None
    place: int
    """Where it was when it ended."""
    memory: int
    """The most bytes it had in use, as far as is known: of a forked one exactly, of others after their last batch."""
    last_words: str
    """The stack it left when it crashed."""
    lost: tuple[Task, ...]
    """Tasks that nobody is working on any more, its own among them, in order."""
    instead: int | None = None
    """The index that was read in the stead of the sample at that place, if one was."""
    early: tuple[Task, ...] = ()
    """Tasks of the next epoch that nobody is working on any more; its own may be one of them."""


def state_of(pid: int) -> str:
    """What the system says of a process that cannot run; empty for one that can."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            letter = stat.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""
    return {
        "T": "stopped (SIGSTOP); `kill -CONT` wakes it",
        "t": "stopped by a debugger",
        "D": "waiting for a disk or network file system, which cannot be interrupted",
    }.get(letter, "")
