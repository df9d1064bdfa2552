"""What every kind of worker must provide: ten members. A new kind has to pass tests/engine/worker_contract.py.

Takes: parts of batches (engine.ledger). Gives: the same parts with their outcomes, in any order, and deaths.
Promises: every part that was sent gets an answer sooner or later, or is listed as lost by a death; no call except
`receive` blocks on a worker.
Not its job: order and limits (ledger, loop), what a task does (workers.body), what to do about a death (recovery) or a
stall (waiting).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from feedline.arena.slots import SlotPool
from feedline.engine.ledger import Part
from feedline.observe.meter import Spent
from feedline.supervise.watch import Death, Standing

CLOSED_MEANWHILE = (
    "this iteration was closed by another thread while this one waited for a batch, or another thread called iter() on "
    "the loader again: then persistent workers belong to the new iteration"
)


class Traits(NamedTuple):
    """Facts about a set of workers that never change."""

    pool: SlotPool | None
    """Where batches are stored, if there is shared memory."""
    spent: Callable[[], Spent]
    """What the workers have spent their time on since the start, including those that have died. Like `stop`, it holds
    no reference to the job, so that a job which refers to its own loader does not keep the loader alive."""
    forked: bool = False
    """Are they forked copies of this process, which share its memory until one side writes?"""
    joins: bool = True
    """Can several workers write parts of one batch into one slot?"""
    work_ahead: bool = True
    """Do they work while the user's loop computes? Else `receive` makes the batch; the loop has it made directly
    (`InlineWorkers.make`)."""


class Workers(Protocol):
    """A set of workers of one kind."""

    traits: Traits

    def resize(self, count: int) -> None:
        """Have this many workers from now on, at most the job's number. A dismissed worker first finishes what was sent
        to it. The first call starts them. With a stream, or with batches given in turn, the number does not change."""

    def send(self, part: Part, first: bool = False) -> None:
        """Hand out a part; if `first`, before all parts that no worker has taken yet."""

    def drop_before(self, run: int) -> None:
        """Parts of earlier runs need not be made: their consumer has left. Each still gets an answer."""

    def receive(self, timeout: float | None) -> Sequence[Part | Death]:
        """The answers and deaths that are there, or else the next to come; empty if none came within `timeout` seconds.
        Each part has its outcome now, or None if it was not made because its run is over. Raises `WorkerError` if
        another thread calls `stop` meanwhile."""

    def standing(self) -> list[Standing]:
        """What each worker is doing now."""

    def stacks(self, ask: bool = False) -> dict[int, str]:
        """The stacks that workers have written since they were last asked; `ask` makes them write again, soon."""

    def kill(self, number: int) -> None:
        """End that worker, whatever it is doing; `receive` will report its death."""

    def revive(self, number: int, elsewhere: bool) -> None:
        """Put a new worker in the place of a dead one, by another start method if `elsewhere`."""

    def stop(self) -> None:
        """End the workers and release everything. May be called twice, and in any state."""
