"""Which keys belong to which part: a table is shared out by ranges of its key, or by a hash of it.

Takes: a part's number, the smallest and largest key. Gives: parts of a part; the ends of a range; its rows.
Promises: together the parts have every key once, for any number of parts; parts of a part make up that part. The first
range has no lower end and the last no upper end, so rows that are added later belong to some part.
Not its job: asking for them (sql_stream).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.datasets.stable_hash import stable_words
from feedline.errors import OptionError
from feedline.errors.checks import check_whole

SEED = 0x5041525453
"""The seed of the hash: different from that of splits, otherwise a part would hold only one split."""


@dataclass(frozen=True)
class KeyRange:
    """One of several parts."""

    index: int = 0
    count: int = 1

    def split(self, index: int, count: int) -> KeyRange:
        """A part of this part.

        >>> KeyRange(1, 2).split(0, 3)
        KeyRange(index=3, count=6)
        """
        check_whole("count", count, least=1)
        if check_whole("index", index, least=0) >= count:
            raise OptionError(f"index must be below count={count}; got {index}")
        return KeyRange(self.index * count + index, self.count * count)

    def ends(self, least: int, most: int) -> tuple[int | None, int | None]:
        """The part's range of integers, if all keys are from `least` to `most`: its first key, and the first after it.

        >>> [KeyRange(index, 3).ends(0, 9) for index in range(3)]
        [(None, 3), (3, 6), (6, None)]
        """
        span = most - least + 1
        first, end = (least + span * number // self.count for number in (self.index, self.index + 1))
        return (first if self.index else None), (end if self.index + 1 < self.count else None)

    def keeps(self, keys: Sequence[Any]) -> list[bool]:
        """Which of these keys belong to it, by their hash."""
        words = stable_words([str(key) for key in keys], SEED) >> np.uint64(32)
        return [bool(each) for each in (words * np.uint64(self.count) >> np.uint64(32)) == self.index]
