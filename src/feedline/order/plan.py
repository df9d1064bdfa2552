"""An epoch as a sequence of tasks.

Takes: a sampler (ours or any iterable), a batch size, a seed. Gives: `Task` values, from any place on.
Promises: task k of an epoch is always the same; with our samplers it is made without making the tasks before it. A
sampler's exception comes out of `next()`, after every whole batch before it.
Not its job: reading data (fetch, stream), how many tasks are under way (loader).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

import numpy as np

from feedline.messages.task import Task, plain
from feedline.order.permutation import Counting, Permutation
from feedline.order.prediction import sampler_of_next_epoch
from feedline.order.rank_turns import Turns
from feedline.order.ranks import draws_as, repeats_over_ranks, share_length, share_of, turns_of
from feedline.order.replay import Again, compare
from feedline.order.sampler import (
    MakesBatches,
    Sampler,
    has_batches,
    has_order,
    indices_at,
    is_ours,
    order_of,
    samplers_in,
)
from feedline.order.samplers import BatchSampler
from feedline.resume.state import Place, Tail

AT_ONCE = 4096
"""How many indices are taken from an order in one call: with 8 to a batch, one call for 512 of them. Not chosen by a
benchmark; the indices of a batch are then views on an array of at most 32 KB."""
NO_INDICES = np.empty(0, np.int64)


class Tasks(Protocol):
    """One epoch's tasks, one after the other."""

    def __next__(self) -> Task: ...
    def sampler_state(self) -> Any:
        """The sampler's own record of its place after the latest task; None if it keeps none."""

    def ended(self, seq: int) -> None:
        """The stream that task `seq` read from is exhausted."""


class Plan(Protocol):
    """The tasks of any epoch."""

    def __len__(self) -> int: ...
    @property
    def repeats(self) -> bool:
        """May an index come twice in an epoch? Then a sample's place, too, decides what it draws."""

    def tasks(self, epoch: int, start: int = 0) -> Tasks:
        """The tasks from batch number `start` on."""

    def tasks_from(self, place: Place) -> Tasks:
        """The tasks from a place on, including those that were delivered ahead; `place.samples` counts this rank's."""

    def predicted(self, epoch: int) -> Tasks | None:
        """What `tasks(epoch)` will be, as far as it is known now; None if asking would have side effects."""


class MapTasks:
    """Tasks over a map-style dataset."""

    def __init__(self, tasks: Iterator[Task], sampler_state: Callable[[], Any] = lambda: None) -> None:
        self.take = tasks.__next__
        """The same as `next()` of this object, in a third of the time."""
        self.sampler_state = sampler_state

    def __next__(self) -> Task:
        return self.take()

    def ended(self, seq: int) -> None:
        raise AssertionError("only a stream ends early")


