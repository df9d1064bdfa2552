"""Batches of samples of similar length, so that little of a batch is padding.

Takes: a length per sample, a batch size or a budget of tokens. Gives: `BucketBatchSampler`.
Promises: every sample once per epoch; no batch above the budget, padding included; the same number of batches in every
epoch; any batch can be made without the earlier ones. Not its job: finding lengths (lengths), padding (collation).

Samples are sorted by length once and cut, from the longest down, into buckets of whole batches. A bucket grows while
its shortest sample is at least (1 − max_padding) of its longest. An epoch shuffles each bucket, cuts it into batches
and shuffles all batches. Two alternatives were measured (benchmarks/bucketing.py; docs/samplers.md has the numbers):
sorting random pools of 100 batches pads twice as much, because of the few long samples in each pool; sorting with noise
in the lengths mixes a little better, but must sort in every epoch and, with a budget, makes another number of batches
in each.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from feedline.datasets import Array, IntArray, array_of, as_numbers
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_choice, check_flag, check_whole
from feedline.order.index_shuffle import order_key, shuffled, shuffled_copy
from feedline.order.permutation import Order
from feedline.order.sampler import Batches, BatchOrderSampler
from feedline.order.sorting import places_by

TOO_LONG = ("raise", "drop", "allow")
_BATCHES, _BUCKET = range(2)  # the purpose of a key
LONGEST = 1 << 62
"""Lengths must be below this: larger ones could not be rounded up to a multiple."""


class Buckets(NamedTuple):
    """For each bucket: where it starts and stops in the sorted samples, and the size of its batches."""

    starts: IntArray
    stops: IntArray
    sizes: IntArray

    def batches(self, drop_last: bool) -> IntArray:
        """The number of batches in each bucket."""
        return (self.stops - self.starts + (0 if drop_last else self.sizes - 1)) // self.sizes


class BucketBatchSampler(BatchOrderSampler):
    """Batches of samples of similar length; samples and batches are shuffled in every epoch.

    `batch_size` fixes the number of samples, `max_tokens` the size of the padded batch (the longest length times the
    number of samples); with both, the limit reached first counts. Lengths come from an array, or from `lengths_of`.
    `max_padding` is the largest share of padding that a batch may have, as long as there are enough samples of similar
    length; a smaller share means less mixing. A sample longer than the whole budget is an error, unless `too_long` is
    "drop" (the sample never comes) or "allow" (it is a batch by itself). `multiple` is that of `pad(multiple=…)`:
    lengths are rounded up to it before they are counted. `drop_last` leaves out a last batch that is not full: some of
    the shortest samples, different ones in each epoch.

    >>> sampler = BucketBatchSampler([9, 1, 2, 8, 2, 7, 1, 9], max_tokens=18, seed=7)
    >>> [sorted(batch) for batch in sampler]
    [[3, 5], [1, 2, 4, 6], [0, 7]]
    """

    def __init__(
        self,
        lengths: Any,
        batch_size: int | None = None,
        max_tokens: float | None = None,
        *,
        max_padding: float = 0.15,
        too_long: str = "raise",
        multiple: int = 1,
        drop_last: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        if batch_size is None and max_tokens is None:
            raise OptionError("batch_size or max_tokens is needed: how large may a batch be?")
        array = _length_array(lengths)
        self.population = len(array)
        self.batch_size = None if batch_size is None else check_whole("batch_size", batch_size, least=1)
        if max_tokens is not None:
            _check_number("max_tokens", max_tokens, "a number above 0", lambda number: 0 < number < inf)
        self.max_tokens = max_tokens
        self.max_padding = max_padding
        _check_number("max_padding", max_padding, "a number of at least 0 and below 1", lambda share: 0 <= share < 1)
        self.multiple = check_whole("multiple", multiple, least=1)
        self.drop_last = check_flag("drop_last", drop_last)
        self.too_long = check_choice("too_long", too_long, TOO_LONG)
        padded = array if self.multiple == 1 else -(-array // self.multiple) * self.multiple
        self._by_length = places_by(array)
        if self.max_tokens is not None and self.too_long != "allow":
            too_long_ones = np.flatnonzero(padded > self.max_tokens)
            if too_long_ones.size and self.too_long == "raise":
                raise _over_budget(array, self.max_tokens, self.multiple, too_long_ones)
            self._by_length = self._by_length[: len(array) - too_long_ones.size]
        ascending = padded[self._by_length]
        self._buckets = _cut(ascending, self.batch_size, self.max_tokens, self.max_padding, self.drop_last)
        self._counts = self._buckets.batches(self.drop_last)
        self.settings = (
            f"batch_size={self.batch_size}, max_tokens={self.max_tokens}, max_padding={self.max_padding}, "
            f"too_long={self.too_long!r}, multiple={self.multiple}, drop_last={self.drop_last}"
        )

    def __len__(self) -> int:
        return int(self._counts.sum())

    def batches(self, seed: int, epoch: int) -> Batches:
        """The batches of that epoch."""
        order = shuffled(len(self), order_key(seed, epoch, _BATCHES))
        return _Bucketed(self._by_length, self._buckets, self._counts, order, (seed, epoch, _BUCKET))


class _Bucketed:
    """One epoch's batches. A bucket is shuffled when its first batch is requested."""

    def __init__(
        self, by_length: IntArray, buckets: Buckets, counts: IntArray, order: Order, key: tuple[int, int, int]
    ) -> None:
        self._by_length = by_length
        self._buckets = buckets
        self._ends = np.cumsum(counts)
        self._counts = counts
        self._order = order
        self._key = key
        self._shuffled: dict[int, IntArray] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, number: int, /) -> IntArray:
        batch = self._order[number : number + 1][0]
        bucket = int(np.searchsorted(self._ends, batch, side="right"))
        place = batch - self._ends[bucket] + self._counts[bucket]
        size = self._buckets.sizes[bucket]
        return self._members(bucket)[place * size : (place + 1) * size]

    def _members(self, bucket: int) -> IntArray:
        found = self._shuffled.get(bucket)
        if found is None:
            own = self._by_length[self._buckets.starts[bucket] : self._buckets.stops[bucket]]
            found = self._shuffled[bucket] = shuffled_copy(own, order_key(*self._key, bucket))
        return found


