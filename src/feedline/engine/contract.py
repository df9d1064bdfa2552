"""What is asked of any kind of worker. Ten members; tests/engine/worker_contract.py is what a new kind has to pass.

Takes: parts of batches (engine.ledger). Gives: the same parts with their outcomes, in any order, and deaths.
Promises: every part sent has an answer sooner or later, or is among those a death has lost; no call but `receive`
blocks on a worker.
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
    "the loader was closed by another thread while this one waited for a batch, or was begun anew there: then "
    "persistent workers are the new iteration's"
)


class Traits(NamedTuple):
    """What is true of a set of workers as long as it is there."""

    pool: SlotPool | None
    """Where batches lie, if there is shared memory."""
    spent: Callable[[], Spent]
    """What they have spent their time on since they were started, those that have died since included. Like `stop` it
    holds nothing of the job, so that a job which refers to its own loader does not keep that alive."""
    forked: bool = False
    """Are they copies of this process, which share its memory as long as neither writes?"""
    work_ahead: bool = True
    """Do they work while the user's loop computes? Else `receive` makes the batch."""


class Workers(Protocol):
    """A set of workers of one kind."""

    traits: Traits

    def resize(self, count: int) -> None:
        """Have so many from now on, of those the job allows for; who is dismissed does what was sent before. The first
        call starts them. With a stream, or if they are given batches in turn, the number stays what it is."""

    def send(self, part: Part, first: bool = False) -> None:
        """Hand out a part; before all that nobody has taken yet, if `first`."""

    def drop_before(self, run: int) -> None:
        """Parts of earlier runs need not be made: their consumer has left. Each has its answer all the same."""

    def receive(self, timeout: float | None) -> Sequence[Part | Death]:
        """What is there, or else the next to come; empty if nothing came within `timeout` seconds. A part has its
        outcome now; none if it was of a run that nobody wanted any more, and so was not made. A `WorkerError` if
        another thread calls `stop` meanwhile."""

    def standing(self) -> list[Standing]:
        """Where each worker is."""

    def stacks(self, ask: bool = False) -> dict[int, str]:
        """What workers have written of their stacks since they were last asked; `ask` has them write, soon."""

    def kill(self, number: int) -> None:
        """End that worker, whatever it is at; `receive` will give its death."""

    def revive(self, number: int, elsewhere: bool) -> None:
        """Put a new worker in the place of a dead one, by another start method if `elsewhere`."""

    def stop(self) -> None:
        """End them and give everything back. May be called twice, and in any state."""
