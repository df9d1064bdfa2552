"""One sample in a hundred takes 200 times as long as the others: how long does everybody wait for it?

A sample waits 1 ms, a straggler 200 ms; nothing is computed, so 4 workers pay on any number of cores. torch is
measured in order, as the batches are wanted, and as they come (`in_order=False`), its remedy against stragglers.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve

BATCHES, BATCH, WORKERS = 40, 64, 4
BASE, TIMES, ONE_IN = 0.001, 200, 100


class Stragglers:
    def __init__(self) -> None:
        self.slow = np.random.default_rng(0).random(BATCHES * BATCH) < 1 / ONE_IN

    def __len__(self) -> int:
        return len(self.slow)

    def __getitem__(self, index: int) -> np.ndarray:
        time.sleep(BASE * TIMES if self.slow[index] else BASE)
        return np.full(32, index, np.float32)


OPTIONS: dict[str, Any] = {"batch_size": BATCH, "num_workers": WORKERS, "persistent_workers": True}


def with_feedline() -> Samples:
    from feedline import DataLoader

    with DataLoader(Stragglers(), **OPTIONS) as loader:
        yield from epochs(loader, BATCHES * BATCH)


def with_torch() -> Samples:
    from torch.utils.data import DataLoader

    yield from epochs(DataLoader(Stragglers(), **OPTIONS), BATCHES * BATCH)


def with_torch_as_they_come() -> Samples:
    from torch.utils.data import DataLoader

    yield from epochs(DataLoader(Stragglers(), in_order=False, **OPTIONS), BATCHES * BATCH)


WORKLOAD = Workload(
    name="stragglers",
    metrics={"samples/s": "more"},
    cases=[Case("1 % take 200 times as long, 4 workers", targets={"torch": 1.8, "torch as they come": 1})],
    sides={"feedline": with_feedline, "torch": with_torch, "torch as they come": with_torch_as_they_come},
    repeats=3,
)

if __name__ == "__main__":
    serve(WORKLOAD)
