"""A task: one batch to make, as a value.

Promises: a task says everything about a batch; it does not matter which worker runs it. It holds no live object.
Not its job: how it is sent (workers), its result (outcome).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any, NamedTuple

from feedline.datasets import IntArray


class AsGiven(list[Any]):
    """Indices as a list, with the original object that a batch sampler gave for them."""

    def __init__(self, given: Any, indices: Iterable[Any]) -> None:
        super().__init__(indices)
        self.given = given

    def __reduce__(self) -> tuple[Any, ...]:
        return AsGiven, (self.given, list(self))


class Task(NamedTuple):
    """One batch to make. `indices` is None for a stream: then the batch has the stream's next elements."""

    seq: int
    epoch: int
    seed: int
    indices: IntArray | Sequence[Any] | None
    first: int = -1
    """The place of the first index in the epoch, if an index may come twice; -1 if each comes once."""
    avoid: tuple[tuple[int, str], ...] = ()
    """Positions that must not be read, and why: each killed or stalled a worker. If a position is named twice, its
    replacement did so too, and it is left out. A stream's elements cannot be avoided."""
    alone: bool = False
    """Read the samples one by one even if the dataset can read many at once."""
    shards: int = 0
    """For a stream: in how many parts it is read; this batch belongs to part `seq` mod `shards`."""
    place: dict[str, Any] | None = None
    """For a part of a stream that is opened in its middle: where it is, as an earlier `Outcome.stream` said."""
    stride: int = 1
    """The distance in the epoch from one index to the next, because several ranks take turns. For a stream, the
    distance from one of this rank's batches to the next."""
    rows: tuple[int, int, int, int] | None = None
    """For a part of a batch: its first row, the row after its last, the rows of the batch, and the rows of the smallest
    part (arena.joint.Rows). None for a whole batch."""
    share: tuple[int, int, int] | None = None
    """If other processes make the other rows of a global batch: its number of samples, how many different sets of rows
    processes have, and which of them this is. None if the task has the whole batch."""

    draws_as: int | None = None
    """What the global generators are seeded with instead of `seq`, because other ranks have a batch of that number."""

    @property
    def draw(self) -> int:
        """The number that the global generators are seeded with: processes with other rows draw other numbers."""
        if self.draws_as is not None:
            return self.draws_as
        return self.seq if self.share is None else self.seq * self.share[1] + self.share[2]

    @property
    def shard(self) -> int:
        """The number of the stream's part; for other data the task's number."""
        return self.seq % self.shards if self.shards else self.seq

    @property
    def lane(self) -> int:
        """Decides which worker reads the part. (The parts of one rank are every Nth, so their numbers have gaps.)"""
        return self.shard // gcd(self.stride, self.shards) if self.shards else self.seq

    @property
    def lanes(self) -> int:
        """How many of the stream's parts this rank reads."""
        return self.shards // gcd(self.stride, self.shards)


def plain(seq: int, epoch: int, seed: int, indices: IntArray | Sequence[Any] | None, first: int = -1) -> Task:
    """The same as `Task(seq, epoch, seed, indices, first)`, in half the time: one is made for each batch.

    >>> plain(3, 0, 1, [5]) == Task(3, 0, 1, [5]), plain(3, 0, 1, [5], 7) == Task(3, 0, 1, [5], 7)
    (True, True)
    """
    return _new(Task, (seq, epoch, seed, indices, first) + _USUAL)  # noqa: RUF005  # * takes three times as long


_new, _USUAL = tuple.__new__, tuple(Task(0, 0, 0, None))[5:]
