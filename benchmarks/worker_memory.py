"""Memory of the workers one gets for "spawn", once all of them have made batches of a NumPy dataset.

"MB" is what a worker has to itself (USS). A library may serve "spawn" by forking from a clean server, which moves
memory out of that number; "MB with helpers" does not let it: all started processes together (PSS), per worker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, serve

BATCH, AT_LEAST, AT_MOST = 64, 8, 400


class Rows:
    """Each sample also says which process read it, so that the workers are known whatever the library."""

    def __init__(self) -> None:
        self.rows = np.random.default_rng(0).random((BATCH * AT_MOST, 32), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        time.sleep(0.0001)  # long enough that one worker cannot take every batch
        return self.rows[index], os.getpid()


def weigh(make: Callable[..., Any], workers: int) -> Samples:
    batches = iter(make(Rows(), batch_size=BATCH, num_workers=workers, multiprocessing_context="spawn"))
    pids: set[int] = set()
    for number, (_, seen) in enumerate(islice(batches, AT_MOST)):
        pids.update(int(pid) for pid in seen)
        if number >= AT_LEAST and len(pids) == workers:
            break
    if len(pids) != workers:
        raise RuntimeError(f"{len(pids)} of {workers} workers took part in {AT_MOST} batches")
    own = float(np.median([kilobytes(pid, "Private_") for pid in pids]))
    together = sum(kilobytes(pid, "Pss:") for pid in descendants(os.getpid()))
    yield {"MB": own / 1e3, "MB with helpers": together / workers / 1e3}


def kilobytes(pid: int, field: str) -> int:
    """Private_ adds up to USS, the pages no other process maps; Pss counts shared pages by their share (Linux)."""
    with open(f"/proc/{pid}/smaps_rollup") as facts:
        return sum(int(line.split()[1]) for line in facts if line.startswith(field))


def descendants(pid: int) -> list[int]:
    """Workers and whatever else the library started: a server they are forked from, a resource tracker."""
    with open(f"/proc/{pid}/task/{pid}/children") as facts:
        children = [int(child) for child in facts.read().split()]
    return children + [below for child in children for below in descendants(child)]


def with_feedline(workers: int) -> Samples:
    from feedline import DataLoader

    return weigh(DataLoader, workers)


def with_torch(workers: int) -> Samples:
    from torch.utils.data import DataLoader

    return weigh(DataLoader, workers)


WORKLOAD = Workload(
    name="worker_memory",
    metrics={"MB": "less", "MB with helpers": "less"},
    cases=[Case("spawn, per worker", {"workers": 2}, targets={"torch": 4})],
    sides={"feedline": with_feedline, "torch": with_torch},
    fresh=True,
    repeats=3,
    quick_repeats=1,
)

if __name__ == "__main__":
    serve(WORKLOAD)
