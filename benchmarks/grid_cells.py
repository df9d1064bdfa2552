"""What grid.py measures: kinds of samples, and the cells, each one way of loading them.

Takes: names of kinds, numbers of workers. Gives: `KINDS`, `cells`, `loader_of` (one side's loader of a cell).
Promises: both sides get the same dataset, of the same class, and the same options.
Not its job: measuring (grid), the page and the picture (docs/measured_grid.py).

Left out, for a run of a quarter of an hour: epochs of over 400 MB (they measure the machine's memory) or of over
4,000 samples that compute; the core's persistent and spawned workers and four of them (the same code as in torch's
front); spawned workers but for short epochs of three kinds (torch takes seconds to start them, which hides all else).
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.utils.data

import feedline
import feedline.torch
from check_cells import Made

BATCH_SIZES, LENGTHS, WORKERS = (1, 16, 128), (25, 250), (0, 2, 4)
LARGEST, COMPUTED = 400 << 20, 4000
"""Bytes of an epoch, and samples of one that computes."""
SPAWNED = ("array", "picture", "text")
FRONT, CORE = "feedline.torch", "feedline"

VECTORS = np.random.default_rng(1).random((512, 96), np.float32)
PICTURES = np.random.default_rng(2).integers(0, 255, (64, 3, 88, 88), np.uint8)
LARGE = torch.from_numpy(np.random.default_rng(3).random((16, 3, 176, 176), np.float32))
TENSORS = torch.from_numpy(VECTORS)
WORDS = [f"the text of sample {number} is {'very ' * (number % 7)}short" for number in range(512)]


def numbers(index: int) -> Any:
    return index, index + 0.5, float(index), index * 2, 1.0


def array(index: int) -> Any:
    return VECTORS[index % 512], index


def tensor(index: int) -> Any:
    return TENSORS[index % 512], index


def picture(index: int) -> Any:
    return PICTURES[index % 64], index % 10


def large(index: int) -> Any:
    return LARGE[index % 16], index % 10


def text(index: int) -> Any:
    return WORDS[index % 512]


def tokens(index: int) -> Any:
    return TENSORS[index % 512, : 16 + index % 80]


def padded(samples: list[torch.Tensor]) -> Any:
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def fields(index: int) -> dict[str, Any]:
    row = VECTORS[index % 512]
    return {"id": index, "x": row[:8], "y": row[8:24], "weight": float(row[0]), "flag": index % 2 == 0, "name": "a"}


def work(index: int) -> int:
    total = 0
    for number in range(9000):
        total += number ^ index
    return total


def as_given(samples: list[Any]) -> Any:
    return samples


@dataclass(frozen=True)
class Kind:
    """Samples of one kind."""

    title: str
    make: Callable[[int], Any]
    size: int
    collate_fn: Callable[[Any], Any] | None = None
    core: bool = True
    """Can feedline's core load it, too?"""


KINDS = {
    "numbers": Kind("5 numbers", numbers, 40),
    "text": Kind("text, collate_fn keeps it", text, 40, as_given),
    "array": Kind("array of 96 floats, label", array, 400),
    "tensor": Kind("tensor of 96 floats, label", tensor, 400, core=False),
    "dict": Kind("dict of 6 fields", fields, 120),
    "tokens": Kind("tokens, collate_fn pads", tokens, 220, padded, core=False),
    "picture": Kind("3×88×88 bytes, label", picture, 23_232),
    "large": Kind("3×176×176 floats", large, 371_712, core=False),
    "work": Kind("0.4 ms of Python", work, 8),
}


@dataclass
class Cell:
    """One way of loading, and what each side took: seconds an epoch, pair by pair."""

    kind: str
    batch_size: int
    batches: int
    workers: int
    start: str
    persistent: bool
    front: str
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"torch": [], "feedline": []})
    noise: float | None = None
    """What something else used of the machine meanwhile."""

    @property
    def ratio(self) -> float:
        """Torch's time over ours, the median of the pairs."""
        pairs = zip(self.seconds["torch"], self.seconds["feedline"], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    def __str__(self) -> str:
        workers = f"{self.workers} workers ({self.start})" if self.workers else "no workers"
        kept = ", persistent" if self.persistent else ""
        return (
            f"{KINDS[self.kind].title}; batch {self.batch_size}, {self.batches} batches, {workers}{kept}, {self.front}"
        )


def cells(kinds: Sequence[str] = tuple(KINDS), workers: Sequence[int] = WORKERS) -> Iterator[Cell]:
    """Both fronts without workers and with two; persistent workers, spawned ones and four of them in torch's front."""
    for name, size, batches, count in itertools.product(kinds, BATCH_SIZES, LENGTHS, workers):
        kind = KINDS[name]
        if kind.size * size * batches > LARGEST or (name == "work" and size * batches > COMPUTED):
            continue
        for front in (FRONT, CORE) if kind.core and count in (0, 2) else (FRONT,):
            yield Cell(name, size, batches, count, "fork", False, front)
        if count == 2:
            yield Cell(name, size, batches, count, "fork", True, FRONT)
            if name in SPAWNED and size == 16 and batches == min(LENGTHS):
                yield Cell(name, size, batches, count, "spawn", False, FRONT)


def loader_of(cell: Cell, side: str) -> Any:
    """One side's loader."""
    kind = KINDS[cell.kind]
    data = Made(cell.batch_size * cell.batches, kind.make)
    options: dict[str, Any] = {"batch_size": cell.batch_size, "shuffle": True, "num_workers": cell.workers}
    if kind.collate_fn is not None:
        options["collate_fn"] = kind.collate_fn
    if cell.workers:
        options |= {"multiprocessing_context": cell.start, "persistent_workers": cell.persistent}
    if side == "torch":
        return torch.utils.data.DataLoader(data, **options)
    return (feedline.torch if cell.front == FRONT else feedline).DataLoader(data, **options)
