"""A grid of ordinary loading: whole epochs, torch and feedline in turns, cell by cell.

    make bench-grid                                       # about twelve minutes on two quiet cores
    python benchmarks/grid.py --quick                     # one repeat of a third of the cells: a look, not a result
    python benchmarks/grid.py --only text --workers 0 --repeats 9

Takes: kinds of samples, batch sizes, lengths of an epoch, workers. Gives: a table of the worst cells, and with --json
every measurement (docs/make_pages.py --grid makes the heat map and the page of it).
Promises: in each repeat both sides run one epoch of the same dataset, from `iter()` to the last batch, in this
process and in changing order; a ratio is torch's time over ours, the median of the pairs.
Not its job: other loaders (peers), two checkouts (before_after).
"""

from __future__ import annotations

import argparse
import datetime
import gc
import itertools
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data

import feedline
import feedline.torch
from feedline.diagnose.bench.machine import machine
from feedline.observe.terminal import show_line

BATCHES = (1, 16, 128)
LENGTHS = (25, 250)
WORKERS = (0, 2, 4)
LARGEST = 400 << 20
"""Bytes of an epoch; cells above are left out: they would measure this machine's memory for minutes."""
SHORTEST = 0.05
"""Seconds that a side takes at least in one repeat: short epochs are run several times."""


class Made(torch.utils.data.Dataset[Any]):
    """So many samples, each made by a function of its index."""

    def __init__(self, length: int, make: Callable[[int], Any]) -> None:
        self.length, self.make = length, make

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


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
    "array": Kind("an array of 96 floats and a label", array, 400),
    "tensor": Kind("a tensor of 96 floats and a label", tensor, 400, core=False),
    "picture": Kind("3×88×88 bytes", picture, 23_232),
    "large": Kind("3×176×176 floats, a tensor", large, 371_712, core=False),
    "dict": Kind("a dict of six fields", fields, 120),
    "tokens": Kind("tokens, padded by a collate_fn", tokens, 220, padded, core=False),
    "text": Kind("texts, a collate_fn that returns them", text, 40, as_given),
    "work": Kind("0.4 ms of Python", work, 8),
}


@dataclass
class Cell:
    """One way of loading, and what each side took: seconds an epoch, repeat by repeat."""

    kind: str
    batch_size: int
    batches: int
    workers: int
    start: str
    persistent: bool
    front: str
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"torch": [], "feedline": []})

    @property
    def ratio(self) -> float:
        """Torch's time over ours."""
        pairs = zip(self.seconds["torch"], self.seconds["feedline"], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    def __str__(self) -> str:
        workers = f"{self.workers} workers ({self.start})" if self.workers else "no workers"
        kept = ", persistent" if self.persistent else ""
        return (
            f"{KINDS[self.kind].title}, batch {self.batch_size}, {self.batches} batches, {workers}{kept}, {self.front}"
        )


def cells(chosen: argparse.Namespace) -> Iterator[Cell]:
    """Both fronts without workers and with two; spawn and persistent workers where starting matters."""
    for name, size, batches, workers in itertools.product(chosen.only or KINDS, BATCHES, LENGTHS, chosen.workers):
        kind = KINDS[name]
        if kind.size * size * batches > LARGEST or (name == "work" and size * batches > 4000):
            continue
        yield Cell(name, size, batches, workers, "fork", False, "feedline.torch")
        if kind.core and workers in (0, 2):
            yield Cell(name, size, batches, workers, "fork", False, "feedline")
        if workers == 2 and size == 16:
            yield Cell(name, size, batches, workers, "fork", True, "feedline.torch")
            if name in ("array", "text") and batches == LENGTHS[0]:
                yield Cell(name, size, batches, workers, "spawn", False, "feedline.torch")


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
    return (feedline.torch if cell.front == "feedline.torch" else feedline).DataLoader(data, **options)


def epoch(loader: Any) -> float:
    """Seconds from `iter()` to the last batch."""
    began = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - began


def measure(cell: Cell, repeats: int) -> None:
    """Both sides in turns."""
    loaders = {side: loader_of(cell, side) for side in cell.seconds}
    first = max(epoch(loader) for loader in loaders.values())  # warm: files, memory, persistent workers
    times = 1 if cell.workers else max(1, math.ceil(SHORTEST / max(first, 1e-6)))
    for repeat in range(repeats):
        for side in sorted(loaders, reverse=bool(repeat % 2)):
            gc.collect()
            cell.seconds[side].append(sum(epoch(loaders[side]) for _ in range(times)) / times)
    if hasattr(loaders["feedline"], "close"):
        loaders["feedline"].close()


def geometric_mean(found: list[Cell]) -> float:
    return math.exp(statistics.fmean(math.log(cell.ratio) for cell in found)) if found else math.nan


def summary(found: list[Cell]) -> str:
    """What a reader wants to know first, in Markdown."""
    rows = ["| workers | cells | geometric mean | lowest | torch is faster in |", "|---|---|---|---|---|"]
    for workers in sorted({cell.workers for cell in found}):
        some = [cell for cell in found if cell.workers == workers]
        slower = sum(cell.ratio < 1 for cell in some)
        lowest = min(cell.ratio for cell in some)
        rows.append(f"| {workers} | {len(some)} | {geometric_mean(some):.2f} | {lowest:.2f} | {slower} |")
    rows += ["", "| torch's time over ours | the ten worst cells |", "|---|---|"]
    rows += [f"| {cell.ratio:.2f} | {cell} |" for cell in sorted(found, key=lambda cell: cell.ratio)[:10]]
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="every third cell, one repeat")
    parser.add_argument("--only", nargs="*", choices=sorted(KINDS))
    parser.add_argument("--workers", nargs="*", type=int, default=list(WORKERS))
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "grid.json")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    found = list(cells(chosen))
    found = found[::3] if chosen.quick else found
    began = time.monotonic()
    for number, cell in enumerate(found, 1):
        show_line(f"{number} of {len(found)}: {cell}")
        measure(cell, 1 if chosen.quick else chosen.repeats)
    show_line("")
    print(summary(found))
    facts = {
        "date": str(datetime.date.today()),
        "machine": asdict(machine()) if hasattr(machine(), "__dataclass_fields__") else machine(),
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "python": sys.version.split()[0]},
        "seconds": round(time.monotonic() - began),
        "repeats": 1 if chosen.quick else chosen.repeats,
        "cells": [asdict(cell) for cell in found],
    }
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(facts, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"\n{len(found)} cells in {facts['seconds']} s; all of it: {chosen.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