class OrderPlan:
    """Batches of one of our samplers: seekable.

    >>> from feedline.order.samplers import SequentialSampler
    >>> plan = OrderPlan(SequentialSampler(10), batch_size=4, drop_last=False, seed=0)
    >>> len(plan), next(plan.tasks(epoch=0, start=2)).indices
    (3, array([8, 9]))
    """

    def __init__(self, sampler: Sampler, batch_size: int | None, drop_last: bool, seed: int) -> None:
        self.sampler = sampler
        self._size = 1 if batch_size is None else batch_size
        self._drop_last = drop_last
        self._seed = seed

    def __len__(self) -> int:
        return count_batches(len(self.sampler), self._size, self._drop_last)

    @property
    def repeats(self) -> bool:
        return self.sampler.repeats

    def tasks(self, epoch: int, start: int = 0) -> Tasks:
        return self.tasks_from(Place(epoch, start, start * self._size))

    def predicted(self, epoch: int) -> Tasks | None:
        sampler = sampler_of_next_epoch(self.sampler)
        return None if sampler is None else OrderPlan(sampler, self._size, self._drop_last, self._seed).tasks(epoch)

    def tasks_from(self, place: Place) -> Tasks:
        return MapTasks(self._generate(place))

    def _generate(self, place: Place) -> Iterator[Task]:
        own_seed, epoch, start, samples = self.sampler.seed, place.epoch, place.batches, place.samples
        order = order_of(self.sampler, self._seed if own_seed is None else own_seed, epoch)
        compare(place, lambda: order[max(0, samples - Tail.LONGEST) : samples])
        size, seed, repeats = self._size, self._seed, self.sampler.repeats
        ranks, rank = turns_of(self.sampler)
        begin = samples - start * size  # not 0 if the earlier batches had another size
        # These orders give the same at any time: a slice for many batches takes as long as one for a single batch.
        stretch = max(1, AT_ONCE // size) if type(order) in (np.ndarray, Counting, Permutation) else 1
        known, known_from = NO_INDICES, 0
        for seq in range(start, start + count_batches(len(order) - samples, size, self._drop_last)):
            first = begin + seq * size
            if first + size > known_from + len(known):
                known, known_from = indices_at(order, first, first + size * stretch), first
            indices = known[first - known_from : first - known_from + size]
            begins = first * ranks + rank
            if repeats:
                yield Task(seq, epoch, seed, indices, begins, stride=ranks, draws_as=draws_as(rank, begins))
            elif rank:
                yield Task(seq, epoch, seed, indices, draws_as=draws_as(rank, begins))
            else:
                yield plain(seq, epoch, seed, indices)


class BatchPlan:
    """The batches of one of our samplers that makes whole batches: seekable.

    A place's `samples` counts batches here: such a sampler gives batches, and ranks share batches out.

    >>> from feedline import StratifiedBatchSampler
    >>> plan = BatchPlan(StratifiedBatchSampler([0, 1, 0, 1], batch_size=2), seed=0)
    >>> len(plan), sorted(next(plan.tasks(epoch=0, start=1)).indices.tolist())
    (2, [0, 3])
    """

    def __init__(self, sampler: MakesBatches, seed: int) -> None:
        self._sampler = sampler
        self._seed = seed

    def __len__(self) -> int:
        return len(self._sampler)

    @property
    def repeats(self) -> bool:
        return repeats_over_ranks(self._sampler)

    def tasks(self, epoch: int, start: int = 0) -> Tasks:
        return self.tasks_from(Place(epoch, start, start))

    def predicted(self, epoch: int) -> Tasks | None:
        sampler = sampler_of_next_epoch(self._sampler)
        return None if sampler is None else BatchPlan(sampler, self._seed).tasks(epoch)

    def tasks_from(self, place: Place) -> Tasks:
        return MapTasks(self._generate(place))

    def _generate(self, place: Place) -> Iterator[Task]:
        own_seed, epoch, past = self._sampler.seed, place.epoch, place.samples
        share, repeats = share_of(self._sampler, self._seed if own_seed is None else own_seed, epoch), self.repeats
        compare(place, lambda: share[past - 1] if 0 < past <= len(share) else ())
        for seq, number in enumerate(range(past, len(share)), place.batches):
            first, draws = share.first(number, repeats), share.draws_as(number)
            yield Task(seq, epoch, self._seed, share[number], first, draws_as=draws)


class IterablePlan:
    """Batches of any iterable of indices, or any iterable of batches of indices (`batch_size` None, `batches`)."""

    repeats = True  # nobody knows

    def __init__(
        self, indices: Iterable[Any], batch_size: int | None, drop_last: bool, seed: int, batches: bool = False
    ) -> None:
        self._indices = indices
        self._size = 1 if batch_size is None else batch_size
        self._drop_last = drop_last
        self._seed = seed
        self._batches = batches

    def __len__(self) -> int:
        length = len(self._indices)  # type: ignore[arg-type]  # a TypeError naming the sampler's class is right
        return length if self._batches else count_batches(length, self._size, self._drop_last)

    def tasks(self, epoch: int, start: int = 0) -> Tasks:
        place = Place(epoch)
        return MapTasks(islice(self._generate(place, Again(self._indices, place, self._batches)), start, None))

    def tasks_from(self, place: Place) -> Tasks:
        indices = Again(self._indices, place, self._batches)
        return MapTasks(self._generate(place, indices), indices.state)

    def predicted(self, epoch: int) -> Tasks | None:
        return None  # asking a foreign sampler may have side effects

    def _generate(self, place: Place, source: Iterator[Any]) -> Iterator[Task]:
        for each in filter(is_ours, samplers_in(self._indices)):
            each.by_hand = self._seed, place.epoch  # our sampler inside a foreign one, which keeps no place for it
        first = place.samples
        for seq, batch in enumerate(self._lists(source), place.batches):
            yield plain(seq, place.epoch, self._seed, batch, first)
            first += len(batch)

    def _lists(self, source: Iterator[Any]) -> Iterator[list[Any]]:
        if self._batches:
            yield from map(batch_of, source)
            return
        while batch := list(islice(source, min(self._size, sys.maxsize))):
            if len(batch) < self._size and self._drop_last:
                return
            yield batch


class StreamPlan:
    """The shards of a stream take turns, round after round, until each has ended. Task k belongs to shard k mod shards.

    With ranks, a task has the number of its batch over all ranks; `shards` is the number of shards of each rank.
    """

    repeats = False  # it has no indices

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None,
        drop_last: bool,
        seed: int,
        shards: int,
        turns: Callable[[], Turns] = Turns,
    ) -> None:
        self._dataset = dataset
        self._size = 1 if batch_size is None else batch_size
        self._drop_last = drop_last
        self._seed = seed
        self._shards = shards
        self._turns = turns

    def __len__(self) -> int:
        try:
            length = len(self._dataset)
        except TypeError:
            raise TypeError("this loader has no len(): its IterableDataset does not define __len__") from None
        batches, turns = count_batches(length, self._size, self._drop_last), self._turns()
        return batches if turns.ranks == 1 else share_length(batches, *turns)

    def tasks(self, epoch: int, start: int = 0) -> Tasks:
        return self.tasks_from(Place(epoch, start))

    def tasks_from(self, place: Place) -> Tasks:
        turns = self._turns()
        return _StreamTasks(place, self._seed, place.shards or self._shards * turns.ranks, turns)

    def predicted(self, epoch: int) -> Tasks | None:
        return None  # the stream's readers are still at the end of this epoch


