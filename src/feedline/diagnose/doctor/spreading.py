"""Which of many samples are read.

Takes: a length. Gives: indices over all of it, the same every time. Not its job: reading them (examine, comparing).
"""

from __future__ import annotations

import random
from itertools import pairwise

SEED = 20_241


def spread(length: int, most: int) -> list[int]:
    """Indices over the whole dataset, one at random from each of `most` equal parts, in mixed order.

    >>> sorted(spread(5, 10)), len(set(spread(10_000, 100)))
    ([0, 1, 2, 3, 4], 100)
    """
    draw = random.Random(SEED)
    count = min(length, most)
    bounds = [part * length // count for part in range(count + 1)] if count else []
    chosen = [draw.randrange(low, high) for low, high in pairwise(bounds)]
    if chosen:
        chosen[-1] = length - 1
    draw.shuffle(chosen)
    return chosen
