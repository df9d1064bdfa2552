"""A task: one batch to make, as a value.

Promises: a task says everything about a batch; who runs it changes nothing. It holds no live object.
Not its job: how it is carried (workers), what became of it (outcome).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any, NamedTuple

from feedline.datasets import IntArray


class AsGiven(list[Any]):
    """Indices as a list, and the very object that a batch sampler gave for them."""

    def __init__(self, given: Any, indices: Iterable[Any]) -> None:
        super().__init__(indices)
        self.given = given

    def __reduce__(self) -> tuple[Any, ...]:
        return AsGiven, (self.given, list(self))


class Task(NamedTuple):
    """One batch to make. `indices` is None for a stream, whose next elements are taken instead."""

    seq: int
    epoch: int
    seed: int
    indices: IntArray | Sequence[Any] | None
    first: int = -1
    """Place of the first index in the epoch, where an index may come twice; -1 where each comes once."""
    avoid: tuple[tuple[int, str], ...] = ()
    """Positions that are not to be read, and why: each killed or stalled a worker. One that is named twice did so
    again while it was replaced, and is left out. A stream's elements cannot be avoided."""
    alone: bool = False
    """Read the samples one by one even if the dataset can read many at once."""
    shards: int = 0
    """For a stream: in how many parts it is read; this batch is of part `seq` mod `shards`."""
    place: dict[str, Any] | None = None
    """For a part of a stream that is opened in its middle: where it stands, as `Outcome.stream` once said."""
    stride: int = 1
    """From one index's place in the epoch to the next one's: several ranks take turns. Of a stream, from one of this
    rank's batches to the next one."""
    rows: tuple[int, int, int, int] | None = None
    """Of a part of a batch: its first row and the one after its last, of how many, and how many the smallest part has
    (arena.joint.Rows). None for a whole batch."""

    @property
    def shard(self) -> int:
        """The part of the stream; for other data just the task's number."""
        return self.seq % self.shards if self.shards else self.seq

    @property
    def lane(self) -> int:
        """Decides which worker reads that part: of a stream's parts a rank has every Nth only."""
        return self.shard // gcd(self.stride, self.shards) if self.shards else self.seq

    @property
    def lanes(self) -> int:
        """How many of the stream's parts this rank reads."""
        return self.shards // gcd(self.stride, self.shards)
