"""The first index of a shuffle, and the most memory it took to get it, each in a new process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from harness import Case, Samples, Workload, serve

RESOLUTION = 0.25  # MB: the kernel counts pages in bunches, so a smaller peak is not a number to trust


def peak_of(first: Callable[[], int]) -> Samples:
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak that imports made
    before = memory("VmRSS")
    started = time.perf_counter()
    first()
    elapsed = time.perf_counter() - started
    yield {"seconds": elapsed, "peak MB": max(RESOLUTION, (memory("VmHWM") - before) / 1e6)}


def memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def with_feedline(length: int) -> Samples:
    from feedline import RandomSampler

    return peak_of(lambda: int(RandomSampler(length, seed=0).order(0, 0)[0:1][0]))


def with_torch(length: int) -> Samples:
    from torch.utils.data import RandomSampler

    return peak_of(lambda: next(iter(RandomSampler(range(length)))))


WORKLOAD = Workload(
    name="large_shuffle",
    metrics={"seconds": "less", "peak MB": "less"},
    cases=[
        Case("100 thousand", {"length": 10**5}, in_quick=False),
        Case("10 million", {"length": 10**7}),
        Case(
            "1 billion",
            {"length": 10**9},
            limits={"seconds": 0.05, "peak MB": 5},
            skips={"torch": "skipped: about 47 GB and 5 minutes, by its 10 million × 100"},
        ),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    fresh=True,
    repeats=3,
    quick_repeats=1,
)

if __name__ == "__main__":
    serve(WORKLOAD)
