"""From an epoch's last batch to the next one's first, with persistent workers: does it take longer than any other?

The time of a batch is from having the batch before it to having it, the training step included. A sample waits 1 to 9
ms and computes nothing, so two workers give a batch of 8 every 20 ms on any machine, and do not fall into step.
"""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, serve

BATCHES, BATCH, WORKERS = 12, 8, 2
EPOCHS = 6


class Waiting:
    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, index: int) -> np.ndarray:
        time.sleep(0.001 + 0.008 * (index * 7919 % 97) / 96)
        return np.full(64, index, np.float32)


def boundaries(loader: Any, step: float) -> Samples:
    """Epochs without end; a measurement is of several, and of the boundaries between them."""
    had = _epoch(loader, step)[-1]
    while True:
        first, others = [], []
        for _ in range(EPOCHS):
            moments = [had, *_epoch(loader, step)]
            times = [after - before for before, after in pairwise(moments)]
            first.append(times[0])
            others += times[1:]
            had = moments[-1]
        yield {"first / median": median(first) / median(others), "first ms": 1000 * median(first)}


def _epoch(loader: Any, step: float) -> list[float]:
    """When each batch was there."""
    moments: list[float] = []
    for _ in loader:
        moments.append(time.perf_counter())
        time.sleep(step)
    if len(moments) != BATCHES:
        raise RuntimeError(f"an epoch of {len(moments)} batches")
    return moments


def _options(**others: Any) -> dict[str, Any]:
    return {"batch_size": BATCH, "shuffle": True, "num_workers": WORKERS, "persistent_workers": True, **others}


def with_feedline(step: float) -> Samples:
    from feedline import DataLoader

    return boundaries(DataLoader(Waiting(), **_options()), step)


def with_torch(step: float) -> Samples:
    from torch.utils.data import DataLoader

    return boundaries(DataLoader(Waiting(), **_options()), step)


WORKLOAD = Workload(
    name="epoch_boundary",
    metrics={"first / median": "less", "first ms": "less"},
    cases=[
        Case("the loader is slower (no step)", {"step": 0.0}, limits={"first / median": 2}),
        Case("as fast as the loop (20 ms a step)", {"step": 0.02}, limits={"first / median": 2}, in_quick=False),
        Case("faster (40 ms a step)", {"step": 0.04}, limits={"first / median": 2}),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    repeats=3,
    quick_repeats=1,
)

if __name__ == "__main__":
    serve(WORKLOAD)
