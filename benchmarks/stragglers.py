"""One sample in a hundred takes 200 times as long as the others: how long does everybody wait for it?

A sample waits 1 ms, a straggler 200 ms; nothing is computed, so 4 workers pay on any number of cores. torch is
measured in order, as the batches are wanted, and as they come (`in_order=False`), its remedy against stragglers. With
`fetch_threads` a worker goes on with other samples while one is slow.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve

SAMPLES, WORKERS = 2560, 4
BASE, TIMES, ONE_IN = 0.001, 200, 100


class Stragglers:
    def __init__(self) -> None:
        self.slow = np.random.default_rng(0).random(SAMPLES) < 1 / ONE_IN

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> np.ndarray:
        time.sleep(BASE * TIMES if self.slow[index] else BASE)
        return np.full(32, index, np.float32)


OPTIONS: dict[str, Any] = {"num_workers": WORKERS, "persistent_workers": True}


def with_feedline(batch: int, **more: Any) -> Samples:
    from feedline import DataLoader

    with DataLoader(Stragglers(), batch, **OPTIONS, **more) as loader:
        yield from epochs(loader, SAMPLES)


def with_torch(batch: int, **ours: Any) -> Samples:
    from torch.utils.data import DataLoader

    yield from epochs(DataLoader(Stragglers(), batch, **OPTIONS), SAMPLES)


def with_torch_as_they_come(batch: int, **ours: Any) -> Samples:
    from torch.utils.data import DataLoader

    yield from epochs(DataLoader(Stragglers(), batch, in_order=False, **OPTIONS), SAMPLES)


TARGETS = {"torch": 1.8, "torch as they come": 1.0}
WORKLOAD = Workload(
    name="stragglers",
    metrics={"samples/s": "more"},
    cases=[
        Case("batches of 64", {"batch": 64}, targets=TARGETS),
        Case("batches of 32", {"batch": 32}, targets=TARGETS, in_quick=False),
        Case("batches of 64, fetch_threads=4", {"batch": 64, "fetch_threads": 4}, targets=TARGETS),
    ],
    sides={"feedline": with_feedline, "torch": with_torch, "torch as they come": with_torch_as_they_come},
    repeats=3,
)

if __name__ == "__main__":
    serve(WORKLOAD)
