"""What a sampler is: the interface that all of them have, and the loader reads.

Takes: a seed and an epoch. Gives: `Sampler`, whose `order(seed, epoch)` is the whole epoch as a sequence that can be
sliced anywhere, stored or computed.
Promises: iterated by hand it is the same order, epoch after epoch. Not its job: any order (samplers, weighted, …),
batches and ranks (plan, ranks), whether an index exists in the dataset (fetch).
"""

from __future__ import annotations

import secrets
import types
from collections.abc import Iterator
from typing import TypeGuard

from feedline.checks import check_whole
from feedline.line.permutation import BLOCK, Order


class Sampler:
    """In which order an epoch visits the samples. Define `order`, and the rest follows.

    With a seed of its own a sampler keeps to it; with None it takes the loader's or, when iterated by hand,
    one drawn once. Each iteration by hand is the next epoch.

    >>> import numpy as np
    >>> class Backwards(Sampler):
    ...     def order(self, seed, epoch):
    ...         return np.arange(9, -1, -1)
    >>> list(Backwards())
    [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    >>> len(Backwards())
    10
    """

    # On the class, so that a subclass that forgets super().__init__() still works.
    seed: int | None = None
    repeats: bool = False  # True when an index may come twice in one epoch
    _drawn_seed: int | None = None
    _epoch: int = 0

    def __class_getitem__(cls, item: object) -> types.GenericAlias:
        return types.GenericAlias(cls, item)  # code written for torch says Sampler[int]

    def __init__(self, seed: int | None = None) -> None:
        self.seed = None if seed is None else check_whole("seed", seed, least=0)

    def order(self, seed: int, epoch: int) -> Order:
        """The indices of that epoch: a pure function of seed and epoch."""
        raise NotImplementedError(f"{type(self).__name__} must define order(self, seed, epoch)")

    def __len__(self) -> int:
        """How many indices an epoch has. Define it too where making the order is not cheap."""
        if type(self).order is Sampler.order:
            # A TypeError is what list() expects of something that has no length.
            raise TypeError(f"{type(self).__name__} has no length: it defines neither order() nor __len__()")
        return len(self.order(0, 0))

    def __iter__(self) -> Iterator[int]:
        seed = self.seed
        if seed is None:
            if self._drawn_seed is None:
                self._drawn_seed = secrets.randbits(64)
            seed = self._drawn_seed
        order = self.order(seed, self._epoch)
        self._epoch += 1
        return _each(order)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration by hand that epoch's.

        >>> from feedline import RandomSampler
        >>> sampler = RandomSampler(100, seed=7)
        >>> first, second = list(sampler), list(sampler)
        >>> sampler.set_epoch(0)
        >>> list(sampler) == first, second == first
        (True, False)
        """
        self._epoch = check_whole("epoch", epoch, least=0)


def has_order(sampler: object) -> TypeGuard[Sampler]:
    """Is it one of ours, by what it does? One whose `__iter__` was written anew is iterated, as any iterable is."""
    return isinstance(sampler, Sampler) and type(sampler).__iter__ is Sampler.__iter__


def _each(order: Order) -> Iterator[int]:
    for start in range(0, len(order), BLOCK):
        yield from order[start : start + BLOCK].tolist()
