"""How many samples of each class come into which batch.

Takes: the sizes of the classes, a batch size, a way to share. Gives: `Shares`: how many batches there are, how many
samples each class gives in all, and which of these (by their number within the class) go into batch k.
Promises: whole-number arithmetic, no table over the batches: batch k is known without the others.
Not its job: which samples those are (stratified).

A class of n samples gives m = max(n, K) in an epoch of K batches: all of its own, and again as many as needed for one
in each batch. K is the smallest number of batches with room for the sum M of these: K · batch_size ≥ M.
"Proportional" gives a batch ⌊m/K⌋ of each class, or one more. Those extra ones of all classes, lined up class after
class and dealt out to the batches in turn, fall evenly: a class has fewer than K, so no batch gets two of one class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feedline.order.permutation import IntArray

SHARES = ("proportional", "at_least_one", "equal")


class Shares:
    """Proportional shares; the other ways differ from it where they say so."""

    rest = 0
    """How many samples in all are dealt out by chance."""

    def __init__(self, batches: int, totals: Any, size: int) -> None:
        self.batches = batches
        self.totals: IntArray = np.asarray(totals, np.int64)
        self.size = size
        """The largest that a batch can be."""
        self._least, self._extras = np.divmod(self.totals, max(1, batches))
        self._first_extras = (np.cumsum(self._extras) - self._extras) % max(1, batches)

    def before(self, number: int) -> IntArray:
        """How many of each class's samples are in the batches before that one."""
        # A class's extra samples are dealt to the batches from its first one on, in a circle.
        begin, end = self._first_extras, self._first_extras + self._extras
        dealt = np.maximum(0, np.minimum(number, end) - begin)
        around = np.maximum(0, np.minimum(number, end - self.batches))
        found: IntArray = number * self._least + dealt + around
        return found

    def rest_before(self, number: int) -> int:
        """How many of the samples dealt out by chance are in the batches before that one."""
        return 0

    def of_rest(self, places: IntArray) -> tuple[IntArray, IntArray]:
        """Class, and number within the class, of the samples dealt out by chance at those places."""
        return places, places


class _AtLeastOne(Shares):
    """One of each class; the others lie on a line, class after class, and are dealt out by chance."""

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
    """The same number of each class; what is left over in a batch goes round the classes, on into the next batch."""

    def before(self, number: int) -> IntArray:
        return self._before(number, np.arange(len(self.totals)))

    def before_each(self, which: int) -> IntArray:
        """How many of one class's samples are in the batches before each batch; at last, how many in all."""
        return self._before(np.arange(self.batches + 1), which)

    def _before(self, number: Any, which: Any) -> IntArray:
        count = len(self.totals)
        least, over = divmod(self.size, count)
        found: IntArray = number * least + (number * over - which + count - 1) // count
        return found


def shares_of(share: str, sizes: list[int], size: int, drop_last: bool) -> Shares:
    """The shares of classes of those sizes.

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
    """The smallest number of batches that has room for all: the room grows faster than what small classes repeat."""
    low, high = 1, max(sizes)
    while low < high:
        middle = (low + high) // 2
        if middle * size >= sum(max(one, middle) for one in sizes):
            high = middle
        else:
            low = middle + 1
    return low


def _cut(sizes: list[int], batches: int, room: int) -> list[int]:
    """Totals that sum to `room`: one in each batch for every class, what is left in proportion to what more it has."""
    over = [max(0, one - batches) for one in sizes]
    left, all_over = room - batches * len(sizes), max(1, sum(over))
    shares = [divmod(one * left, all_over) for one in over]
    totals = [batches + whole for whole, _ in shares]
    by_remainder = sorted(range(len(sizes)), key=lambda at: -shares[at][1])
    for at in by_remainder[: room - sum(totals)]:
        totals[at] += 1
    return totals
