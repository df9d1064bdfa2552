"""Samples of unequal cost, strewn by a function of a key: the explorer's page has the same function.

Takes: a mean, a spread, a share of stragglers, a key. Gives: whole microseconds for each sample.
Promises: the same arguments give the same costs in Python and in JavaScript (page/costs.js), to the microsecond: only
additions, multiplications and comparisons of doubles. Not its job: what the costs are for (simulation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feedline.order.permutation import random_words


@dataclass(frozen=True)
class Costs:
    """What a sample costs, in microseconds: evenly spread over mean × (1 ± spread); a share takes `factor` times that.

    >>> sample_costs(Costs(mean=1000, spread=0.5), 3, key=1)
    [1425, 724, 708]
    """

    mean: float
    spread: float = 0.0
    stragglers: float = 0.0
    factor: float = 1.0


def sample_costs(costs: Costs, count: int, key: int) -> list[int]:
    """What each sample costs."""
    words = random_words(key, 0, 2 * count) >> np.uint64(11)
    uniform = (words * 2.0**-53).tolist()
    return [
        int(
            costs.mean
            * (1 + costs.spread * (2 * uniform[2 * place] - 1))
            * (costs.factor if uniform[2 * place + 1] < costs.stragglers else 1.0)
        )
        for place in range(count)
    ]
