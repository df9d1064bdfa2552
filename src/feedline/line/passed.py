"""What has been delivered of an epoch, counted as it happens: batches under way do not count, and are not lost.

Takes: tasks as they are sent out, outcomes as they leave. Gives: the `Place` to go on from.
Promises: a place names the first batch that has not been delivered, whatever was made ahead or out of order. Where a
further step works ahead of the user (`hold`), what it has taken counts when it is handed on (`settle`).
Not its job: saving it (state, loader).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from feedline.messages import Outcome, Task
from feedline.state import Place, Tail


class LastIndices(NamedTuple):
    """What stands for the state of a sampler that has none: the indices it gave last. Digested only if saved."""

    indices: Sequence[Any]


class Passed:
    """One epoch's progress.

    >>> passed = Passed(Place(epoch=2))
    >>> for seq in range(3):
    ...     passed.sent(Task(seq, 2, 0, [1, 2]), None)
    >>> passed.delivered(Outcome(0)); passed.delivered(Outcome(2))
    >>> passed.place.batches, passed.place.samples, passed.place.ahead
    (1, 2, (2,))
    """

    def __init__(self, begin: Place, ranks: int = 1, whole_batches: bool = False) -> None:
        self.drawn = begin.drawn
        self.shards = begin.shards
        """For a stream: in how many parts it is read."""
        self._finished = False
        self._held: list[Outcome] | None = None
        self._begin = begin
        self._ranks = ranks
        self._whole_batches = whole_batches
        self._under_way: deque[tuple[int, int, Any]] = deque()  # number, indices, the sampler's state after it
        self._ahead = set(begin.ahead)
        self._batches = begin.batches
        self._samples = begin.samples
        self._sampler = begin.sampler
        self._streams = dict(begin.streams)

    def sent(self, task: Task, sampler_state: Any) -> None:
        """A task has been sent out."""
        self._under_way.append((task.seq, self._size(task), sampler_state))

    def delivered(self, outcome: Outcome) -> None:
        """An outcome has left: to the user, or because there was nothing in it."""
        if self._held is not None:
            self._held.append(outcome)
        else:
            self._count(outcome)

    def done(self, task: Task, sampler_state: Any, outcome: Outcome) -> None:
        """A task has been sent and its outcome has left, and none other is under way."""
        if self._held is not None or self.shards:
            self.sent(task, sampler_state)
            self.delivered(outcome)
            return
        self._batches = task.seq + 1
        self._samples += self._size(task) * self._ranks
        self._sampler = sampler_state

    def _size(self, task: Task) -> int:
        """How much of the order it is: indices, or one whole batch; nothing is known of a stream's."""
        return 0 if task.indices is None else 1 if self._whole_batches else len(task.indices)

    def hold(self) -> None:
        """From now on what has left the loop is not yet the user's."""
        self._held = []

    def settle(self) -> None:
        """All that has left the loop is now the user's."""
        if self._held is not None:
            held, self._held = self._held, []
            for outcome in held:
                self._count(outcome)

    @property
    def finished(self) -> bool:
        """Has the end of the epoch been told?"""
        return self._finished and not self._held

    @finished.setter
    def finished(self, value: bool) -> None:
        self._finished = value

    def _count(self, outcome: Outcome) -> None:
        self._ahead.add(outcome.seq)
        while self._under_way and self._under_way[0][0] in self._ahead:
            seq, size, sampler = self._under_way.popleft()
            self._ahead.discard(seq)
            self._batches = seq + 1
            self._samples += size * self._ranks
            self._sampler = sampler
        if not self.shards:
            return
        self._samples += outcome.size + len(outcome.bad) + outcome.dropped
        if outcome.ended:
            self._streams[str(outcome.seq % self.shards)] = {"ended": True}
        elif outcome.stream is not None:
            shard, record = outcome.stream
            self._streams[str(shard)] = record

    @property
    def place(self) -> Place:
        """Where to go on."""
        sampler = Tail.of(self._sampler.indices) if isinstance(self._sampler, LastIndices) else self._sampler
        return Place(
            self._begin.epoch,
            self._batches,
            self._samples,
            tuple(sorted(self._ahead)),
            sampler,
            self.shards,
            dict(self._streams),
            self.drawn,
        )
