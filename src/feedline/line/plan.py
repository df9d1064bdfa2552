"""An epoch as a sequence of tasks.

Takes: a sampler (ours or any iterable), a batch size, a seed. Gives: `Task` values, from any place on.
Promises: task k of an epoch is the same whoever asks and whenever; with our samplers it is made without making
those before it. A sampler's exception comes out of `next()`, after every whole batch before it.
Not its job: reading data (fetch, stream), how many tasks may be out (loader).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

import numpy as np

from feedline.line.samplers import BatchSampler, Sampler, has_order
from feedline.messages import Task


class Tasks(Protocol):
    """One epoch's tasks, one after the other."""

    def __next__(self) -> Task: ...
    def ended(self, seq: int) -> None:
        """The stream that task `seq` read from is exhausted."""


class Plan(Protocol):
    """The tasks of any epoch."""

    def __len__(self) -> int: ...
    def tasks(self, epoch: int, start: int = 0) -> Tasks: ...


class MapTasks:
    """Tasks over a map-style dataset: those of a generator."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._tasks = tasks

    def __next__(self) -> Task:
        return next(self._tasks)

    def ended(self, seq: int) -> None:
        raise AssertionError("only a stream ends early")


class OrderPlan:
    """Batches of one of our samplers: seekable.

    >>> from feedline.line.samplers import SequentialSampler
    >>> plan = OrderPlan(SequentialSampler(10), batch_size=4, drop_last=False, seed=0)
    >>> len(plan), next(plan.tasks(epoch=0, start=2)).indices
    (3, array([8, 9]))
    """

    def __init__(self, sampler: Sampler, batch_size: int | None, drop_last: bool, seed: int) -> None:
        self._sampler = sampler
        self._size = 1 if batch_size is None else batch_size
        self._drop_last = drop_last
        self._seed = seed

    def __len__(self) -> int:
        return count_batches(len(self._sampler), self._size, self._drop_last)

    def tasks(self, epoch: int, start: int = 0) -> Tasks:
        return MapTasks(self._generate(epoch, start))

    def _generate(self, epoch: int, start: int) -> Iterator[Task]:
        own_seed = self._sampler.seed
        order = self._sampler.order(self._seed if own_seed is None else own_seed, epoch)
        size, seed, repeats = self._size, self._seed, self._sampler.repeats
        for seq in range(start, count_batches(len(order), size, self._drop_last)):
            first = seq * size
            indices = np.asarray(order[first : first + size], np.int64)
            yield Task(seq, epoch, seed, indices, first if repeats else -1)


class IterablePlan:
    """Batches of any iterable of indices, or any iterable of batches of indices (`batch_size` None, `batches`)."""

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
        return MapTasks(self._generate(epoch, start))

    def _generate(self, epoch: int, start: int) -> Iterator[Task]:
        first = 0
        for seq, batch in enumerate(self._lists()):
            if seq >= start:
                yield Task(seq, epoch, self._seed, batch, first)
            first += len(batch)

    def _lists(self) -> Iterator[list[Any]]:
        source = iter(self._indices)
        if self._batches:
            yield from map(batch_of, source)
            return
        while batch := list(islice(source, min(self._size, sys.maxsize))):
            if len(batch) < self._size and self._drop_last:
                return
            yield batch


class StreamPlan:
    """Turns of a stream's shards, round after round, until each has ended. Task k belongs to shard k mod shards."""

    def __init__(self, dataset: Any, batch_size: int | None, drop_last: bool, seed: int, shards: int) -> None:
        self._dataset = dataset
        self._size = 1 if batch_size is None else batch_size
        self._drop_last = drop_last
        self._seed = seed
        self._shards = shards

    def __len__(self) -> int:
        try:
            length = len(self._dataset)
        except TypeError:
            raise TypeError("this loader has no len(): its IterableDataset does not define __len__") from None
        return count_batches(length, self._size, self._drop_last)

    def tasks(self, epoch: int, start: int = 0) -> Tasks:
        return _StreamTasks(epoch, start, self._seed, self._shards)


class _StreamTasks:
    def __init__(self, epoch: int, start: int, seed: int, shards: int) -> None:
        self._epoch = epoch
        self._seq = start
        self._seed = seed
        self._shards = shards
        self._open = set(range(shards))

    def __next__(self) -> Task:
        if not self._open:
            raise StopIteration
        while self._seq % self._shards not in self._open:
            self._seq += 1
        self._seq += 1
        return Task(self._seq - 1, self._epoch, self._seed, None)

    def ended(self, seq: int) -> None:
        self._open.discard(seq % self._shards)


def plan_of_batch_sampler(batch_sampler: Iterable[Any], seed: int) -> Plan:
    """A plan of the user's batch sampler; ours over one of our samplers stays seekable."""
    if type(batch_sampler) is BatchSampler and has_order(batch_sampler.sampler):
        return OrderPlan(batch_sampler.sampler, batch_sampler.batch_size, batch_sampler.drop_last, seed)
    return IterablePlan(batch_sampler, None, False, seed, batches=True)


def batch_of(indices: Any) -> list[Any]:
    """One batch of a batch sampler as a list."""
    if not hasattr(indices, "__iter__"):
        raise TypeError(
            f"batch_sampler must give lists of indices, but gave {indices!r}; single indices are for sampler"
        )
    return list(indices)


def count_batches(samples: int, size: int, drop_last: bool) -> int:
    """⌈samples / size⌉ batches, or ⌊samples / size⌋ when a short last one is dropped."""
    return samples // size if drop_last else -(-samples // size)
