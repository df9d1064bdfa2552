"""From making the loader to holding its first batch, in a new process: what does starting workers cost?

The libraries themselves are imported before the clock starts; a spawned worker imports what it needs again. In one case
a sample takes 5 ms, so that the batch itself takes longer than the start: do the workers make it together?
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, serve


class Rows:
    def __init__(self, wait: float) -> None:
        self.wait = wait
        self.rows = np.random.default_rng(0).random((10_000, 32), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> np.ndarray:
        if self.wait:
            time.sleep(self.wait)
        row: np.ndarray = self.rows[index]
        return row


def time_first(make: Callable[..., Any], workers: int, method: str, wait: float) -> Samples:
    dataset = Rows(wait)
    started = time.perf_counter()
    batches = iter(make(dataset, batch_size=64, num_workers=workers, multiprocessing_context=method))
    shape = next(batches).shape
    elapsed = time.perf_counter() - started
    if tuple(shape) != (64, 32):
        raise RuntimeError(f"a batch of {shape}")
    yield {"seconds": elapsed}


def with_feedline(workers: int, method: str, wait: float = 0.0) -> Samples:
    from feedline import DataLoader

    return time_first(DataLoader, workers, method, wait)


def with_torch(workers: int, method: str, wait: float = 0.0) -> Samples:
    from torch.utils.data import DataLoader

    return time_first(DataLoader, workers, method, wait)


WORKLOAD = Workload(
    name="first_batch",
    metrics={"seconds": "less"},
    cases=[
        Case("fork, 2 workers", {"workers": 2, "method": "fork"}, in_quick=False),
        Case("fork, 8 workers", {"workers": 8, "method": "fork"}, in_quick=False),
        Case("spawn, 2 workers", {"workers": 2, "method": "spawn"}, in_quick=False),
        Case("spawn, 8 workers", {"workers": 8, "method": "spawn"}, targets={"torch": 8}),
        Case("5 ms a sample, fork, 4 workers", {"workers": 4, "method": "fork", "wait": 0.005}, targets={"torch": 3}),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    fresh=True,
    repeats=3,
    quick_repeats=1,
)

if __name__ == "__main__":
    serve(WORKLOAD)
