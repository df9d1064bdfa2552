"""Which of several sources comes at which place, in given proportions.

Takes: integer weights, a key. Gives: `Stretches`: the source of every place, a stretch of places at a time.
Promises: at the end of each stretch every source's share of all places so far is its exact quota, rounded down or up;
any stretch is found without those before it.
Not its job: what is drawn from a source (order/mixing, mixture_stream), what the weights mean (apportioning).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feedline.datasets.apportioning import apportion
from feedline.datasets.reading import IntArray
from feedline.errors import OptionError

STRETCH = 256
"""The number of places within which each source has its share. A longer stretch costs less (measured with 8 sources:
160 ns an index at 1024, 320 ns at 256, 800 ns at 64), a shorter one keeps the shares of a batch more even."""
LONGEST_STRETCH = 1 << 20
"""8 MB, and 10 ms to shuffle."""


class Stretches:
    """The places of sources with these weights, all above 0.

    >>> stretches = Stretches([3, 1], "weights", ["web", "code"])
    >>> stretches.length, stretches.before(2), np.bincount(stretches.sources(0, key=7)).tolist()
    (256, [384, 128], [192, 64])
    """

    def __init__(self, weights: Sequence[int], option: str, names: Sequence[str]) -> None:
        self._weights = weights
        # At least one place for each source in each stretch: then the count of a source's draws never decreases.
        self.length = max(STRETCH, -(-sum(weights) // min(weights)))
        if self.length > LONGEST_STRETCH:
            name = names[weights.index(min(weights))]
            raise OptionError(
                f"{option}[{name!r}] is less than one sample in {LONGEST_STRETCH:,}: give it more, or leave it out"
            )

    def before(self, number: int) -> list[int]:
        """How many places each source has before that stretch."""
        return apportion(number * self.length, self._weights)

    def sources(self, number: int, key: int) -> IntArray:
        """The source of each place in that stretch, in an order that the key decides."""
        counts = [after - before for before, after in zip(self.before(number), self.before(number + 1), strict=True)]
        in_turn: IntArray = np.repeat(np.arange(len(counts)), counts)
        np.random.Generator(np.random.SFC64(key)).shuffle(in_turn)
        return in_turn
