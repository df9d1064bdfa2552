"""The workloads of before_after.py, and the process that measures them with one checkout of feedline.

Takes: on the command line the folder that feedline must come from; on each line of stdin the name of a workload.
Gives: for each line one line of JSON: the seconds of the median epoch, or of the first batch.
Promises: only the public interface is used (`feedline.DataLoader`, `feedline.torch.DataLoader`, `ArrayDataset`), so
that both checkouts can run it; a process of the core front never imports torch, and the parent can import this file
without either checkout.
Not its job: whose turn it is (before_after), what the numbers mean (before_after_verdict).
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from first_batch import time_first

AT_LEAST, EPOCHS = 0.2, 3
"""A measurement lasts so many seconds, and so many epochs, after one epoch of warm-up."""

CORE, TORCH = "feedline", "feedline.torch"
Given = tuple[Any, dict[str, Any]]
"""A dataset, and the options of its loader."""


class Same:
    """The same sample every time, so that only the loader's own work is measured."""

    def __init__(self, sample: Any, length: int) -> None:
        self.sample, self.length = sample, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.sample


class Waiting:
    """Samples that wait and compute nothing; one in `one_in` waits for `slow` seconds instead."""

    def __init__(self, length: int, wait: float, slow: float = 0.0, one_in: int = 0) -> None:
        self.length, self.wait, self.slow, self.one_in = length, wait, slow, one_in

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> np.ndarray:
        is_slow = self.one_in and index % self.one_in == self.one_in // 3
        time.sleep(self.slow if is_slow else self.wait)
        return np.full(32, index, np.float32)


class First:
    """The first samples of another dataset: an epoch must be short, or a measurement takes too long."""

    def __init__(self, length: int, dataset: Any) -> None:
        self.length, self.dataset = length, dataset

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


# --- what is loaded ---


def columns() -> tuple[np.ndarray, np.ndarray]:
    """Quickly made: in_memory.py draws its numbers, which takes longer than a measurement."""
    return np.full((200_000, 32), 1, np.float32), np.full(200_000, 1)


def arrays_in_memory() -> Given:
    from feedline import ArrayDataset

    return ArrayDataset(*columns()), {"batch_size": 256, "shuffle": True}


def tensors_in_memory() -> Given:
    import torch
    from torch.utils.data import TensorDataset

    return TensorDataset(*map(torch.from_numpy, columns())), {"batch_size": 256, "shuffle": True}


def tiny_inline() -> Given:
    return Same(1.0, 6000), {"batch_size": 8}


def tiny_with_workers() -> Given:
    return Same(1.0, 6000), {"batch_size": 8, **_workers(2)}


def images() -> Given:
    return Same(np.ones((3, 224, 224), np.float32), 640), {"batch_size": 64, **_workers(2)}


def jpeg() -> Given:
    from jpeg import Pictures, folder_of_pictures

    return First(48, Pictures(folder_of_pictures())), {"batch_size": 8, "shuffle": True, **_workers(2)}


def stragglers() -> Given:
    return Waiting(256, 0.001, slow=0.05, one_in=64), {"batch_size": 16, **_workers(4)}


def latency() -> Given:
    return Waiting(192, 0.002), {"batch_size": 8, **_workers(4)}


def prefetch_next_epoch() -> Given:
    return Same(1.0, 80), {"batch_size": 8, "shuffle": True, **_workers(2)}


def text() -> Given:
    from peers.workloads import Texts, padded

    return Texts(), {"batch_size": 64, "shuffle": True, "collate_fn": padded}


def _workers(count: int) -> dict[str, Any]:
    return {"num_workers": count, "persistent_workers": True}


# --- what is measured ---


def seconds_of_epoch(front: str, given: Callable[[], Given]) -> float:
    """The median epoch, its workers started and warm."""
    dataset, options = given()
    with _loader_class(front)(dataset, **options) as loader:
        batches, times = _count(loader), list[float]()
        while sum(times) < AT_LEAST or len(times) < EPOCHS:
            started = time.perf_counter()
            seen = _count(loader)
            times.append(time.perf_counter() - started)
            if seen != batches:
                raise RuntimeError(f"an epoch of {seen} batches after one of {batches}")
        return median(times)


def _count(loader: Any) -> int:
    return sum(1 for _ in loader)


def seconds_to_first_batch(front: str, method: str) -> float:
    """From making the loader to holding its first batch. It happens once in a process."""
    return next(time_first(_loader_class(front), 2, method, 0.0))["seconds"]


def _loader_class(front: str) -> Any:
    return importlib.import_module(front).DataLoader


@dataclass(frozen=True)
class Workload:
    """A name for `--only`, a title for the table, and the function that gives seconds.

    `fresh`: each measurement needs a process of its own.
    """

    name: str
    title: str
    front: str
    measure: Callable[[], float]
    fresh: bool = False


def _epochs(name: str, title: str, core: Callable[[], Given], torch: Callable[[], Given] | None) -> list[Workload]:
    """The same in both fronts, or in the core's alone."""
    found = [Workload(name, title, CORE, lambda: seconds_of_epoch(CORE, core))]
    if torch is not None:
        found.append(Workload(f"torch_{name}", f"{title}, torch", TORCH, lambda: seconds_of_epoch(TORCH, torch)))
    return found


def _first_batch(front: str, method: str) -> Workload:
    name, title = f"first_batch_{method}", f"first batch of 2 workers, {method}"
    if front == TORCH:
        name, title = f"torch_{name}", f"{title}, torch"
    return Workload(name, title, front, lambda: seconds_to_first_batch(front, method), fresh=True)


# What takes longest in its samples is measured in one front: the fronts differ in what they do with a batch.
_ALL = [
    *_epochs("in_memory", "200,000×32 in memory, no workers", arrays_in_memory, tensors_in_memory),
    *_epochs("tiny_0_workers", "8 scalars a batch, no workers", tiny_inline, tiny_inline),
    *_epochs("tiny_2_workers", "8 scalars a batch, 2 workers", tiny_with_workers, tiny_with_workers),
    *_epochs("text", "texts, quick collate_fn, no workers", text, text),
    *_epochs("images", "3×224×224 float32, 2 workers", images, images),
    *_epochs(
        "prefetch_next_epoch", "epochs of 10 batches, 2 persistent workers", prefetch_next_epoch, prefetch_next_epoch
    ),
    *_epochs("jpeg", "JPEG 500×375 to 224, Pillow, 2 workers", jpeg, None),
    *_epochs("stragglers", "1 sample in 64 waits 50 times as long, 4 workers", stragglers, None),
    *_epochs("latency", "2 ms of waiting a sample, 4 workers", latency, None),
    *(_first_batch(front, method) for front in (CORE, TORCH) for method in ("fork", "spawn")),
]
WORKLOADS = {workload.name: workload for workload in _ALL}


def serve(source: Path) -> None:
    """The child process: one measurement for each line on stdin."""
    for line in sys.stdin:
        workload = WORKLOADS[line.strip()]
        seconds = workload.measure()
        _check_origin(source)
        if workload.front == CORE and "torch" in sys.modules:
            raise RuntimeError(f"{workload.name} has imported torch")
        print(json.dumps({"seconds": seconds}), flush=True)


def _check_origin(source: Path) -> None:
    """An installed feedline must not be measured in place of a checkout's."""
    found = Path(str(sys.modules["feedline"].__file__)).resolve()
    if not found.is_relative_to(source.resolve()):
        raise RuntimeError(f"feedline came from {found}, not from {source}")


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
