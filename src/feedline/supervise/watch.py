"""Facts about workers, as values: what each is doing, and how one died.

Not its job: gathering them (workers), deciding anything (policy), putting them into words (telling).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from feedline.engine.ledger import Part
from feedline.messages.progress import INITIALISING, LEAVING, SETTING_UP
from feedline.messages.task import Task
from feedline.observe.stats import WorkerMemory

NO_WORKER = -1
"""Instead of a worker's number: the loop makes the batch itself."""


class Standing(NamedTuple):
    """What a worker is doing now."""

    worker: int
    pid: int | None
    """None for a thread."""
    task: Task | None
    """The task of the whole batch."""
    place: int
    """The sample's place in that batch, or another place of messages.progress."""
    seconds: float
    """How long it has been at that place."""
    state: str = ""
    """What the system says about a process that cannot run (only set by `with_state`)."""
    instead: int | None = None
    """The index that is read instead of the sample at that place, if there is one."""
    host: str = ""
    """The machine it runs on, if that is another one, or may be."""
    memory: tuple[int, int] = (0, 0)
    """Of a worker on such a machine, as it says itself: bytes that it uses, and how many of these are its own."""


class Death(NamedTuple):
    """A worker that ended without being told to."""

    worker: int
    pid: int | None
    exitcode: int | None
    part: Part | None
    """The part it was making, if that is known."""
    place: int
    """The sample's place in that batch when it ended, or another place of messages.progress."""
    memory: int
    """Its peak memory in bytes: exact for a forked worker; for others, as measured after their latest batch."""
    last_words: str
    """The stack it left when it crashed."""
    lost: tuple[Part, ...]
    """Parts that no worker has any more, including its own, in order; some may no longer be wanted."""
    instead: int | None = None
    """The index that was read instead of the sample at that place, if there was one."""
    host: str = ""
    """The machine it ran on, if that is another one, or may be."""
    reason: str = ""
    """Why it ended, in the words of another system; empty if that is not known."""

    @property
    def task(self) -> Task | None:
        """The task of the whole batch."""
        return None if self.part is None else self.part.entry.task


def processes(standings: Iterable[Standing]) -> list[tuple[int, int]]:
    """Number and pid of each worker that is a process of this machine."""
    return [(at.worker, at.pid) for at in standings if at.pid is not None and at.worker != NO_WORKER and not at.host]


def told_memory(standings: Iterable[Standing]) -> list[WorkerMemory]:
    """What workers on other machines use, as they say themselves."""
    told = [(at.worker, at.pid, *at.memory, at.host) for at in standings if at.pid is not None and at.memory[0]]
    return [WorkerMemory(number, pid, total, own, own, host) for number, pid, total, own, host in told]


def ready(standings: Iterable[Standing]) -> int:
    """How many workers are ready for tasks, or at work."""
    return sum(at.place not in (SETTING_UP, INITIALISING, LEAVING) for at in standings)


def with_state(at: Standing) -> Standing:
    """The same, with what the system says about the process: that takes 20 µs, and only a report needs it."""
    return at if at.pid is None or at.worker == NO_WORKER or at.host else at._replace(state=state_of(at.pid))


def state_of(pid: int) -> str:
    """What the system says about a process that cannot run; empty if it can."""
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
