"""Batches in which every class is present, however rare it is.

Takes: a label per sample, a batch size, and how a batch is shared between the classes.
Gives: `StratifiedBatchSampler`. Promises: each class in each batch; each sample of a class comes once, in shuffled
order, before any of them comes again; any batch can be made without the earlier ones.
Not its job: telling labels apart (labels), how many of each class go into which batch (class_shares).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from feedline.datasets import classes_of
from feedline.errors import OptionError
from feedline.errors.checks import check_choice, check_flag, check_whole
from feedline.order.class_shares import SHARES, EqualShares, Shares, shares_of
from feedline.order.index_shuffle import order_key, shuffled, shuffled_copy
from feedline.order.permutation import IntArray, Order, random_words
from feedline.order.sampler import Batches, BatchOrderSampler
from feedline.order.sorting import places_by

_INSIDE, _TURN, _LONG_TURN, _REST = range(4)
"""The purpose of a key; a key also has the seed, the epoch (unless it is for all epochs) and a number."""


class StratifiedBatchSampler(BatchOrderSampler):
    """Batches in which every class is present. Classes with few samples are repeated.

    `share` says how a batch is divided among the classes:

    - "proportional": in proportion to the data, but at least one of each class. The counts of a class in any two
      batches differ by at most one.
    - "at_least_one": one of each class, and the rest as in a plain shuffle.
    - "equal": the same number of each class, up to one. A sample never comes twice in a batch if its class has at least
      twice as many samples as a batch takes from it.

    With the first two, an epoch reads every class that is not repeated exactly once: every sample comes at least once.
    The sizes of the batches differ by at most one, and none is larger than `batch_size`; with `drop_last` all have
    exactly that size, and less than one batch of samples is left out, different ones in each epoch. With "equal", an
    epoch has as many batches as plain batching would give; a class too large for that continues in the next epoch where
    it stopped.

    >>> labels = ["common"] * 10 + ["rare"] * 2
    >>> sampler = StratifiedBatchSampler(labels, batch_size=4, seed=7)
    >>> [sorted(batch) for batch in sampler]
    [[1, 3, 7, 11], [2, 6, 8, 10], [4, 9, 10], [0, 5, 11]]
    """

    def __init__(
        self,
        labels: Any,
        batch_size: int,
        *,
        share: str = "proportional",
        drop_last: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        classes = classes_of(labels)
        self.classes = classes.names
        self.population = len(classes.codes)
        self.batch_size = check_whole("batch_size", batch_size, least=1)
        self.share = check_choice("share", share, SHARES)
        self.drop_last = check_flag("drop_last", drop_last)
        if len(self.classes) > self.batch_size:
            raise OptionError(
                f"batch_size={self.batch_size} is too small for a sample of each of the {len(self.classes)} classes: "
                f"raise it to at least {len(self.classes)}, or merge rare classes"
            )
        self._sizes = classes.sizes
        self._by_class = places_by(classes.codes)
        self._shares = shares_of(self.share, self._sizes.tolist(), self.batch_size, self.drop_last)
        # The classes of which an epoch takes only a part, so that the next epoch takes the following part.
        self._goes_on = (self._shares.totals < self._sizes) & (self.share == "equal")
        self.repeats = bool((self._goes_on | (self._shares.totals > self._sizes)).any())
        self.settings = f"batch_size={self.batch_size}, share={self.share!r}, drop_last={self.drop_last}"

    def __len__(self) -> int:
        return self._shares.batches

    def batches(self, seed: int, epoch: int) -> Batches:
        """The batches of that epoch."""
        parts = np.split(self._by_class, np.cumsum(self._sizes))[:-1]
        members = [self._members(number, own, seed, epoch) for number, own in enumerate(parts)]
        rest = shuffled(self._shares.rest, order_key(seed, epoch, _REST))
        lined_up = np.concatenate(members) if members else self._by_class
        return _Stratified(self._shares, lined_up, rest, order_key(seed, epoch, _INSIDE))

    def _members(self, number: int, own: IntArray, seed: int, epoch: int) -> IntArray:
        """The samples of a class in that epoch, in order: shuffled turns one after the other, the last cut off."""
        size, wanted = len(own), int(self._shares.totals[number])
        # The sequence of turns either runs through all epochs, or begins again in each epoch.
        key, begin = ((seed, _LONG_TURN), epoch * wanted) if self._goes_on[number] else ((seed, epoch, _TURN), 0)
        turns = range(max(0, begin // size - 1), -(-(begin + wanted) // size))  # and the turn before, whose end matters
        shuffles = [shuffled_copy(own, order_key(*key, number, turn)) for turn in turns]
        if isinstance(self._shares, EqualShares) and len(turns) > 1:
            seams = _Seams(self._shares, number, size)
            for (earlier, later), turn in zip(pairwise(shuffles), turns[1:], strict=True):
                seams.mend(earlier, later, turn)
        first = begin - turns.start * size
        return np.concatenate([own[:0], *shuffles])[first : first + wanted]


class _Seams:
    """The batches in which one turn of a class ends and the next begins: such a batch could hold a sample twice.

    Then first samples of the next turn swap places with later ones of the same turn, but never with its last ones:
    these stay as shuffled, so a turn depends only on the turn before it. The class must have twice what a batch takes
    from it.
    """

    def __init__(self, shares: EqualShares, which: int, size: int) -> None:
        self._before = shares.before_each(which)
        self._most = int(np.diff(self._before).max(initial=0))
        self._size = size
        self._mends = 2 * self._most - 1 <= size

    def mend(self, earlier: IntArray, later: IntArray, turn: int) -> None:
        """Change the beginning of that turn if it is in the same batch as the end of the earlier turn."""
        place = turn * self._size % int(self._before[-1])
        batch = int(np.searchsorted(self._before, place, side="right"))
        first, last = int(self._before[batch]) - place, place - int(self._before[batch - 1])
        if not last or not self._mends:
            return
        held = earlier[self._size - last :]
        again = np.flatnonzero(np.isin(later[:first], held))
        if again.size:
            free = ~np.isin(later[first : first + last], held)  # enough of these are free
            others = first + np.flatnonzero(free)[: again.size]
            later[again], later[others] = later[others], later[again]


class _Stratified:
    """One epoch's batches. `members` has the samples, class after class; `rest`, those dealt out at random."""

    def __init__(self, shares: Shares, members: IntArray, rest: Order, key: int) -> None:
        self._shares = shares
        self._members = members
        self._starts = np.cumsum(shares.totals) - shares.totals
        self._rest = rest
        self._key = key

    def __len__(self) -> int:
        return self._shares.batches

    def __getitem__(self, number: int, /) -> IntArray:
        before, after = self._shares.before(number), self._shares.before(number + 1)
        counts = after - before
        first = self._starts + before - (np.cumsum(counts) - counts)
        places = np.repeat(first, counts) + np.arange(counts.sum())
        batch = self._members[np.concatenate([places, self._by_chance(number)])]
        # Shuffled, because a batch may be cut into parts (devices, micro-batches), which should not be single classes.
        start = number * self._shares.size
        mixed: IntArray = batch[np.argsort(random_words(self._key, start, start + len(batch)))]
        return mixed

    def _by_chance(self, number: int) -> IntArray:
        places = self._rest[self._shares.rest_before(number) : self._shares.rest_before(number + 1)]
        classes, items = self._shares.of_rest(places)
        found: IntArray = self._starts[classes] + items
        return found
