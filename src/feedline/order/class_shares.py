"""How many samples of each class go into each batch.

Takes: the sizes of the classes, a batch size, a way to share. Gives: `Shares`: how many batches there are, how many
samples each class gives in total, and which of these (by their number within the class) go into batch k.
Promises: integer arithmetic and no table over the batches: batch k is computed without the others.
Not its job: which samples those are (stratified).

A class of n samples gives m = max(n, K) in an epoch of K batches: each of its samples, and some again if one for each
batch needs them. K is the smallest number of batches with room for the sum M of all m: K · batch_size ≥ M.
"Proportional" gives a batch ⌊m/K⌋ samples of each class, or one more. The extra samples of all classes, in a row class
after class, are dealt out to the batches in turn: a class has fewer than K extras, so no batch gets two of one class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feedline.order.permutation import IntArray

SHARES = ("proportional", "at_least_one", "equal")


class Shares:
    """Proportional shares; subclasses say how they differ."""

    rest = 0
    """How many samples are dealt out at random."""

    def __init__(self, batches: int, totals: Any, size: int) -> None:
        self.batches = batches
        self.totals: IntArray = np.asarray(totals, np.int64)
        self.size = size
        """The size of the largest batch."""
        self._least, self._extras = np.divmod(self.totals, max(1, batches))
        self._first_extras = (np.cumsum(self._extras) - self._extras) % max(1, batches)

    def before(self, number: int) -> IntArray:
        """How many samples of each class are in the batches before batch `number`."""
        # The extra samples of a class go to consecutive batches, and after the last batch to the first.
        begin, end = self._first_extras, self._first_extras + self._extras
        dealt = np.maximum(0, np.minimum(number, end) - begin)
        around = np.maximum(0, np.minimum(number, end - self.batches))
        found: IntArray = number * self._least + dealt + around
        return found

    def rest_before(self, number: int) -> int:
        """How many of the samples dealt out at random are in the batches before batch `number`."""
        return 0

    def of_rest(self, places: IntArray) -> tuple[IntArray, IntArray]:
        """Class, and number within the class, of the samples dealt out at random at those places."""
        return places, places


class _AtLeastOne(Shares):
    """One sample of each class; the others are put in a row, class after class, and dealt out at random."""

    def __init__(self, batches: int, totals: Any, size: int) -> None:
        super().__init__(batches, totals, size)
        self._starts = np.cumsum([0, *(self.totals - batches).tolist()])
        self.rest = int(self._starts[-1])

    def before(self, number: int) -> IntArray:
        return np.full(len(self.totals), number)

    def rest_before(self, number: int) -> int:
        least, extras = divmod(self.rest, self.batches)
        return number * least + min(number, extras)

    def of_rest(self, places: IntArray) -> tuple[IntArray, IntArray]:
        classes = np.searchsorted(self._starts, places, side="right") - 1
        return classes, self.batches + places - self._starts[classes]


class EqualShares(Shares):
    """The same number of each class; the rest of a batch goes to the classes in turn, continued in the next batch."""

    def before(self, number: int) -> IntArray:
        return self._before(number, np.arange(len(self.totals)))

    def before_each(self, which: int) -> IntArray:
        """How many samples of one class are in the batches before each batch; the last entry is the total."""
        return self._before(np.arange(self.batches + 1), which)

    def _before(self, number: Any, which: Any) -> IntArray:
        count = len(self.totals)
        least, over = divmod(self.size, count)
        found: IntArray = number * least + (number * over - which + count - 1) // count
        return found


def shares_of(share: str, sizes: list[int], size: int, drop_last: bool) -> Shares:
    """The shares for classes of those sizes.

    >>> shares = shares_of("proportional", [10, 2], size=4, drop_last=False)
    >>> shares.batches, shares.totals.tolist(), [shares.before(number).tolist() for number in range(5)]
    (4, [10, 4], [[0, 0], [3, 1], [6, 2], [8, 3], [10, 4]])
    """
    if not sizes:
        return Shares(0, [], size)
    if share == "equal":
        batches = sum(sizes) // size if drop_last else -(-sum(sizes) // size)
        shares = EqualShares(batches, sizes, size)
        shares.totals = shares.before(batches)
        return shares
    batches = _fewest(sizes, size)
    totals = [max(one, batches) for one in sizes]
    if drop_last and sum(totals) < batches * size:
        batches -= 1
        totals = _cut(sizes, batches, batches * size)
    return (_AtLeastOne if share == "at_least_one" else Shares)(batches, totals, size)


def _fewest(sizes: list[int], size: int) -> int:
    """The fewest batches with room for all samples. More batches add more room than small classes need to repeat."""
    low, high = 1, max(sizes)
    while low < high:
        middle = (low + high) // 2
        if middle * size >= sum(max(one, middle) for one in sizes):
            high = middle
        else:
            low = middle + 1
    return low


def _cut(sizes: list[int], batches: int, room: int) -> list[int]:
    """Totals that sum to `room`: one in each batch for every class; the rest in proportion to what each has beyond."""
    over = [max(0, one - batches) for one in sizes]
    left, all_over = room - batches * len(sizes), max(1, sum(over))
    shares = [divmod(one * left, all_over) for one in over]
    totals = [batches + whole for whole, _ in shares]
    by_remainder = sorted(range(len(sizes)), key=lambda at: -shares[at][1])
    for at in by_remainder[: room - sum(totals)]:
        totals[at] += 1
    return totals
