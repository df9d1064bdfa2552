"""Counts what has been delivered of an epoch. Batches that are out do not count, and are not lost.

Takes: batches as they are delivered: the ledger's entries, or tasks that the loop has done itself.
Gives: the `Place` to continue from.
Promises: a place names the first batch that has not been delivered, whatever was prefetched or came out of order. If a
further step takes batches before the user asks (`hold`), they count when the user gets them (`settle`).
Not its job: saving it (state, loader), what has not been delivered yet (ledger).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from feedline.engine.ledger import Entry
from feedline.messages.outcome import Outcome
from feedline.messages.task import Task
from feedline.order.rank_turns import ONE_RANK, Turns
from feedline.order.shares import Share
from feedline.reading.stream_source import next_epoch_record
from feedline.resume.state import End, NoState, Place, Tail


class Sharing(NamedTuple):
    """What counting has to know about how ranks divide an order."""

    ranks: int = 1
    whole_batches: bool = False
    """Do ranks divide batches, not indices? Then batches are counted."""
    batch_size: int | None = None
    """The size of a full batch, if the loader makes batches of single indices."""
    total: int | None = None
    """The length of the whole order, over all ranks."""

    def after(self, place: int, size: int) -> int:
        """Where in the order all ranks together are after one more step, in which this rank had `size` indices.

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
        self, begin: Place, sharing: Sharing = ALONE, keeps_datasets: bool = False, *, turns: Turns = ONE_RANK
    ) -> None:
        self.drawn = begin.drawn
        self.shards = begin.shards
        """For a stream: in how many parts it is read."""
        self.others = begin.ranks if begin.shards > 1 and begin.is_of_others(turns[:2]) else None
        """For a stream in several parts that continues another rank's state: how many ranks there were, and which."""
        self.is_shared = turns.ranks > 1 or begin.ranks[0] > 1
        """For a stream: do other ranks deliver some of its elements, or did they before?"""
        self.total = max([0, *(record.get("total", 0) for record in begin.streams.values())]) if begin.streams else 0
        """For a stream: how many elements the last epoch had, if its states were given to another number of parts."""
        self._turns = turns
        self._step = turns.after(0)
        self.keeps_datasets = keeps_datasets
        """For a stream: do its datasets begin the next epoch in the state in which they end this one?"""
        self.opened: set[int] = set()
        """For a stream: the parts of which a batch or the end has been delivered."""
        self._finished = False
        self._held: list[Entry] | None = None
        self._oldest = math.inf  # the first batch still in the loop after the latest delivery
        self._begin = begin
        self._sharing = sharing
        self._is_alone = sharing.ranks == 1 and not sharing.whole_batches
        # Delivered although earlier batches were not; None if that was before a resume, and its task comes again.
        self._ahead: dict[int, tuple[Task, Any] | None] = dict.fromkeys(begin.ahead)
        self.resumed_ahead = bool(begin.ahead)
        """Had later batches been delivered already at the place where it began?"""
        # Batches, samples, the sampler's state, the latest indices: one tuple, because another thread may be saving.
        self._counted: tuple[int, int, Any, Any] = (begin.batches, begin.samples, begin.sampler, None)
        self._streams = dict(begin.streams)
        self.share_given: tuple[int, float] | None = None
        """Of the latest batch, if it is a share of a global batch: how many of its rows count, and how many each rank
        would have if all had the same number."""

    def has(self, task: Task, sampler_state: Any, oldest: float) -> bool:
        """Was this batch delivered before the place was saved? Then it counts now, and is not made again."""
        if task.seq not in self._ahead:
            return False
        self._ahead[task.seq] = task, sampler_state
        self._oldest = oldest
        self._advance()
        return True

    def delivered(self, entry: Entry, oldest: float) -> None:
        """A batch has left the loop, for the user or because it was empty. `oldest` is the first that has not."""
        self._oldest = oldest
        if self._held is not None:
            self._held.append(entry)
        elif self._ahead or self.shards or oldest < entry.task.seq:
            self._count([entry])
        else:
            self._take(entry.task, entry.sampler_state)
            self._note_share(entry.task.share)

    def made(self, task: Task, sampler_state: Any, outcome: Outcome) -> None:
        """The same for a batch that the loop has made itself: no other batch is out."""
        if self._held is None and not self._ahead and not self.shards:
            if self._is_alone and task.share is None and (indices := task.indices) is not None:  # most batches
                batches = task.seq + self._step
                self._counted = batches, self._counted[1] + len(indices), sampler_state, indices
                return
            self._take(task, sampler_state)
            self._note_share(task.share)
            return
        entry = Entry(task, 0, sampler_state)
        entry.outcome = outcome
        self.delivered(entry, math.inf)

    def _take(self, task: Task, sampler_state: Any) -> None:
        sharing, indices = self._sharing, task.indices
        if task.share is not None:  # other processes have the other rows, so these indices are not in a state
            size = 1 if sharing.whole_batches else task.share[0]
            self._counted = task.seq + self._step, self._counted[1] + size, sampler_state, None
            return
        if self._is_alone and indices is not None:  # the same as below, but faster: most loaders do this for each batch
            self._counted = task.seq + self._step, self._counted[1] + len(indices), sampler_state, indices
            return
        # How much of the order the task is: its indices, or one whole batch; not known for a stream.
        size = 0 if indices is None else 1 if sharing.whole_batches else len(indices)
        samples = self._counted[1] + size if sharing.ranks == 1 else sharing.after(self._counted[1], size)
        self._counted = task.seq + self._step, samples, sampler_state, indices

    def _note_share(self, share: tuple[int, int, int] | None) -> None:
        """A batch has been given to the user: not one that only counts now, as it was delivered before a resume."""
        if share is not None:
            samples, ranks, rank = share
            self.share_given = Share(ranks, rank).count(samples), samples / ranks

    def hold(self) -> None:
        """From now on, a batch that leaves the loop does not reach the user at once."""
        self._held = []

    @property
    def held(self) -> Sequence[Entry]:
        """The batches that have left the loop and have not reached the user, oldest first."""
        return self._held or ()

    def settle(self, but: int = 0) -> None:
        """The user has got all batches that have left the loop, but for the latest `but` of them."""
        if self._held is not None:
            arrived = len(self._held) - but
            held, self._held = self._held[:arrived], self._held[arrived:]
            self._count(held)

    @property
    def unused_sampler_end(self) -> End | None:
        """The loaded end state of a sampler that was not asked for indices in this process, so it does not know it."""
        end = self._begin.sampler
        return end if isinstance(end, End) and self._begin.batches == self._counted[0] else None

    @property
    def epoch(self) -> int:
        """The epoch's number."""
        return self._begin.epoch

    @property
    def batches(self) -> int:
        """The number of the first batch that has not been delivered."""
        return self._counted[0]

    @property
    def finished(self) -> bool:
        """Has the user seen the end of the epoch?"""
        return self._finished and not self._held

    @finished.setter
    def finished(self, value: bool) -> None:
        self._finished = value

    def _count(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._ahead[entry.task.seq] = entry.task, entry.sampler_state
            self._note_share(entry.task.share)
        self._advance()
        if self.shards:
            for entry in entries:
                assert entry.outcome is not None
                self._count_stream(entry.outcome)

    def _count_stream(self, outcome: Outcome) -> None:
        batches, samples, sampler, _ = self._counted
        size = outcome.size + outcome.dropped
        if outcome.share is not None:
            self._note_share(outcome.share)
            size = outcome.share[0]  # with the rows of the other ranks, whose states are the same
        self._counted = batches, samples + size + len(outcome.bad), sampler, None
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
        """The place to continue from."""
        batches, samples, sampler, indices = self._counted
        no_state, sampler = (sampler, None) if isinstance(sampler, NoState) else ("", sampler)
        if sampler is None and indices is not None and self._sharing.ranks == 1:  # other ranks have other indices
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
            no_state=no_state,
        )

    def datasets(self) -> tuple[dict[str, Any] | None, ...]:
        """For a stream that has ended: how each part begins the next epoch; empty if no dataset has a state."""
        if not self.shards:
            return ()
        records = [self._streams.get(str(shard), {}) for shard in range(self.shards)]
        said = [
            next_epoch_record(record) or ({"problem": record["problem"]} if "problem" in record else None)
            for record in records
        ]
        return tuple(said) if any(said) else ()
