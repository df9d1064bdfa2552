"""The first batch of tensors from spawned workers, which all need torch: `feedline.torch` against torch's loader."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.utils.data

from harness import Case, Samples, Workload, serve


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.rows = torch.rand(10_000, 32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


def time_first(loader_class: Any, workers: int) -> Samples:
    dataset = Rows()
    started = time.perf_counter()
    batches = iter(loader_class(dataset, batch_size=64, num_workers=workers, multiprocessing_context="spawn"))
    shape = next(batches).shape
    elapsed = time.perf_counter() - started
    if tuple(shape) != (64, 32):
        raise RuntimeError(f"a batch of {shape}")
    yield {"seconds": elapsed}


def with_feedline(workers: int) -> Samples:
    from feedline.torch import DataLoader

    return time_first(DataLoader, workers)


def with_torch(workers: int) -> Samples:
    return time_first(torch.utils.data.DataLoader, workers)


WORKLOAD = Workload(
    name="torch_first_batch",
    metrics={"seconds": "less"},
    cases=[Case("spawn, 8 workers", {"workers": 8}, targets={"torch": 1.5})],
    sides={"feedline": with_feedline, "torch": with_torch},
    fresh=True,
    torch_in_all=True,
    repeats=3,
    quick_repeats=1,
)

if __name__ == "__main__":
    serve(WORKLOAD)
