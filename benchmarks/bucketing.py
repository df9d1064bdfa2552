"""How much of a batch is padding, and how often two samples of a batch meet again in the next epoch: four ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, serve

BATCH = 64
POOL = 100  # batches that are sorted together
NOISE = 0.15  # in the logarithm of a length: what BucketBatchSampler's max_padding is by default

Batches = list[Any]


def measure(items: int, sigma: float, batches_of: Callable[[Any, int], Batches]) -> Samples:
    """Log-normal lengths; two epochs."""
    lengths = np.random.default_rng(0).lognormal(5, sigma, items).astype(np.int64) + 1
    while True:
        first, second = batches_of(lengths, 1), batches_of(lengths, 2)
        yield {"padding": padding(lengths, first), "meet again": meet_again(items, first, second)}


def padding(lengths: Any, batches: Batches) -> float:
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - sum(int(lengths[batch].sum()) for batch in batches) / padded


def meet_again(items: int, first: Batches, second: Batches) -> float:
    """The share of pairs in a batch that are together in the next epoch's batches, too."""
    number = np.empty(items, np.int64)
    for at, batch in enumerate(second):
        number[batch] = at
    pairs = again = 0
    for batch in first:
        counts = np.unique(number[batch], return_counts=True)[1]
        pairs += len(batch) * (len(batch) - 1)
        again += int((counts * (counts - 1)).sum())
    return again / pairs


def with_feedline(items: int, sigma: float) -> Samples:
    from feedline import BucketBatchSampler

    return measure(items, sigma, lambda lengths, seed: list(BucketBatchSampler(lengths, BATCH, seed=seed)))


def plain_shuffle(items: int, sigma: float) -> Samples:
    return measure(items, sigma, lambda lengths, seed: _cut(np.random.default_rng(seed).permutation(items)))


def sorted_pools(items: int, sigma: float) -> Samples:
    def batches(lengths: Any, seed: int) -> Batches:
        order = np.random.default_rng(seed).permutation(items)
        pools = [order[first : first + POOL * BATCH] for first in range(0, items, POOL * BATCH)]
        return [batch for pool in pools for batch in _cut(pool[np.argsort(lengths[pool])])]

    return measure(items, sigma, batches)


def noisy_sort(items: int, sigma: float) -> Samples:
    def batches(lengths: Any, seed: int) -> Batches:
        noise = np.random.default_rng(seed).uniform(0, NOISE, items)
        return _cut(np.argsort(np.log(lengths) + noise))

    return measure(items, sigma, batches)


def _cut(order: Any) -> Batches:
    return [order[first : first + BATCH] for first in range(0, len(order), BATCH)]


WORKLOAD = Workload(
    name="bucketing",
    metrics={"padding": "less", "meet again": "less"},
    cases=[
        Case("100,000, log-normal σ = 0.5", {"items": 100_000, "sigma": 0.5}, targets={"plain shuffle": 5}),
        Case("100,000, log-normal σ = 1", {"items": 100_000, "sigma": 1.0}, targets={"plain shuffle": 5}),
        Case("3,000, log-normal σ = 0.5", {"items": 3_000, "sigma": 0.5}, targets={"plain shuffle": 5}),
    ],
    sides={
        "feedline": with_feedline,
        "plain shuffle": plain_shuffle,
        "sorted pools": sorted_pools,
        "noisy sort": noisy_sort,
    },
    repeats=1,
    quick_repeats=1,
)

if __name__ == "__main__":
    serve(WORKLOAD)
