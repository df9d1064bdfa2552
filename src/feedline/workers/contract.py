"""What the loop asks of any kind of worker: start, submit, wait, forget, stop.

Takes: tasks. Gives: outcomes, in any order. Promises: every submitted task has an outcome sooner or later, or `wait`
raises; no call but `wait` blocks on a worker.
Not its job: order and limits (loader), what a task does (body).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from feedline.messages import Outcome, Task


class Workers(Protocol):
    """A set of workers of one kind."""

    count: int
    """How many there are; 0 when the loop does the work itself."""

    forked: bool
    """Are they copies of this process, which share its memory as long as neither writes?"""

    def processes(self) -> list[tuple[int, int]]:
        """Number and pid of each worker that is a process, while it is there."""

    def credits(self, prefetch_factor: int) -> int:
        """How many tasks may be out at once."""

    def start(self) -> None:
        """Have them ready to take tasks."""

    def submit(self, task: Task) -> None:
        """Hand out one task."""

    def wait(self, timeout: float | None) -> list[Outcome]:
        """The outcomes that are there, or else the next one; empty if none came within `timeout` seconds."""

    def forget(self) -> None:
        """Drop the outcomes of all tasks submitted so far: their consumer has left."""

    release: Callable[[], None]
    """Ends the workers and gives everything back. May be called twice, and in any state. It holds nothing of the job,
    so that a job which refers to its own loader does not keep that alive."""