def _cut(
    ascending: Array, batch_size: int | None, max_tokens: float | None, max_padding: float, drop_last: bool
) -> Buckets:
    """Buckets of whole batches; one batch is not full, and holds either the longest samples or the shortest.

    With a fixed batch size these are mostly the longest (measured with log-normal lengths, σ = 1, in batches of 64:
    padding is 32 % instead of 41 for 1,000 samples, 12 instead of 23 for 5,000, 8.7 instead of 9.9 for 100,000). With a
    budget, a batch of the longest has few samples anyway. With `drop_last` these are the shortest: the longest should
    not be dropped.

    >>> buckets = _cut(np.array([1, 1, 2, 2, 7, 8, 9, 9]), None, 18, 0.15, False)
    >>> buckets.starts.tolist(), buckets.sizes.tolist()
    ([6, 4, 0], [2, 2, 9])
    >>> _cut(np.array([1, 2, 2, 30, 100]), 3, None, 0.15, False).starts.tolist()
    [3, 0]
    """
    found = _from_the_longest(ascending, batch_size, max_tokens, max_padding)
    if not drop_last and found and found[0][2] == batch_size:  # then the budget never limits a batch
        short = len(ascending) % batch_size
        other = _from_the_longest(ascending, batch_size, max_tokens, max_padding, short)
        found = min(found, other, key=lambda buckets: _cells(ascending, buckets))
    if drop_last and len(found) > 1 and found[-1][1] - found[-1][0] < found[-1][2]:
        # Fewer samples than a batch are left, and would never come. They join the bucket of the next longer samples.
        _, (_, stop, size) = found.pop(), found.pop()
        found.append((0, stop, size))
    starts, stops, sizes = np.array(found, np.int64).reshape(-1, 3).T
    return Buckets(starts, stops, sizes)


def _from_the_longest(
    ascending: Array, batch_size: int | None, max_tokens: float | None, max_padding: float, short: int = 0
) -> list[tuple[int, int, int]]:
    """Start, stop and batch size of each bucket, from the longest samples down; the first gets `short` more samples."""
    found: list[tuple[int, int, int]] = []
    stop = len(ascending)
    while stop > 0:
        longest = ascending[stop - 1].item()
        size = _size(longest, batch_size, max_tokens, len(ascending) + 1)
        similar = stop - int(np.searchsorted(ascending[:stop], (1 - max_padding) * longest, side="left"))
        if max_tokens is not None and longest > max_tokens:  # batches of one, only for samples above the budget
            similar = min(similar, stop - int(np.searchsorted(ascending[:stop], max_tokens, side="right")))
        whole = max(0 if short else 1, (similar - short) // size)
        start = max(0, stop - short - whole * size)
        found.append((start, stop, size))
        stop, short = start, 0
    return found


def _cells(ascending: Array, buckets: list[tuple[int, int, int]]) -> float:
    """The total size of all batches, padding included; an upper bound."""
    return sum((stop - start) * float(ascending[stop - 1]) for start, stop, _ in buckets)


def _size(longest: float, batch_size: int | None, max_tokens: float | None, most: int) -> int:
    """How many samples of at most that length a batch may have; never more than `most`."""
    room = most if max_tokens is None else max(1, max_tokens // (longest or 1))
    return int(min(room, most, most if batch_size is None else batch_size))


def _length_array(lengths: Any) -> Array:
    array = as_numbers(array_of("lengths", lengths))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise OptionTypeError(
            f"lengths must be one number for each sample, got {array.ndim}-d of {array.dtype}; "
            "lengths_of(dataset) finds them out"
        )
    if array.dtype.kind == "f":
        array = array.astype(np.float64)  # in float16 the comparison with a budget would overflow
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0) & (array < LONGEST)))
    if wrong.size:
        at = int(wrong[0])
        raise OptionError(f"lengths must be finite, at least 0 and below 2**62, but lengths[{at}] is {array[at]}")
    return array if array.dtype.kind == "f" and array.size else array.astype(np.int64, copy=False)


def _check_number(name: str, value: Any, wanted: str, fits: Callable[[Any], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionTypeError(f"{name} must be {wanted}; got {value!r}")
    if not fits(value):
        raise OptionError(f"{name} must be {wanted}; got {value}")


def _over_budget(lengths: Array, max_tokens: float, multiple: int, places: IntArray) -> OptionError:
    others = f" ({places.size} such samples)" if places.size > 1 else ""
    rounded = f", rounded up to a multiple of {multiple}" if multiple > 1 else ""
    return OptionError(
        f"lengths[{places[0]}] is {lengths[places[0]]}{rounded}, more than max_tokens={max_tokens}{others}: raise "
        "max_tokens, cut such samples and their lengths, or say too_long='drop' or 'allow'"
    )
