"""torch.utils.data as its reference recommends: https://docs.pytorch.org/docs/stable/data.html

Tensors in a TensorDataset where they fit in memory, worker processes that persist, the default prefetching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from peers.measure import Batches, endless
from peers.workloads import Large, Pictures, Texts, Waiting, columns, folder_of_pictures, padded


def collated(texts: list[Any]) -> torch.Tensor:
    return torch.from_numpy(padded(texts))


OPTIONS: dict[str, dict[str, Any]] = {
    "memory": {"batch_size": 256},
    "large": {"batch_size": 64, "num_workers": 2},
    "jpeg": {"batch_size": 32, "num_workers": 2},
    "text": {"batch_size": 64, "collate_fn": collated},
    "text-2": {"batch_size": 64, "collate_fn": collated, "num_workers": 2},
    "wait-8": {"batch_size": 32, "num_workers": 8},
    "wait-128": {"batch_size": 32, "num_workers": 8},
}

DATASETS: dict[str, Callable[[], Any]] = {
    "memory": lambda: TensorDataset(*map(torch.from_numpy, columns())),
    "large": Large,
    "jpeg": lambda: Pictures(folder_of_pictures()),
    "text": Texts,
    "text-2": Texts,
    "wait-8": Waiting,
    "wait-128": Waiting,
}


def options(workload: str) -> dict[str, Any]:
    """For every loader that takes torch's options."""
    found = {"shuffle": True, "drop_last": True, **OPTIONS[workload]}
    return {**found, "persistent_workers": bool(found.get("num_workers"))}


def batches(workload: str) -> Batches:
    return endless(DataLoader(DATASETS[workload](), **options(workload)))


def resume() -> Iterator[float]:
    raise NotImplementedError("torch's loader has no state")
