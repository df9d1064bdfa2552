"""Pairs of turns within a budget of seconds: many of what is quick, a few of what is slow.

Takes: for each side a function that runs an epoch and says what it took. Gives: `take_turns`, the seconds of each turn.
Promises: both sides have as many turns, in changing order; at least FEWEST, so that there is a median that one bad
moment does not move; more only while they fit into the budget, so that a slow cell does not take the time of ten.
Not its job: what is run (grid, grid_cells).
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping

BUDGET = 2.0
"""Seconds of a cell, both sides together, after one epoch of each to get warm."""
FEWEST, MOST = 3, 15
"""Pairs. Three have a median that one bad moment does not move."""
SHORTEST = 0.03
"""Seconds that a side takes at least in one pair: short epochs are run several times."""


def take_turns(
    run: Mapping[str, Callable[[], float]], budget: float, fewest: int = FEWEST, most: int = MOST
) -> dict[str, list[float]]:
    """Of each side the seconds of an epoch, pair by pair. `run` runs one epoch of a side, and says what it took.

    >>> found = take_turns({"torch": lambda: 0.5, "feedline": lambda: 0.25}, budget=3)
    >>> found
    {'torch': [0.5, 0.5, 0.5, 0.5], 'feedline': [0.25, 0.25, 0.25, 0.25]}
    """
    warm = {side: run[side]() for side in run}  # memory, files, persistent workers
    times = max(1, math.ceil(SHORTEST / max(max(warm.values()), 1e-6)))
    found: dict[str, list[float]] = {side: [] for side in run}
    spent, pairs = 0.0, 0
    while pairs < fewest or (pairs < most and spent * (pairs + 1) / pairs <= budget):
        for side in list(run) if pairs % 2 == 0 else reversed(list(run)):
            gc.collect()
            took = sum(run[side]() for _ in range(times))
            found[side].append(took / times)
            spent += took
        pairs += 1
    return found
