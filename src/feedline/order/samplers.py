"""torch's plain samplers: sequential, random, subset-random, batch.

Takes: how much data there is, or a list of indices; a seed and an epoch.
Gives: `SequentialSampler`, `RandomSampler`, `SubsetRandomSampler`, and `BatchSampler` over any of them.
Promises: the same seed and epoch give the same indices; another epoch gives another order.
Not its job: what a sampler is (sampler), weights (weighted), batches and ranks (plan, ranks).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from feedline.datasets import array_of, as_numbers
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_flag, check_whole
from feedline.options import check_sampler
from feedline.order.index_shuffle import order_key, shuffled
from feedline.order.permutation import Counting, Draws, IntArray, Order, Picked, Repeated
from feedline.order.sampler import Sampler


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
    """Every index once, shuffled again in each epoch; or, with replacement, independent draws.

    `num_samples` makes an epoch shorter or longer than the data. Without replacement a longer epoch is several
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
        self.replacement = check_flag("replacement", replacement)
        self._num_samples = None if num_samples is None else check_whole("num_samples", num_samples, least=1)
        length = _length(data_source)
        if num_samples is not None and length == 0:
            raise OptionError(f"num_samples={num_samples} cannot be drawn from an empty data_source")
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
            return Draws(length, wanted, order_key(seed, epoch))
        if wanted == length:
            return shuffled(length, order_key(seed, epoch, 0))
        return Repeated(lambda turn: shuffled(length, order_key(seed, epoch, turn)), length, wanted)


class SubsetRandomSampler(Sampler):
    """The given indices, shuffled again in each epoch.

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
        return Picked(self.indices, shuffled(len(self.indices), order_key(seed, epoch)))


class BatchSampler:
    """Lists of `batch_size` indices from any iterable of indices; the last may be shorter, unless it is dropped.

    >>> list(BatchSampler(SequentialSampler(7), batch_size=3, drop_last=False))
    [[0, 1, 2], [3, 4, 5], [6]]
    >>> len(BatchSampler(range(7), batch_size=3, drop_last=True))
    2
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        if not isinstance(sampler, Iterable):
            raise OptionTypeError(f"sampler must be an iterable of indices, got {type(sampler).__name__}")
        check_sampler(sampler)
        self.sampler = sampler
        self.batch_size = check_whole("batch_size", batch_size, least=1)
        self.drop_last = check_flag("drop_last", drop_last)

    def __len__(self) -> int:
        if not isinstance(self.sampler, Sized):
            raise TypeError(f"{type(self.sampler).__name__} has no length, so the number of batches is not known")
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


def _length(data_source: Sized | SupportsIndex) -> int:
    if isinstance(data_source, Sized):
        return len(data_source)
    if not hasattr(data_source, "__index__"):
        raise OptionTypeError(f"data_source must have a len() or be a length, got {type(data_source).__name__}")
    return check_whole("data_source", data_source, least=0)


def _index_array(indices: object) -> IntArray:
    array = as_numbers(array_of("indices", indices))
    if array.dtype == np.bool_ and array.size:
        raise OptionTypeError("indices must be integers, got a mask of booleans; pass np.flatnonzero(mask)")
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        got = f"{array.ndim}-d of {array.dtype}"
        raise OptionTypeError(f"indices must be a one-dimensional sequence of integers, got {got}")
    return array.astype(np.int64)  # a copy: changing the list later must not change a running epoch
