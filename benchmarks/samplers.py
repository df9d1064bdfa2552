"""Samplers of 10 million items: from weights, labels or lengths to the first batch, and a batch after that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, serve

ITEMS, BATCH, BATCHES = 10_000_000, 64, 2_000
DRAWN = ITEMS // 10
NONE = {"torch": "skipped: torch has none"}


def measure(make: Callable[[], Iterator[Any]]) -> Samples:
    while True:
        started = time.perf_counter()
        batches = make()
        next(batches)
        ready = time.perf_counter()
        count = sum(1 for _ in islice(batches, BATCHES))
        later = time.perf_counter() - ready
        yield {"set-up s": ready - started, "batch µs": 1e6 * later / count}


def with_feedline(kind: str, **options: Any) -> Samples:
    from feedline import BatchSampler, BucketBatchSampler, RandomSampler, StratifiedBatchSampler, WeightedRandomSampler

    rng = np.random.default_rng(0)
    if kind == "weighted":
        weights = rng.random(ITEMS)
        return measure(lambda: iter(BatchSampler(WeightedRandomSampler(weights, DRAWN, **options), BATCH)))
    if kind == "stratified":
        labels = rng.choice(10, ITEMS, p=[0.5, 0.2, 0.1, 0.1, 0.05, 0.02, 0.01, 0.01, 0.005, 0.005])
        return measure(lambda: iter(StratifiedBatchSampler(labels, BATCH, **options)))
    if kind == "buckets":
        lengths = rng.lognormal(5, 1, ITEMS).astype(np.int64)
        return measure(lambda: iter(BucketBatchSampler(lengths, too_long="drop", **options)))
    return measure(lambda: iter(BatchSampler(RandomSampler(ITEMS), BATCH)))


def with_torch(kind: str, **options: Any) -> Samples:
    from torch.utils.data import BatchSampler, RandomSampler, WeightedRandomSampler

    if kind == "weighted":
        weights = np.random.default_rng(0).random(ITEMS)
        return measure(lambda: iter(BatchSampler(WeightedRandomSampler(weights, DRAWN, **options), BATCH, False)))
    return measure(lambda: iter(BatchSampler(RandomSampler(range(ITEMS)), BATCH, False)))


WORKLOAD = Workload(
    name="samplers",
    metrics={"set-up s": "less", "batch µs": "less"},
    cases=[
        Case("shuffle", {"kind": "shuffle"}, in_quick=False),
        Case("weighted", {"kind": "weighted", "replacement": True}),
        Case("weighted, each once", {"kind": "weighted", "replacement": False}, in_quick=False),
        Case("stratified", {"kind": "stratified"}, skips=NONE),
        Case("stratified by chance", {"kind": "stratified", "share": "at_least_one"}, skips=NONE, in_quick=False),
        Case("buckets of 64", {"kind": "buckets", "batch_size": BATCH}, limits={"set-up s": 5}, skips=NONE),
        Case("buckets of 16,384 tokens", {"kind": "buckets", "max_tokens": 1 << 14}, skips=NONE, in_quick=False),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    repeats=3,
    quick_repeats=1,
)

if __name__ == "__main__":
    serve(WORKLOAD)
