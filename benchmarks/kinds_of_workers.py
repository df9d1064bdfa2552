"""Threads against processes: work that releases the GIL, waits, holds it, or is nothing to speak of.

"samples/s" is that of later epochs, "of a new loader" that of a first epoch of some two seconds, with the start of
workers in it.
"""

from __future__ import annotations

import hashlib
import time
from functools import partial
from typing import Any

import numpy as np

from harness import AT_LEAST, Case, Sample, Samples, Workload, serve

BLOCK = bytes(1 << 20)


class Work:
    """Samples that cost what is asked for: MB to hash, seconds to wait, loops of Python."""

    def __init__(self, count: int, hashed: int = 0, waited: float = 0.0, looped: int = 0) -> None:
        self.count = count
        self.hashed = hashed
        self.waited = waited
        self.looped = looped

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        for _ in range(self.hashed):
            hashlib.blake2b(BLOCK).digest()
        if self.waited:
            time.sleep(self.waited)
        total = 0
        for each in range(self.looped):
            total += each
        return np.full(1_000, index + total % 2, np.float32)


def measured(kind: str, workers: int, batch: int, **work: Any) -> Samples:
    from feedline import DataLoader

    def new() -> DataLoader:
        return DataLoader(Work(**work), batch, num_workers=workers, workers=kind, persistent_workers=True)

    def epoch(loader: DataLoader) -> int:
        return sum(values.shape[0] for values in loader)

    with new() as lasting:
        epoch(lasting)
        while True:
            started = time.perf_counter()
            with new() as loader:
                first = epoch(loader) / (time.perf_counter() - started)
            done, started, elapsed = 0, time.perf_counter(), 0.0
            while elapsed < AT_LEAST:
                done += epoch(lasting)
                elapsed = time.perf_counter() - started
            sample: Sample = {"samples/s": done / elapsed, "samples/s of a new loader": first}
            yield sample


WORKLOAD = Workload(
    name="kinds_of_workers",
    metrics={"samples/s": "more", "samples/s of a new loader": "more"},
    cases=[
        Case("hashing, 2 workers", {"workers": 2, "batch": 16, "count": 2048, "hashed": 1}, {}),
        Case("5 ms wait, 8 workers", {"workers": 8, "batch": 16, "count": 2048, "waited": 0.005}, {}),
        Case("Python, 2 workers", {"workers": 2, "batch": 16, "count": 1024, "looped": 60_000}, {}),
        Case("nothing, 2 workers", {"workers": 2, "batch": 16, "count": 16_384}, {}),
    ],
    sides={
        "feedline": partial(measured, "process"),
        "threads": partial(measured, "thread"),
    },
)

if __name__ == "__main__":
    serve(WORKLOAD)
