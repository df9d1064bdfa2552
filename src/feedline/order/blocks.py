"""A shuffle that stays within a few blocks of the data at a time: for rows that can only be read block by block.

Takes: how many samples each block (row group, shard) has. Gives: `BlockSampler`.
Promises: every index once an epoch. Blocks come in random order, `window` of them at a time; the samples of a window
come in random order. The order is a function of seed and epoch; a slice costs no more than the windows it touches.
Not its job: reading blocks (sources), other orders (samplers).
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np

from feedline.datasets import array_of, as_numbers
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_whole
from feedline.order.index_shuffle import order_key, shuffled, shuffled_copy
from feedline.order.permutation import IntArray, Order, bounds
from feedline.order.sampler import Sampler


class BlockSampler(Sampler):
    """Blocks in random order, and the samples of `window` blocks at a time in random order.

    For data that is read block by block: `BlockSampler(data.block_sizes)` of a `ParquetDataset` or `TarDataset`. A
    larger window mixes better and needs more blocks in memory; a window of all blocks is a plain shuffle.

    >>> order = list(BlockSampler([3, 3, 3, 3], window=2, seed=1))
    >>> sorted(order) == list(range(12)), sorted(order[:6])
    (True, [0, 1, 2, 3, 4, 5])
    """

    def __init__(self, sizes: Any, window: int = 8, seed: int | None = None) -> None:
        super().__init__(seed)
        self._sizes = _checked(sizes)
        self.window = check_whole("window", window, least=1)
        self._firsts = np.cumsum(self._sizes) - self._sizes
        # A state must not be continued with blocks of other sizes: the indices would be those of other samples.
        self.settings = f"{len(self._sizes)} blocks of sizes {crc32(self._sizes.tobytes()):08x}, window={self.window}"

    def __len__(self) -> int:
        return int(self._sizes.sum())

    def order(self, seed: int, epoch: int) -> Order:
        blocks = shuffled(len(self._sizes), order_key(seed, epoch))[:]
        return _Windows(self._firsts[blocks], self._sizes[blocks], self.window, order_key(seed, epoch, 1))


class _Windows:
    """The samples of some blocks, window after window."""

    def __init__(self, firsts: IntArray, sizes: IntArray, window: int, key: int) -> None:
        self._firsts = firsts
        self._sizes = sizes
        self._window = window
        self._key = key
        self._ends = np.cumsum(np.add.reduceat(sizes, np.arange(0, len(sizes), window))) if len(sizes) else sizes
        self._latest: tuple[int, IntArray] = (
            -1,
            np.empty(0, np.int64),
        )  # replaced as a whole: several threads may slice at the same time

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, span: slice, /) -> IntArray:
        start, stop = bounds(span, len(self))
        parts = [np.empty(0, np.int64)]
        while start < stop:
            number = int(np.searchsorted(self._ends, start, side="right"))
            begin, end = int(self._ends[number - 1]) if number else 0, int(self._ends[number])
            parts.append(self._samples(number)[start - begin : stop - begin])
            start = end
        return np.concatenate(parts)

    def _samples(self, number: int) -> IntArray:
        latest, samples = self._latest
        if latest != number:
            blocks = slice(number * self._window, (number + 1) * self._window)
            pairs = zip(self._firsts[blocks].tolist(), self._sizes[blocks].tolist(), strict=True)
            whole = np.concatenate([np.arange(first, first + size, dtype=np.int64) for first, size in pairs])
            samples = shuffled_copy(whole, order_key(self._key, number))
            self._latest = (number, samples)
        return samples


def _checked(sizes: Any) -> IntArray:
    array = as_numbers(array_of("sizes", sizes))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise OptionTypeError(f"sizes must be the number of samples in each block, whole numbers; got {array.dtype}")
    if array.size and array.min() < 0:
        raise OptionError(f"sizes must not be negative; block {int(array.argmin())} has {int(array.min())}")
    return array.astype(np.int64)
