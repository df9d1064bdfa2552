"""Independent draws in proportion to weights, computed where they are read.

Takes: weights; a length and a key. Gives: `WeightTable`, made once for all epochs, and `WeightedDraws`, an order.
Promises: a draw needs no memory of its own and, for ten million weights, about as many table look-ups as for ten;
a weight of 0 never comes. Not its job: checking weights (weighted).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from feedline.order.permutation import ComputedOrder, IntArray, random_words

Floats = npt.NDArray[np.float64]


class WeightTable:
    """The running sum of weights, and a guide into it: for each n-th part of the sum, the range where it is reached.

    Measured at 10 million weights (benchmarks/samplers.py): 64 draws take 12 µs; `np.searchsorted` alone takes 65 to
    100 µs, because it misses the cache at every level of the search.

    >>> WeightTable(np.array([1.0, 0.0, 3.0])).find(np.array([0.0, 0.24, 0.25, 0.99])).tolist()
    [0, 0, 2, 2]
    """

    def __init__(self, weights: Floats) -> None:
        # Divided by the largest weight, so that the sum of huge weights stays finite.
        self._sums: Floats = np.cumsum(weights / weights.max())
        # A power of two: the part that a draw falls into is then exact, and the guide's range always contains the draw.
        self._parts = 1 << max(0, (len(weights) // 4).bit_length())
        edges = np.arange(self._parts + 1) / self._parts
        self._guide = np.searchsorted(self._sums, edges * self._sums[-1], side="right")

    def find(self, uniform: Floats) -> IntArray:
        """The first place whose running sum exceeds that share of the total; never a place of weight 0."""
        sums, part = self._sums, (uniform * self._parts).astype(np.int64)
        wanted = uniform * sums[-1]
        low: IntArray = self._guide[part]
        high = self._guide[part + 1]
        left = np.flatnonzero(low < high)
        while left.size:
            middle = (low[left] + high[left]) >> 1
            above = sums[middle] > wanted[left]
            high[left[above]] = middle[above]
            low[left[~above]] = middle[~above] + 1
            left = left[low[left] < high[left]]
        return low


class WeightedDraws(ComputedOrder):
    """Independent draws of the places in a table of weights.

    >>> np.bincount(WeightedDraws(WeightTable(np.array([1.0, 0.0, 3.0])), length=4000, key=7)[:]).tolist()
    [1046, 0, 2954]
    """

    def __init__(self, table: WeightTable, length: int, key: int) -> None:
        super().__init__(length)
        self._table = table
        self._key = key

    def _compute(self, start: int, stop: int) -> IntArray:
        words = random_words(self._key, start, stop)
        return self._table.find((words >> np.uint64(11)) * 2.0**-53)  # in [0, 1): a float64 holds 53 of the 64 bits
