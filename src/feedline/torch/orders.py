"""torch's samplers as plans: index for index, and draw for draw, what torch's loader would take from them.

Takes: a torch DataLoader's sampler or batch sampler. Gives: tasks.
Promises: the same draws from the same generators at the same moments, so that the rest of a seeded run is the same.
Not its job: feedline's own samplers (line.plan).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from feedline.datasets import IntArray
from feedline.line.plan import MapTasks, Tasks, batch_of
from feedline.messages import AsGiven, Task

_BLOCK = 1 << 16
"""Indices made at a time; that many take no time to make and half a megabyte."""


class Indices(NamedTuple):
    """An epoch's batches of indices, still to be taken from the sampler."""

    batches: Iterator[Any]
    unique: bool
    """Does each index come once?"""

    def tasks(self, seed: int, epoch: int) -> Tasks:
        """As tasks of that seed."""
        return MapTasks(self._number(seed, epoch))

    def _number(self, seed: int, epoch: int) -> Iterator[Task]:
        first = 0
        for seq, batch in enumerate(self.batches):
            yield Task(seq, epoch, seed, batch, -1 if self.unique else first)
            first += len(batch)


def indices_of(index_sampler: Iterable[Any], batched: bool, at_once: bool) -> Indices:
    """Ask the sampler for its iterator, as torch does before it draws the base seed; indices come when needed.

    A dataset that reads them `at_once` gets what a batch sampler gives as it is: a tuple, a slice, a tensor.
    """
    if batched and type(index_sampler) is BatchSampler and _is_stock(index_sampler.sampler):
        sampler: Any = index_sampler.sampler
        batches = _batches(_arrays(sampler), index_sampler.batch_size, index_sampler.drop_last)
        return Indices(batches, _each_once(sampler))
    iterator = iter(index_sampler)
    if not batched:
        return Indices(([index] for index in iterator), unique=False)
    return Indices(map(_as_given if at_once else batch_of, iterator), unique=False)


def _as_given(indices: Any) -> list[Any]:
    if type(indices) is list:
        return indices
    if hasattr(indices, "__iter__") and not hasattr(indices, "__len__"):
        return list(indices)  # a generator, which cannot be read twice
    return AsGiven(indices, list(indices) if hasattr(indices, "__iter__") else [indices])


def _is_stock(sampler: Any) -> bool:
    # A subclass may do anything; with replacement torch draws in portions of 32, which is left to torch.
    return type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)


def _each_once(sampler: SequentialSampler | RandomSampler) -> bool:
    # more samples than there are means some come again
    return isinstance(sampler, SequentialSampler) or sampler.num_samples <= len(sampler.data_source)


def _arrays(sampler: SequentialSampler | RandomSampler) -> Iterator[IntArray]:
    """The sampler's indices in arrays; each is drawn when torch would have drawn it."""
    size = len(sampler.data_source)
    if isinstance(sampler, SequentialSampler):
        for start in range(0, size, _BLOCK):  # there may be more than fit into memory
            yield np.arange(start, min(size, start + _BLOCK))
        return
    generator = sampler.generator
    if generator is None:
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    for _ in range(sampler.num_samples // size):
        yield torch.randperm(size, generator=generator).cpu().numpy()
    # torch draws once more even if nothing is left to be taken from it, which only a generator of the user's can tell
    if sampler.num_samples % size or sampler.generator is not None:
        yield torch.randperm(size, generator=generator).cpu().numpy()[: sampler.num_samples % size]


def _batches(arrays: Iterator[IntArray], size: int, drop_last: bool) -> Iterator[IntArray]:
    held = np.empty(0, np.int64)
    while True:
        while len(held) < size:
            more = next(arrays, None)
            if more is None:
                if len(held) and not drop_last:
                    yield held
                return
            held = np.concatenate([held, more]) if len(held) else more
        whole = len(held) // size
        for place in range(whole):
            yield held[place * size : (place + 1) * size]
        held = held[whole * size :]
