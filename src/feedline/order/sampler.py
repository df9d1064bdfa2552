"""What a sampler is: the two interfaces of all samplers, which the loader reads.

Takes: a seed and an epoch. Gives: `Sampler`, whose `order(seed, epoch)` is the whole epoch as a sequence of indices
that can be sliced anywhere, stored or computed; `BatchOrderSampler`, whose `batches(seed, epoch)` is the whole epoch as
a sequence of batches, each available by its number.
Promises: iterating by hand gives the same order, epoch after epoch. Not its job: any specific order (samplers,
weighted, …), tasks and ranks (plan, ranks), whether an index exists in the dataset (fetch).
"""

from __future__ import annotations

import secrets
import types
from collections.abc import Iterator
from typing import Any, Protocol, TypeGuard

import numpy as np

from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_seed, check_whole
from feedline.errors.foreign import ask
from feedline.order.permutation import BLOCK, IntArray, Order


class Batches(Protocol):
    """An epoch's batches; each is available without the earlier ones. A list of lists of indices will do."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> IntArray:
        """The indices of batch `number`, which is below the length."""


class Sampler:
    """The order in which an epoch visits the samples. Define `order`, and the rest follows.

    A sampler with a seed of its own always uses it; with None it uses the loader's seed or, when iterated by hand,
    a seed drawn once. Each iteration by hand is the next epoch.

    >>> import numpy as np
    >>> class Backwards(Sampler):
    ...     def order(self, seed, epoch):
    ...         return np.arange(9, -1, -1)
    >>> list(Backwards())
    [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    >>> len(Backwards())
    10
    """

    # Defined on the class, so that a subclass that forgets super().__init__() still works.
    seed: int | None = None
    repeats: bool = False  # True when an index may come twice in one epoch
    makes_batches: bool = False  # True for a BatchOrderSampler: the loader then takes it as batch_sampler
    population: int | None = None  # how many samples it was made for, if this must be the length of the dataset
    _drawn_seed: int | None = None
    _epoch: int = 0

    def __class_getitem__(cls, item: object) -> types.GenericAlias:
        return types.GenericAlias(cls, item)  # code written for torch says Sampler[int]

    def __init__(self, seed: int | None = None) -> None:
        self.seed = None if seed is None else check_seed(seed)

    def order(self, seed: int, epoch: int) -> Order:
        """The indices of that epoch: a pure function of seed and epoch."""
        raise NotImplementedError(f"{type(self).__name__} must define order(self, seed, epoch)")

    def __len__(self) -> int:
        """How many indices an epoch has. Define this too if making the order is expensive."""
        if type(self).order is Sampler.order:
            # A TypeError is what list() expects of something that has no length.
            raise TypeError(f"{type(self).__name__} has no length: it defines neither order() nor __len__()")
        return len(self.order(0, 0))

    def __iter__(self) -> Iterator[Any]:
        seed, epoch = self.by_hand
        self._epoch += 1
        return self._walk(seed if self.seed is None else self.seed, epoch)

    @property
    def by_hand(self) -> tuple[int, int]:
        """For iterating by hand: the seed to use if none was given, and the next epoch. A loader sets both."""
        if self._drawn_seed is None:
            self._drawn_seed = secrets.randbits(63)
        return self._drawn_seed, self._epoch

    @by_hand.setter
    def by_hand(self, seed_and_epoch: tuple[int, int]) -> None:
        self._drawn_seed, self._epoch = seed_and_epoch

    def _walk(self, seed: int, epoch: int) -> Iterator[Any]:
        """The items that iterating by hand gives."""
        return _each(order_of(self, seed, epoch))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration by hand.

        >>> from feedline import RandomSampler
        >>> sampler = RandomSampler(100, seed=7)
        >>> first, second = list(sampler), list(sampler)
        >>> sampler.set_epoch(0)
        >>> list(sampler) == first, second == first
        (True, False)
        """
        self._epoch = check_whole("epoch", epoch, least=0)


class BatchOrderSampler(Sampler):
    """Which samples make up each batch of an epoch. Define `batches`, and the rest follows; pass it as `batch_sampler`.

    It can do all that a `Sampler` can: seeds, epochs, ranks (DistributedSampler) and resuming at any batch. The number
    of batches should be the same in every epoch.

    >>> class Pairs(BatchOrderSampler):
    ...     def batches(self, seed, epoch):
    ...         return [[0, 1], [2, 3], [4]]
    >>> list(Pairs()), len(Pairs())
    ([[0, 1], [2, 3], [4]], 3)
    """

    makes_batches = True
    settings: str = ""
    """What decides the batches besides the data; a saved state must agree with it."""

    def batches(self, seed: int, epoch: int) -> Batches:
        """The batches of that epoch: a pure function of seed and epoch."""
        raise NotImplementedError(f"{type(self).__name__} must define batches(self, seed, epoch)")

    def order(self, seed: int, epoch: int) -> Order:
        """A batch sampler has none: it makes whole batches."""
        raise TypeError(f"{type(self).__name__} makes whole batches: ask it for batches(seed, epoch)")

    def __len__(self) -> int:
        """How many batches an epoch has. Define this too if making them is expensive."""
        if type(self).batches is BatchOrderSampler.batches:
            raise TypeError(f"{type(self).__name__} has no length: it defines neither batches() nor __len__()")
        return len(self.batches(0, 0))

    def _walk(self, seed: int, epoch: int) -> Iterator[list[int]]:
        return each_batch(batches_of(self, seed, epoch))


def samplers_in(sampler: Any) -> Iterator[Any]:
    """A sampler and the samplers inside it, from the outside in: every attribute that can be iterated but not indexed.

    >>> from feedline import BatchSampler, RandomSampler
    >>> [type(each).__name__ for each in samplers_in(BatchSampler(RandomSampler(10), 2))]
    ['BatchSampler', 'RandomSampler']
    """
    found = [sampler]
    for each in found:
        yield each
        # These two names come first: if several samplers can be told an epoch, the one with such a name is meant.
        named = [ask(each, name) for name in ("sampler", "batch_sampler")]
        for value in (*named, *ask(each, "__dict__", {}).values()):
            is_new = _is_iterated(value) and not any(value is other for other in found)
            if is_new and len(found) < MOST_SAMPLERS:
                found.append(value)


def follow_epoch(sampler: Any, epoch: int) -> None:
    """Tell a sampler, and the samplers inside it, the epoch, if they have `set_epoch`."""
    for each in samplers_in(sampler):
        if callable(follow := ask(each, "set_epoch")):
            follow(epoch)


MOST_SAMPLERS = 16
"""Nobody nests more samplers; a sampler that holds a thousand objects is not searched to the end."""


def _is_iterated(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__") and not hasattr(kind, "__next__")


class MakesBatches(Protocol):
    """What the loader needs of a sampler that makes batches: a BatchOrderSampler, or a rank's share of one."""

    seed: int | None

    @property
    def repeats(self) -> bool: ...
    @property
    def population(self) -> int | None: ...
    def __len__(self) -> int: ...
    def batches(self, seed: int, epoch: int) -> Batches: ...


def is_ours(sampler: object) -> TypeGuard[Sampler]:
    """Does it work as one of our samplers? A subclass with its own `__iter__` is iterated, as any iterable is."""
    return isinstance(sampler, Sampler) and type(sampler).__iter__ is Sampler.__iter__


def has_order(sampler: object) -> TypeGuard[Sampler]:
    """Is it one of our samplers, and does it give indices?"""
    return is_ours(sampler) and not sampler.makes_batches


def has_batches(sampler: object) -> TypeGuard[MakesBatches]:
    """Is it one of our samplers, and does it give whole batches?"""
    return is_ours(sampler) and sampler.makes_batches


def order_of(sampler: Sampler, seed: int, epoch: int) -> Order:
    """A sampler's order of that epoch; its length is checked against `len(sampler)`."""
    order = sampler.order(seed, epoch)
    _check_length(sampler, "order", len(order), epoch)
    return order


def batches_of(sampler: MakesBatches, seed: int, epoch: int) -> Batches:
    """A sampler's batches of that epoch; their number is checked against `len(sampler)`."""
    batches = sampler.batches(seed, epoch)
    _check_length(sampler, "batches", len(batches), epoch)
    return batches


def _check_length(sampler: Sampler | MakesBatches, method: str, found: int, epoch: int) -> None:
    if (said := len(sampler)) != found:
        raise OptionError(
            f"{type(sampler).__name__} has a length of {said}, but {method}(seed, epoch={epoch}) has {found}: make "
            "__len__ return the true number, which must be the same in every epoch"
        )


def indices_at(order: Order, start: int, stop: int) -> IntArray:
    """A stretch of an order, as an array; anything but indices is an error.

    >>> indices_at([3, 1, 2], 1, 99)
    array([1, 2])
    """
    return _indices(
        order[start:stop], "order(seed, epoch) must give one-dimensional integers, but from {at} on it", start
    )


def batch_at(batches: Batches, number: int) -> IntArray:
    """One batch, as an array; anything but indices is an error that names the batch.

    >>> batch_at([[3, 1], [2]], 0)
    array([3, 1])
    """
    found = _indices(batches[number], "batches(seed, epoch) must give one-dimensional integers, but batch {at}", number)
    if not found.size:
        raise OptionError(
            f"batches(seed, epoch) must give at least one index to each batch, but batch {number} is empty"
        )
    return found


def each_batch(batches: Batches) -> Iterator[list[int]]:
    """All batches, as lists."""
    for number in range(len(batches)):
        yield batch_at(batches, number).tolist()


def _each(order: Order) -> Iterator[int]:
    for start in range(0, len(order), BLOCK):
        yield from indices_at(order, start, start + BLOCK).tolist()


def _indices(found: Any, otherwise: str, at: int) -> IntArray:
    if type(found) is np.ndarray and found.dtype == np.int64 and found.ndim == 1:
        return found
    array = np.asarray(found)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        remedy = "; for a mask, give np.flatnonzero(mask)" if array.dtype.kind == "b" else ""
        raise OptionTypeError(f"{otherwise.format(at=at)} is {array.ndim}-d of {array.dtype}{remedy}")
    return array.astype(np.int64, copy=False)