class _StreamTasks:
    """A part that had ended is not opened again; the first task of any other part carries that part's place."""

    def __init__(self, place: Place, seed: int, shards: int, turns: Turns) -> None:
        self._epoch = place.epoch
        self._seq = place.batches + turns.rank
        self._step = turns.ranks
        self._ahead = place.ahead
        self._seed = seed
        self._shards = shards
        self._places = {int(shard): record for shard, record in place.streams.items()}
        mine = {seq % shards for seq in range(self._seq, self._seq + shards * self._step, self._step)}
        self._open = {shard for shard in mine if not self._places.get(shard, {}).get("ended")}
        for shard in mine - self._places.keys() if place.is_of_others(turns[:2]) else ():
            self._places[shard] = _of_any(place.streams)

    def __next__(self) -> Task:
        if not self._open:
            raise StopIteration
        while self._seq % self._shards not in self._open or self._seq in self._ahead:
            self._seq += self._step
        seq, self._seq = self._seq, self._seq + self._step
        place = self._places.pop(seq % self._shards, None) if self._places else None
        return Task(seq, self._epoch, self._seed, None, shards=self._shards, place=place, stride=self._step)

    def sampler_state(self) -> Any:
        return None

    def ended(self, seq: int) -> None:
        self._open.discard(seq % self._shards)


def _of_any(streams: dict[str, Any]) -> dict[str, Any] | None:
    """The place of the reader that got farthest among those that read the whole stream: it is right for all of them."""
    whole = [record for record in streams.values() if record.get("own") is False and "next" in record]
    return max(whole, key=lambda record: int(record["next"]), default=None)


def plan_of_batch_sampler(batch_sampler: Iterable[Any], seed: int) -> Plan:
    """A plan for the user's batch sampler; plans for our samplers are seekable."""
    if has_batches(batch_sampler):
        return BatchPlan(batch_sampler, seed)
    if type(batch_sampler) is BatchSampler and has_order(batch_sampler.sampler):
        return OrderPlan(batch_sampler.sampler, batch_sampler.batch_size, batch_sampler.drop_last, seed)
    return IterablePlan(batch_sampler, None, False, seed, batches=True)


def batch_of(indices: Any) -> list[Any]:
    """One batch from a batch sampler, as a list."""
    if not hasattr(indices, "__iter__"):
        raise TypeError(
            f"batch_sampler must give lists of indices, but gave {indices!r}; single indices are for sampler"
        )
    return list(indices)


def count_batches(samples: int, size: int, drop_last: bool) -> int:
    """⌈samples / size⌉ batches, or ⌊samples / size⌋ when a short last one is dropped."""
    return samples // size if drop_last else -(-samples // size)
