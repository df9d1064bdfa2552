"""What is asked of any kind of worker: start, submit, wait, forget, stop; and, to watch over them, where they stand.

Takes: tasks. Gives: outcomes, in any order, and deaths. Promises: every submitted task has an outcome sooner or later,
or is among those a death has lost; no call but `wait` blocks on a worker.
Not its job: order and limits (loop), what a task does (body), what to do about a death or a stall (guard).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from feedline.arena.slots import SlotPool
from feedline.messages import Outcome, Task
from feedline.observe.meter import Spent
from feedline.observe.recording import Slots
from feedline.supervise.watch import Death, Standing


class Workers(Protocol):
    """A set of workers of one kind."""

    count: int
    """How many there are; 0 when the loop does the work itself."""

    @property
    def do(self) -> Callable[[Task], Outcome] | None:
        """Without workers: does a task on the spot, and the calls below are for nobody. None where there are some."""

    @property
    def pool(self) -> SlotPool | None:
        """Where batches lie, if there is shared memory."""

    @property
    def forked(self) -> bool:
        """Are they copies of this process, which share its memory as long as neither writes?"""

    def processes(self) -> list[tuple[int, int]]:
        """Number and pid of each worker that is a process, while it is there."""

    def credits(self, prefetch_factor: int) -> int:
        """How many tasks may be out at once."""

    def start(self) -> None:
        """Have them ready to take tasks."""

    @property
    def takes_early(self) -> bool:
        """Can they be given tasks of an epoch that has not begun?"""

    def submit(self, task: Task, urgent: bool = False, early: bool = False) -> None:
        """Hand out one task; an urgent one goes out before all others when its worker is revived. The outcome of an
        early one, of the next epoch, is kept until `forget` says whether it is wanted."""

    def submit_first(self, tasks: Sequence[Task]) -> None:
        """Hand out these tasks, in order, before all that nobody has taken yet."""

    def resize(self, count: int) -> None:
        """Have so many from now on, of those the job allows for; who is dismissed does what was sent before. Not for a
        stream, whose parts have their workers."""

    def ready(self) -> int:
        """How many have got as far as their first task."""

    def wait(self, timeout: float | None) -> list[Outcome | Death]:
        """What is there, or else the next to come; empty if nothing came within `timeout` seconds."""

    def forget(self, keep_early: bool = False) -> None:
        """Drop the outcomes of all tasks submitted so far: their consumer has left. With `keep_early` those sent
        early are kept, and are from now on tasks like any other."""

    def standing(self) -> list[Standing]:
        """Where each worker is."""

    def slots(self) -> Slots:
        """Who has how many places for batches."""

    def ask_stacks(self) -> None:
        """Have all workers write down their stacks, soon."""

    def stack_of(self, number: int) -> str:
        """What that worker has written since it was asked."""

    def kill(self, number: int) -> None:
        """End that worker, whatever it is at; `wait` will give its death."""

    def revive(self, number: int, elsewhere: bool) -> None:
        """Put a new worker in the place of a dead one, by another start method if `elsewhere`."""

    spent: Callable[[], Spent]
    """What they have spent their time on since they were started, those that have died since included."""

    release: Callable[[], None]
    """Ends the workers and gives everything back. May be called twice, and in any state. Like `spent` it holds nothing
    of the job, so that a job which refers to its own loader does not keep that alive."""
