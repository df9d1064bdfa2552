"""feedline's own side: its defaults, and what its pages recommend for a workload. New options belong into `OPTIONS`.

Options that this checkout's loader does not have yet are left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from feedline import ArrayDataset, DataLoader
from feedline.sources import FilesDataset, TarStream
from peers.measure import Batches, endless, seconds_to_go_on
from peers.workloads import (
    RESUME_BATCH,
    SIDE,
    Large,
    Numbers,
    Pictures,
    Texts,
    Waiting,
    columns,
    folder_of_pictures,
    padded,
    shards,
)

OPTIONS: dict[str, dict[str, Any]] = {
    "memory": {"batch_size": 256},
    "large": {"batch_size": 64, "num_workers": 2},
    "jpeg": {"batch_size": 32, "num_workers": 2},
    "decoder": {"batch_size": 32, "num_workers": 2},
    "text": {"batch_size": 64, "collate_fn": padded},
    "text-2": {"batch_size": 64, "collate_fn": padded, "num_workers": 2},
    "wait-8": {"batch_size": 32, "num_workers": 8},
    "wait-128": {"batch_size": 32, "num_workers": 8, "fetch_threads": 16},
    "shards": {"batch_size": 64, "num_workers": 2, "shuffle": None},
}


def _pictures() -> FilesDataset:
    paths = sorted(map(str, folder_of_pictures().glob("*.jpg")))
    return FilesDataset(2 * paths, size=(SIDE, SIDE))


DATASETS: dict[str, Callable[[], Any]] = {
    "memory": lambda: ArrayDataset(*columns()),
    "large": Large,
    "jpeg": lambda: Pictures(folder_of_pictures()),
    "decoder": _pictures,
    "text": Texts,
    "text-2": Texts,
    "wait-8": Waiting,
    "wait-128": Waiting,
    "shards": lambda: TarStream(shards()),
}


def batches(workload: str, **more: Any) -> Batches:
    options = {"shuffle": True, "drop_last": True, **OPTIONS[workload], **more}
    options["persistent_workers"] = bool(options.get("num_workers"))
    known = inspect.signature(DataLoader).parameters
    loader = DataLoader(DATASETS[workload](), **{name: options[name] for name in options if name in known})
    return (batch["npy"] for batch in endless(loader)) if workload == "shards" else endless(loader)


def resume() -> Iterator[float]:
    return seconds_to_go_on(lambda: DataLoader(Numbers(), RESUME_BATCH, shuffle=True, seed=1))
