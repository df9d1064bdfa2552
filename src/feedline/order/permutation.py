"""Orders that are computed where they are read, instead of being stored.

Takes: a length and, for random orders, a 64-bit key.
Gives: `Order` (the interface of all of them: a sequence of indices that can be sliced anywhere), `Permutation` (every
index of [0, n) once), `Draws` (independent indices); `Counting`, `Picked` and `Repeated`.
Promises: the same length and key give the same indices, on every machine and with every NumPy (only integer arithmetic
that wraps at 64 bits); memory does not grow with n; a slice never needs what comes before it.
Not its job: what the order is for, where keys come from (order/index_shuffle), secrecy (this is no cipher).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from feedline.randomness.rng import mix, spread

IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
AnyWords = npt.NDArray[Any]
"""Unsigned, of 32 or 64 bits."""

LARGEST = 2**63 - 1  # an index is an int64, and a length is what len() can return

# Consecutive batches are slices of one block. 16384 keeps the work arrays inside a core's L2 cache and makes
# the ~100 array calls of a block cheap compared with their arithmetic; a lone index then costs about 0.2 ms
# (0.4 ms of more than 2**24). Measured: with 8192 an index of a whole shuffle costs 28 ns instead of 15.
BLOCK = 16384

# The counter's step in splitmix64 (Steele, Lea, Flood 2014).
_STEP = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)


class Arithmetic(NamedTuple):
    """How a shift of a grid is hashed, in words of one width. `rest` bits of a hash times a size fit into a word."""

    dtype: Any
    factor_1: Any
    factor_2: Any
    half: Any
    drop: Any
    rest: Any

    @classmethod
    def of(cls, dtype: Any, *numbers: int) -> Arithmetic:
        return cls(dtype, *map(dtype, numbers))


# With the odd constants of two finalisers: splitmix64's, and that of MurmurHash3 (Appleby 2008).
WIDE = Arithmetic.of(np.uint64, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 32, 32, 32)
NARROW = Arithmetic.of(np.uint32, 0x85EBCA6B, 0xC2B2AE35, 16, 12, 20)
"""Twice as fast: a processor multiplies eight such words at a time. A size is at most 2**12, and of its shifts none is
more likely than another by more than its share of 2**20 hashes: 0.4 %, in each of 8 rounds."""
NARROW_UP_TO = 2**24

# Found by experiment: with 4 rounds the tests in tests/order/test_permutation.py fail, with 6 they pass for large n;
# 8 leaves a margin. A tiny grid has only a handful of different shifts per round, so it takes more rounds until all
# its orders come equally often (24 for the 5040 orders of n = 7, over 480,000 keys).
_ROUNDS = 8
_ROUNDS_OF_TINY = 32
_TINY = 4096


class Order(Protocol):
    """An epoch's indices as a sequence that can be sliced anywhere. A plain int64 array is an Order."""

    def __len__(self) -> int: ...

    def __getitem__(self, span: slice, /) -> IntArray:
        """The indices at places start to stop, in steps of 1; bounds are clamped as in a list."""


def bounds(span: slice, length: int) -> tuple[int, int]:
    """Where a slice of an order of that length starts and stops, clamped as in a list.

    >>> bounds(slice(2, 99), 10), bounds(slice(None), 10), bounds(slice(99, 120), 10)
    ((2, 10), (0, 10), (10, 10))
    """
    if not isinstance(span, slice):
        raise TypeError(f"an order is read by slices, order[start:stop]; got {type(span).__name__}")
    start, stop, step = span.indices(length)
    if step != 1:
        raise ValueError(f"an order is read in steps of 1, got a slice with step {step}")
    return start, max(start, stop)


