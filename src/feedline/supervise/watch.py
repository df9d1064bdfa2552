"""Facts about workers, as values: where each one is, and how one ended.

Not its job: gathering them (workers), deciding anything (policy), putting them into words (telling).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from feedline.engine.ledger import Part
from feedline.messages.progress import INITIALISING, LEAVING, SETTING_UP
from feedline.messages.task import Task

NO_WORKER = -1
"""Instead of a worker's number: the loop makes the batch itself."""


class Standing(NamedTuple):
    """Where a worker is right now."""

    worker: int
    pid: int | None
    """None for a thread."""
    task: Task | None
    """The whole batch's."""
    place: int
    """The sample's place in that batch, or one of progress's other places."""
    seconds: float
    """Since it has been there."""
    state: str = ""
    """What the system says of the process, if that is why it does not get on, and somebody has asked (`with_state`)."""
    instead: int | None = None
    """The index that is read in the stead of the sample at that place, if one is."""


class Death(NamedTuple):
    """A worker that has ended without having been told to."""

    worker: int
    pid: int | None
    exitcode: int | None
    part: Part | None
    """What it was at, as far as that is known."""
    place: int
    """Where in that batch it was when it ended, or one of progress's other places."""
    memory: int
    """The most bytes it had in use, as far as is known: of a forked one exactly, of others after their last batch."""
    last_words: str
    """The stack it left when it crashed."""
    lost: tuple[Part, ...]
    """Parts that nobody is working on any more, its own among them, in order; also such as nobody wants."""
    instead: int | None = None
    """The index that was read in the stead of the sample at that place, if one was."""

    @property
    def task(self) -> Task | None:
        """The whole batch's."""
        return None if self.part is None else self.part.entry.task


def processes(standings: Iterable[Standing]) -> list[tuple[int, int]]:
    """Number and pid of each worker that is a process."""
    return [(at.worker, at.pid) for at in standings if at.pid is not None and at.worker != NO_WORKER]


def ready(standings: Iterable[Standing]) -> int:
    """How many have got as far as their first task."""
    return sum(at.place not in (SETTING_UP, INITIALISING, LEAVING) for at in standings)


def with_state(at: Standing) -> Standing:
    """The same, with what the system says of the process: that takes 20 µs, and only a report needs it."""
    return at if at.pid is None or at.worker == NO_WORKER else at._replace(state=state_of(at.pid))


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
