"""What has been delivered of an epoch, counted as it happens: batches under way do not count, and are not lost.

Takes: the ledger's entries as they leave. Gives: the `Place` to go on from.
Promises: a place names the first batch that has not been delivered, whatever was made ahead or out of order. Where a
further step works ahead of the user (`hold`), what it has taken counts when it is handed on (`settle`).
Not its job: saving it (state, loader), what has not been delivered yet (ledger).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from feedline.engine.ledger import Entry
from feedline.messages.outcome import Outcome
from feedline.messages.task import Task
from feedline.order.rank_turns import ONE_RANK, Turns
from feedline.reading.stream_source import anew
from feedline.resume.state import End, Place, Tail, Unsaid


class Sharing(NamedTuple):
    """What counting has to know of how an order is shared out."""

    ranks: int = 1
    whole_batches: bool = False
    """Are batches shared out, and not indices? Then batches are counted."""
    batch_size: int | None = None
    """Of a full batch, where the loader makes them of single indices."""
    total: int | None = None
    """The length of the whole order, over all ranks."""

    def after(self, place: int, size: int) -> int:
        """Where in the order all ranks together are after one more step, in which this one had so much.

        >>> Sharing(ranks=3, batch_size=4, total=10).after(0, size=3)
        10
        """
        if self.ranks == 1:
            return place + size
        stop = place + (self.batch_size or size) * self.ranks
        return stop if self.total is None else min(stop, self.total)


ALONE = Sharing()


class Passed:
    """One epoch's progress.

    >>> passed, entries = Passed(Place(epoch=2)), [Entry(Task(seq, 2, 0, [1, 2]), run=0) for seq in range(3)]
    >>> passed.delivered(entries[0], oldest=1); passed.delivered(entries[2], oldest=1)
    >>> passed.place.batches, passed.place.samples, passed.place.ahead
    (1, 2, (2,))
    """

    def __init__(
        self, begin: Place, sharing: Sharing = ALONE, lasting: bool = False, *, turns: Turns = ONE_RANK
    ) -> None:
        self.drawn = begin.drawn
        self.shards = begin.shards
        """For a stream: in how many parts it is read."""
        self.others = begin.ranks if begin.is_of_others(turns[:2]) and begin.shards > 1 else None
        """For a stream in several parts: of how many ranks which one's state it goes on from, if not this one's."""
        self.is_shared = turns.ranks > 1 or begin.ranks[0] > 1
        """For a stream: are some of its elements delivered by other ranks, or have been?"""
        self.total = max((record.get("total", 0) for record in begin.streams.values()), default=0)
        """For a stream: how many elements the epoch before had, if its states were passed on to other parts."""
        self._turns = turns
        self._step = turns.after(0)
        self.lasting = lasting
        """For a stream: do its datasets begin the next epoch as they end this one?"""
        self.opened: set[int] = set()
        """For a stream: the parts that something was delivered of, or the end."""
        self._finished = False
        self._held: list[Entry] | None = None
        self._oldest = math.inf  # the first batch that had not left the loop, when one last did
        self._begin = begin
        self._sharing = sharing
        # Delivered, but not all before them; None if that was before the place it began at, and they come again.
        self._ahead: dict[int, tuple[Task, Any] | None] = dict.fromkeys(begin.ahead)
        self.came_ahead = bool(begin.ahead)
        """Had later batches been delivered already at the place it began?"""
        # Batches, samples, the sampler's state, the latest indices: stored at once, for another thread may be saving.
        self._counted: tuple[int, int, Any, Any] = (begin.batches, begin.samples, begin.sampler, None)
        self._streams = dict(begin.streams)

    def has(self, task: Task, sampler_state: Any, oldest: float) -> bool:
        """Was this batch delivered before the place was saved? Then it counts now, and is not to be made again."""
        if task.seq not in self._ahead:
            return False
        self._ahead[task.seq] = task, sampler_state
        self._oldest = oldest
        self._advance()
        return True

    def delivered(self, entry: Entry, oldest: float) -> None:
        """A batch has left: to the user, or because there was nothing in it. `oldest` is the first that has not."""
        self._oldest = oldest
        if self._held is not None:
            self._held.append(entry)
        elif self._ahead or self.shards or oldest < entry.task.seq:
            self._count([entry])
        elif self._sharing is ALONE and (indices := entry.task.indices) is not None:
            # As `_take`, for most loaders: this is done for each batch.
            seq, samples = entry.task.seq, self._counted[1] + len(indices)
            self._counted = seq + self._step, samples, entry.sampler_state, indices
        else:
            self._take(entry.task, entry.sampler_state)

    def _take(self, task: Task, sampler_state: Any) -> None:
        # How much of the order it is: indices, or one whole batch; nothing is known of a stream's.
        sharing, indices = self._sharing, task.indices
        size = 0 if indices is None else 1 if sharing.whole_batches else len(indices)
        samples = self._counted[1] + size if sharing.ranks == 1 else sharing.after(self._counted[1], size)
        self._counted = task.seq + self._step, samples, sampler_state, indices

    def hold(self) -> None:
        """From now on what has left the loop is not yet the user's."""
        self._held = []

    def settle(self) -> None:
        """All that has left the loop is now the user's."""
        if self._held is not None:
            held, self._held = self._held, []
            self._count(held)

    @property
    def untold(self) -> End | None:
        """What a sampler that had ended when the place was loaded does not know: it was not asked here."""
        end = self._begin.sampler
        return end if isinstance(end, End) and self._begin.batches == self._counted[0] else None

    @property
    def epoch(self) -> int:
        """The epoch's number."""
        return self._begin.epoch

    @property
    def finished(self) -> bool:
        """Has the end of the epoch been told?"""
        return self._finished and not self._held

    @finished.setter
    def finished(self, value: bool) -> None:
        self._finished = value

    def _count(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._ahead[entry.task.seq] = entry.task, entry.sampler_state
        self._advance()
        if self.shards:
            for entry in entries:
                assert entry.outcome is not None
                self._count_stream(entry.outcome)

    def _count_stream(self, outcome: Outcome) -> None:
        batches, samples, sampler, _ = self._counted
        self._counted = batches, samples + outcome.size + len(outcome.bad) + outcome.dropped, sampler, None
        if outcome.stream is not None:
            shard, record = outcome.stream
            self._streams[str(shard)] = record
        if outcome.ended:
            shard = outcome.seq % self.shards
            record = self._streams.get(str(shard), {})
            self._streams[str(shard)] = record if "ended" in record else {"ended": True}
        self.opened.add(outcome.seq % self.shards)

    def _advance(self) -> None:
        oldest = min([self._oldest, *(entry.task.seq for entry in self._held or ())])
        while self._ahead:
            seq = min(self._ahead)
            delivered = self._ahead[seq]
            if delivered is None or seq > oldest:
                return
            del self._ahead[seq]
            self._take(*delivered)

    @property
    def place(self) -> Place:
        """Where to go on."""
        batches, samples, sampler, indices = self._counted
        unsaid, sampler = (sampler, None) if isinstance(sampler, Unsaid) else ("", sampler)
        if sampler is None and indices is not None and self._sharing.ranks == 1:  # those of another rank differ
            sampler = Tail.of(indices)
        return Place(
            self._begin.epoch,
            batches,
            samples,
            tuple(sorted(seq for seq in self._ahead if seq >= batches)),
            sampler,
            self.shards,
            dict(self._streams),
            self.drawn,
            self._turns[:2],
            unsaid=unsaid,
        )

    def datasets(self) -> tuple[dict[str, Any] | None, ...]:
        """For a stream that has ended: how each part begins the next epoch; empty if no dataset has said anything."""
        records = [self._streams.get(str(shard), {}) for shard in range(self.shards)]
        said = [anew(record) or ({"problem": record["problem"]} if "problem" in record else None) for record in records]
        return tuple(said) if any(said) else ()
