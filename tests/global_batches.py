"""Batches that several ranks make together, for tests of every front: the ranks are one after the other in this one.

Takes: a function that makes a loader with `global_batch_size`. Gives: what the ranks had, put together again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from shared_streams import Keeping, Reordered, Stream, as_rank, element, part, plain

from feedline import Dataset

Ranks = list[tuple[int, int]]
"""How many ranks there are, for how many steps: one after the other."""


class Augmented(Dataset[Any]):
    """Sample i, and what is drawn for it."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return element(index)


DATA: list[Any] = [Augmented, Stream, Reordered, Keeping]


def weighted(loader: Any, steps: int) -> list[tuple[Any, float]]:
    """Batches and their weights."""
    batches = iter(loader)
    return [(plain([next(batches)])[0], loader.weight) for _ in range(steps)]


def together(make: Callable[[], Any], runs: Ranks) -> list[Any]:
    """The global batches of a run whose number of ranks changes: each goes on from the state of any rank before."""
    whole: list[Any] = []
    state: Any = None
    for run, (ranks, steps) in enumerate(runs):
        shares = [weighted_part(make(), rank, ranks, state, steps) for rank in range(ranks)]
        for step in range(steps):
            rows = [shares[rank][0][step] for rank in range(ranks)]
            assert abs(sum(weight for _, weight in rows) - ranks) < 1e-9
            whole.append(joined([batch for batch, weight in rows if weight]))
        states = [state for _, state in shares]
        state = states[run % ranks]
    return whole


def weighted_part(loader: Any, rank: int, ranks: int, state: Any, steps: int) -> tuple[list[tuple[Any, float]], Any]:
    with as_rank(rank, ranks), loader:
        if state is not None:
            loader.load_state_dict(state)
        return weighted(loader, steps), loader.state_dict()


def joined(shares: list[Any]) -> Any:
    """The leaves of a batch, from those of its shares: row k is row k // R of rank k mod R."""
    rows, ranks = sum(len(share[0]) for share in shares), len(shares)
    return [[shares[row % ranks][leaf][row // ranks] for row in range(rows)] for leaf in range(len(shares[0]))]


def alone(make: Callable[[], Any]) -> list[Any]:
    """What one process has."""
    return part(make(), 0, 1)[0]


def exact(batches: list[Any]) -> list[Any]:
    """The numbers of the samples, and what feedline.rng() drew for them."""
    return [batch[:2] for batch in batches]


def first_draws(batches: list[Any]) -> list[float]:
    """What the first sample of each batch drew from numpy.random."""
    return [float(np.asarray(batch[2])[0]) for batch in batches]
