"""Samples that wait 5 ms each (a network, a disk far away) and cost nothing else: how many come a second?

feedline and torch have 8 workers; feedline's read `in_flight / 8` samples at a time each. Grain's and SPDL's pools have
as many threads (or coroutines) as feedline has in all, in one process, as their guides show it, and run on from epoch
to epoch. Where one is not installed, its side is left out: `pip install grain spdl`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve

LENGTH, BATCH, WORKERS, WAIT = 2048, 32, 8, 0.005
SAMPLE = np.zeros(16, np.float32)


class Waiting:
    """Blocks, as most clients do."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> np.ndarray:
        time.sleep(WAIT)
        return SAMPLE


class Awaited(Waiting):
    """The same for those who can await it."""

    async def __getitem__(self, index: int) -> np.ndarray:  # type: ignore[override]
        await asyncio.sleep(WAIT)
        return SAMPLE


def with_feedline(in_flight: int, awaited: bool) -> Samples:
    from feedline import DataLoader

    data, options = Awaited() if awaited else Waiting(), {"num_workers": WORKERS, "persistent_workers": True}
    with DataLoader(data, BATCH, fetch_threads=in_flight // WORKERS, **options) as loader:
        yield from epochs(loader, LENGTH)


def with_torch(in_flight: int, awaited: bool) -> Samples:
    from torch.utils.data import DataLoader

    yield from epochs(DataLoader(Waiting(), BATCH, num_workers=WORKERS, persistent_workers=True), LENGTH)


class Parts:
    """An endless iterator, an epoch's worth at a time."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.batches, LENGTH // BATCH)


def with_grain(in_flight: int, awaited: bool) -> Samples:
    import grain.python as grain

    options = grain.ReadOptions(num_threads=in_flight, prefetch_buffer_size=2 * in_flight)
    batches = grain.MapDataset.source(Waiting()).repeat().to_iter_dataset(options).batch(BATCH)
    yield from epochs(Parts(iter(batches)), LENGTH)


def with_spdl(in_flight: int, awaited: bool) -> Samples:
    from spdl.pipeline import PipelineBuilder

    data = Awaited() if awaited else Waiting()

    async def read(index: int) -> np.ndarray:
        return await data[index]  # type: ignore[misc]

    builder = PipelineBuilder().add_source(itertools.cycle(range(LENGTH)))
    builder.pipe(read if awaited else data.__getitem__, concurrency=in_flight).aggregate(BATCH).pipe(np.stack)
    pipeline = builder.add_sink(2 * WORKERS).build(num_threads=4 if awaited else in_flight + 2)
    with pipeline.auto_stop():
        yield from epochs(Parts(pipeline.get_iterator(timeout=60)), LENGTH)


MISSING = {name: "not installed" for name in ("grain", "spdl") if find_spec(name) is None}
CASES = [
    Case(
        "5 ms, threads, 256 in flight",
        {"in_flight": 256, "awaited": False},
        targets={"torch": 10, "grain": 1, "spdl": 1},
        skips=MISSING,
    ),
    Case(
        "5 ms, async, 256 in flight",
        {"in_flight": 256, "awaited": True},
        targets={"torch": 10, "spdl": 1},
        skips={**MISSING, "grain": "has no coroutines"},
    ),
    Case(
        "5 ms, threads, 32 in flight",
        {"in_flight": 32, "awaited": False},
        targets={"grain": 1, "spdl": 1},
        skips={**MISSING, "torch": "reads one at a time"},
        in_quick=False,
    ),
]
WORKLOAD = Workload(
    name="latency",
    metrics={"samples/s": "more"},
    cases=CASES,
    sides={"feedline": with_feedline, "torch": with_torch, "grain": with_grain, "spdl": with_spdl},
    repeats=3,
)

if __name__ == "__main__":
    serve(WORKLOAD)
