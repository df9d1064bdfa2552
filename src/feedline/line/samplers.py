"""Samplers: in which order an epoch visits the samples.

Takes: how much data there is (or weights, or a list of indices), a seed and an epoch.
Gives: `Sampler` and torch's five (sequential, random, subset-random, weighted, batch). A sampler's
`order(seed, epoch)` is the whole epoch as a sequence that can be sliced anywhere, stored or computed.
Promises: the same seed and epoch, the same indices; another epoch, another order. Computed orders are the
same with every NumPy, shuffled arrays as long as NumPy keeps its `shuffle` (a test holds some of its output).
Not its job: batches and ranks (the plan), whether an index exists in the dataset (fetch).
"""

from __future__ import annotations

import operator
import secrets
import types
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, SupportsIndex, TypeGuard

import numpy as np
import numpy.typing as npt

from feedline.line.permutation import (
    BLOCK,
    Counting,
    Draws,
    IntArray,
    Order,
    Permutation,
    Picked,
    Repeated,
    WeightedDraws,
)
from feedline.rng import mix

__all__ = [
    "COMPUTED_FROM",
    "BatchSampler",
    "IntArray",
    "Order",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

# From here on a shuffle is computed instead of stored. Measured: at 500,000 shuffling an array is faster (10
# ns an index, against 30 to 35 computed); at 5 million it no longer fits a cache and costs the same (35 ns);
# at 10 million it would take 80 MB and a third of a second before the first batch.
COMPUTED_FROM = 10_000_000

# Keeps an order's key apart from the seeds of tasks and samples, which are mixed from the same numbers.
_ORDER = int.from_bytes(b"order", "big")


class Sampler:
    """In which order an epoch visits the samples. Define `order`, and the rest follows.

    With a seed of its own a sampler keeps to it; with None it takes the loader's or, when iterated by hand,
    one drawn once. Each iteration by hand is the next epoch.

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
        self.seed = None if seed is None else _whole("seed", seed, at_least=0)

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

        >>> sampler = RandomSampler(100, seed=7)
        >>> first, second = list(sampler), list(sampler)
        >>> sampler.set_epoch(0)
        >>> list(sampler) == first, second == first
        (True, False)
        """
        self._epoch = _whole("epoch", epoch, at_least=0)


def has_order(sampler: object) -> TypeGuard[Sampler]:
    """Is it one of ours, by what it does? One whose `__iter__` was written anew is iterated, as any iterable is."""
    return isinstance(sampler, Sampler) and type(sampler).__iter__ is Sampler.__iter__


class SequentialSampler(Sampler):
    """0, 1, 2, … in order, without storing them.

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized | SupportsIndex) -> None:
        super().__init__()
        _length(data_source)
        self.data_source = data_source

    def __len__(self) -> int:
        return _length(self.data_source)

    def order(self, seed: int, epoch: int) -> Order:
        return Counting(len(self))


class RandomSampler(Sampler):
    """Every index once, shuffled anew each epoch; or, with replacement, independent draws.

    `num_samples` makes an epoch shorter or longer than the data. Without replacement a longer one is several
    whole shuffles, one after the other, and part of another.

    >>> sampler = RandomSampler(5, num_samples=12, seed=7)
    >>> indices = list(sampler)
    >>> len(sampler), sorted(indices[:5]), sorted(indices[5:10])
    (12, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        data_source: Sized | SupportsIndex,
        replacement: bool = False,
        num_samples: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        self.data_source = data_source
        self.replacement = _flag("replacement", replacement)
        self._num_samples = None if num_samples is None else _whole("num_samples", num_samples, at_least=1)
        length = _length(data_source)
        if num_samples is not None and length == 0:
            raise ValueError(f"num_samples={num_samples} cannot be drawn from an empty data_source")
        self.repeats = replacement or self.num_samples > length

    @property
    def num_samples(self) -> int:
        """How many indices an epoch has."""
        return _length(self.data_source) if self._num_samples is None else self._num_samples

    def __len__(self) -> int:
        return self.num_samples

    def order(self, seed: int, epoch: int) -> Order:
        length, wanted = _length(self.data_source), len(self)
        if self.replacement:
            return Draws(length, wanted, mix(_ORDER, seed, epoch))
        if wanted == length:
            return _shuffled(length, mix(_ORDER, seed, epoch, 0))
        return Repeated(lambda turn: _shuffled(length, mix(_ORDER, seed, epoch, turn)), length, wanted)


class SubsetRandomSampler(Sampler):
    """The given indices, shuffled anew each epoch.

    >>> sorted(SubsetRandomSampler([3, 30, 300], seed=7))
    [3, 30, 300]
    """

    def __init__(self, indices: Sequence[int] | npt.NDArray[Any], seed: int | None = None) -> None:
        super().__init__(seed)
        self.indices = _index_array(indices)
        self.repeats = np.unique(self.indices).size < self.indices.size

    def __len__(self) -> int:
        return len(self.indices)

    def order(self, seed: int, epoch: int) -> Order:
        return Picked(self.indices, _shuffled(len(self.indices), mix(_ORDER, seed, epoch)))


class WeightedRandomSampler(Sampler):
    """`num_samples` indices of [0, len(weights)), each drawn with a chance in proportion to its weight.

    Weights need not sum to one; an index of weight 0 never comes. Without replacement, no index comes twice.

    >>> rare_and_common = WeightedRandomSampler([0.1, 0.9, 0.0], num_samples=1000, seed=7)
    >>> np.bincount(list(rare_and_common)).tolist()
    [108, 892]
    """

    def __init__(
        self,
        weights: Sequence[float] | npt.NDArray[Any],
        num_samples: int,
        replacement: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        self.weights = _weight_array(weights)
        self.num_samples = _whole("num_samples", num_samples, at_least=1)
        self.replacement = self.repeats = _flag("replacement", replacement)
        possible = int(np.count_nonzero(self.weights))
        if not replacement and self.num_samples > possible:
            raise ValueError(
                f"num_samples={num_samples} is more than the {possible} weights that are not zero: "
                "without replacement each can come once; lower it or use replacement=True"
            )
        # Scaled by the largest, so that the sum of huge weights stays finite.
        self._cumulated = np.cumsum(self.weights / self.weights.max()) if replacement else None

    def __len__(self) -> int:
        return self.num_samples

    def order(self, seed: int, epoch: int) -> Order:
        key = mix(_ORDER, seed, epoch)
        if self._cumulated is not None:
            return WeightedDraws(self._cumulated, self.num_samples, key)
        return _weighted_choice(self.weights, self.num_samples, key)


class BatchSampler:
    """Lists of `batch_size` indices out of any iterable of them; the last one may be shorter unless dropped.

    >>> list(BatchSampler(SequentialSampler(7), batch_size=3, drop_last=False))
    [[0, 1, 2], [3, 4, 5], [6]]
    >>> len(BatchSampler(range(7), batch_size=3, drop_last=True))
    2
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        if not isinstance(sampler, Iterable):
            raise TypeError(f"sampler must be an iterable of indices, got {type(sampler).__name__}")
        self.sampler = sampler
        self.batch_size = _whole("batch_size", batch_size, at_least=1)
        self.drop_last = _flag("drop_last", drop_last)

    def __len__(self) -> int:
        if not isinstance(self.sampler, Sized):
            raise TypeError(f"{type(self.sampler).__name__} has no length, so neither have its batches")
        full, rest = divmod(len(self.sampler), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch


def _each(order: Order) -> Iterator[int]:
    for start in range(0, len(order), BLOCK):
        yield from order[start : start + BLOCK].tolist()


def _shuffled(length: int, key: int) -> Order:
    """Every index below length once. Of the exact ways measured, shuffling int64 by SFC64 was fastest."""
    if length >= COMPUTED_FROM:
        return Permutation(length, key)
    indices = np.arange(length, dtype=np.int64)
    np.random.Generator(np.random.SFC64(key)).shuffle(indices)
    return indices


def _weighted_choice(weights: npt.NDArray[np.float64], count: int, key: int) -> IntArray:
    """Successive draws without replacement: the first arrivals of clocks as fast as their weights."""
    possible = np.flatnonzero(weights)
    waits = np.random.Generator(np.random.SFC64(key)).standard_exponential(len(possible))
    with np.errstate(divide="ignore"):  # a wait of exactly 0 is possible, and rightly comes first
        arrivals = np.log(waits) - np.log(weights[possible])  # logarithms, for weights far apart
    first = np.argpartition(arrivals, count - 1)[:count]
    return possible[first[np.argsort(arrivals[first])]].astype(np.int64, copy=False)


def _whole(name: str, value: object, at_least: int) -> int:
    kind = {0: "an integer of at least 0", 1: "a positive integer"}[at_least]
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be {kind}, got {value!r} ({type(value).__name__})")
    number = operator.index(value)
    if number < at_least:
        raise ValueError(f"{name} must be {kind}, got {number}")
    return number


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r} ({type(value).__name__})")
    return bool(value)


def _length(data_source: Sized | SupportsIndex) -> int:
    if isinstance(data_source, Sized):
        return len(data_source)
    if not hasattr(data_source, "__index__"):
        raise TypeError(f"data_source must have a len() or be a length, got {type(data_source).__name__}")
    return _whole("data_source", data_source, at_least=0)


def _index_array(indices: object) -> IntArray:
    array = np.array(indices)  # a copy: changing the list later must not change a running epoch
    if array.dtype == np.bool_ and array.size:
        raise TypeError("indices must be integers, got a mask of booleans; np.flatnonzero(mask) has them")
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        got = f"{array.ndim}-d of {array.dtype}"
        raise TypeError(f"indices must be a one-dimensional sequence of integers, got {got}")
    return array.astype(np.int64, copy=False)


def _weight_array(weights: object) -> npt.NDArray[np.float64]:
    try:
        array = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"weights must be a one-dimensional sequence of numbers: {error}") from error
    if array.ndim != 1:
        raise ValueError(f"weights must be one-dimensional, got shape {array.shape}")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if wrong.size:
        at = int(wrong[0])
        raise ValueError(f"weights must be finite and at least 0, but weights[{at}] is {array[at]}")
    if not array.any():
        raise ValueError(f"weights must have a positive sum, but none of the {array.size} is above 0")
    return array