class ComputedOrder:
    """Indices that are computed, a block at a time, when a slice asks for them. Subclasses define `_compute`.

    >>> class Squares(ComputedOrder):
    ...     def _compute(self, start, stop):
    ...         return np.arange(start, stop, dtype=np.int64) ** 2
    >>> Squares(10)[7:99]
    array([49, 64, 81])
    """

    def __init__(self, length: int) -> None:
        if not 0 <= length <= LARGEST:
            raise ValueError(f"length must be between 0 and 2**63 - 1, got {length}")
        self._length = length
        # One attribute, replaced as a whole, so that two threads that slice at the same time never see half a change.
        self._cached: tuple[int, IntArray] = (-1, np.empty(0, np.int64))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, span: slice, /) -> IntArray:
        start, stop = bounds(span, self._length)
        out = np.empty(stop - start, np.int64)
        for number in range(start // BLOCK, -(-stop // BLOCK) if stop > start else 0):
            first = number * BLOCK
            block = self._block(number)
            low, high = max(start, first), min(stop, first + BLOCK)
            out[low - start : high - start] = block[low - first : high - first]
        return out

    def _block(self, number: int) -> IntArray:
        cached_number, block = self._cached
        if cached_number != number:
            start = number * BLOCK
            block = self._compute(start, min(start + BLOCK, self._length))
            self._cached = (number, block)
        return block

    def _compute(self, start: int, stop: int) -> IntArray:
        """The indices at places start to stop, at most `BLOCK` of them."""
        raise NotImplementedError


class Counting:
    """0, 1, 2, … up to a length.

    >>> Counting(10)[8:99]
    array([8, 9])
    """

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, span: slice, /) -> IntArray:
        return np.arange(*bounds(span, self._length), dtype=np.int64)


class Picked:
    """The given indices, arranged by an order of their places.

    >>> Picked(np.array([30, 31, 32]), np.array([2, 0, 1]))[:2]
    array([32, 30])
    """

    def __init__(self, indices: IntArray, places: Order) -> None:
        self._indices = indices
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, span: slice, /) -> IntArray:
        return self._indices[self._places[span]]


class Repeated:
    """Orders of `turn` indices, one after the other; each is made when it is reached, the last is cut off at a length.

    >>> Repeated(lambda number: np.arange(3) + 10 * number, turn=3, length=8)[2:99]
    array([ 2, 10, 11, 12, 20, 21])
    """

    def __init__(self, make: Callable[[int], Order], turn: int, length: int) -> None:
        if turn < 1:
            raise ValueError(f"turn must be a positive integer, got {turn}: nothing can be repeated")
        self._make = make
        self._turn = turn
        self._length = length
        self._latest: tuple[int, Order] = (-1, Counting(0))  # replaced as a whole, as above

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, span: slice, /) -> IntArray:
        start, stop = bounds(span, self._length)
        parts = [np.empty(0, np.int64)]
        while start < stop:
            number, place = divmod(start, self._turn)
            parts.append(self._order(number)[place : place + stop - start])
            start = (number + 1) * self._turn
        return np.concatenate(parts)

    def _order(self, number: int) -> Order:
        latest, order = self._latest
        if latest != number:
            order = self._make(number)
            self._latest = (number, order)
        return order


class Permutation(ComputedOrder):
    """A shuffle of range(n) that is never stored: a keyed bijection, evaluated where it is sliced.

    A place is a (row, column) of a grid just large enough for n. Rounds alternately shift the column
    by a hash of the row and the row by a hash of the column (an unbalanced Feistel network): each round can
    be undone, so all together are a bijection of the grid. The few places that land beyond n are put through the
    rounds again until they fall below n ("cycle walking"), which leaves a bijection of [0, n).

    >>> shuffle = Permutation(1_000_000_000, key=7)
    >>> len(shuffle), shuffle[500_000_000:500_000_003].tolist()
    (1000000000, [275731519, 302132467, 594549327])
    >>> sorted(Permutation(5, key=1)[:].tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, n: int, key: int) -> None:
        super().__init__(n)
        # An even number of rows: shifting one column is then an odd permutation. Without odd permutations (3 x 3, say)
        # half of all orders could never come.
        rows = math.isqrt(max(n - 1, 0)) + 1
        rows += rows % 2
        self._arithmetic = arithmetic = NARROW if n <= NARROW_UP_TO else WIDE
        dtype, most = arithmetic.dtype, int(np.iinfo(arithmetic.dtype).max)
        self._rows = dtype(rows)
        self._columns = dtype(max(-(-n // rows), 1))
        rounds = _ROUNDS_OF_TINY if n < _TINY else _ROUNDS
        self._keys = [dtype(mix(key, number) & most) for number in range(rounds)]

    def _compute(self, start: int, stop: int) -> IntArray:
        places = self._shuffle(np.arange(start, stop, dtype=self._arithmetic.dtype))
        outside = np.flatnonzero(places >= self._length)
        while outside.size:
            places[outside] = again = self._shuffle(places[outside])
            outside = outside[again >= self._length]
        return places.astype(np.int64) if places.itemsize < 8 else places.view(np.int64)

    def _shuffle(self, places: AnyWords) -> AnyWords:
        """The bijection of the whole grid."""
        row: AnyWords = places // self._columns
        column = places - row * self._columns
        hashed, work = np.empty_like(row), np.empty_like(row)
        for number, key in enumerate(self._keys):
            if number % 2:
                self._shift(row, column, self._rows, key, hashed, work)
            else:
                self._shift(column, row, self._columns, key, hashed, work)
        row *= self._columns
        row += column
        return row

    def _shift(self, moved: AnyWords, by: AnyWords, size: Any, key: Any, hashed: AnyWords, work: AnyWords) -> None:
        """Add a hash of `by`, reduced to [0, size), to `moved` modulo size, in place."""
        _, factor_1, factor_2, half, drop, rest = self._arithmetic
        np.add(by, key, out=hashed)
        hashed *= factor_1
        hashed ^= np.right_shift(hashed, half, out=work)
        hashed *= factor_2
        hashed >>= drop
        hashed *= size
        hashed >>= rest
        moved += hashed
        # Either moved < size already, and moved - size wraps to something huge, or moved - size is the remainder.
        np.subtract(moved, size, out=hashed)
        np.minimum(moved, hashed, out=moved)


class Draws(ComputedOrder):
    """Independent draws from range(population), each index equally likely each time, never stored.

    >>> dice = Draws(6, length=1_000_000, key=7)
    >>> dice[:5].tolist() == dice[:1_000_000][:5].tolist()
    True
    >>> np.bincount(dice[:6000]).tolist()
    [1043, 980, 981, 1011, 981, 1004]
    """

    def __init__(self, population: int, length: int, key: int) -> None:
        super().__init__(length)
        if not 0 < population <= LARGEST and length:
            raise ValueError(f"population must be between 1 and 2**63 - 1 to draw from it, got {population}")
        self._high = np.uint64(population >> 32)
        self._low = np.uint64(population & 0xFFFFFFFF)
        self._key = key

    def _compute(self, start: int, stop: int) -> IntArray:
        """The high 64 bits of word * population, by schoolbook multiplication of 32-bit halves.

        No remainder is taken: the probability of an index differs from 1 / population by less than 2**-64.
        """
        words = random_words(self._key, start, stop)
        high, low = words >> _HALF, words & _LOW_HALF
        cross = high * self._low + (low * self._low >> _HALF)
        carry = (low * self._high + (cross & _LOW_HALF)) >> _HALF
        result: Words = high * self._high + (cross >> _HALF) + carry
        return result.view(np.int64)


def random_words(key: int, start: int, stop: int) -> Words:
    """Random 64-bit words as a function of their place: splitmix64, which is a hash of a counter."""
    words = np.arange(start, stop, dtype=np.uint64)
    words *= _STEP
    words += np.uint64(mix(key))
    spread(words)
    return words
