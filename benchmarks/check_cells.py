"""The cells of check.py, and the process that measures them with one checkout of feedline.

    python benchmarks/check_cells.py FOLDER LOADER METER CELL ...       # as check_meters starts it

Takes: the folder that feedline must come from, whose DataLoader (a front, or "torch.utils.data" for torch's own), a
meter ("instructions": only under callgrind, or "cpu"), names of cells.
Gives: on stdout one line of JSON: for "cpu" the cost of each cell; for "instructions" how many pieces of work each
cell had, in the order in which callgrind wrote its counts.
Promises: only the public interface is used, so that old checkouts can run it; what is counted is the same in each
run: the same seeds, the same number of batches, everything warm; the collector of garbage is off.
Not its job: running callgrind and reading its files (check_meters), what the numbers mean (check_verdict).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CORE, TORCH, THEIRS = "feedline", "feedline.torch", "torch.utils.data"
CALIBRATION = "calibration"
ROUNDS = 15
"""Of CPU time, of which the least is taken."""
LEAST = 0.02
"""Seconds of CPU time in a round; shorter cells are run several times."""


class Made:
    """So many samples, each made by a function of its index."""

    def __init__(self, length: int, make: Callable[[int], Any]) -> None:
        self.length, self.make = length, make

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


WORDS = [f"the text of sample {number}" for number in range(512)]
VECTORS = np.random.default_rng(1).random((512, 96), np.float32)


def text(index: int) -> str:
    return WORDS[index % 512]


def array(index: int) -> Any:
    return VECTORS[index % 512]


def leaves(index: int) -> dict[str, Any]:
    row = VECTORS[index % 512]
    return {"a": index, "b": row[:8], "c": row[8:24], "d": 0.5, "e": index % 2 == 0, "f": row, "g": 1, "h": row[:2]}


def number(index: int) -> int:
    return index


def as_given(samples: list[Any]) -> list[Any]:
    return samples


# --- the cells ---


@dataclass(frozen=True)
class Cell:
    """`make` gives a dataset of so many samples; an epoch has `batches` batches of `size`, and `epochs` are run."""

    name: str
    title: str
    front: str
    make: Callable[[int], Any]
    size: int = 32
    batches: int = 20
    epochs: int = 3
    workers: int = 0
    collate_fn: Callable[[Any], Any] | None = None

    @property
    def pieces(self) -> int:
        return self.batches * self.epochs


def made(make: Callable[[int], Any]) -> Callable[[int], Any]:
    return lambda length: Made(length, make)


def tensors(length: int) -> Any:
    rows = importlib.import_module("torch").from_numpy(VECTORS)
    return Made(length, lambda index: rows[index % 512])


def arrays_in_memory(length: int) -> Any:
    rows = np.resize(VECTORS, (length, 96))
    return importlib.import_module("feedline").ArrayDataset(rows, np.arange(length))


def tensors_in_memory(length: int) -> Any:
    torch = importlib.import_module("torch")
    rows = torch.from_numpy(np.resize(VECTORS, (length, 96)))
    return torch.utils.data.TensorDataset(rows, torch.arange(length))


def _cells() -> list[Cell]:
    found = []
    for front, mark in ((CORE, ""), (TORCH, "torch_")):
        own = tensors if front == TORCH else made(array)
        memory = tensors_in_memory if front == TORCH else arrays_in_memory
        what = "tensors" if front == TORCH else "small arrays"
        found += [
            Cell(f"{mark}texts", "32 texts, own collate_fn", front, made(text), collate_fn=as_given),
            Cell(f"{mark}text", "1 text, own collate_fn", front, made(text), 1, 50, collate_fn=as_given),
            Cell(f"{mark}{what.split()[-1]}", f"32 {what}", front, own),
            Cell(f"{mark}leaves", "32 dicts of 8 leaves", front, made(leaves), epochs=1),
            Cell(f"{mark}memory", "256 rows in memory", front, memory, 256),
            Cell(f"{mark}epoch", "an epoch of one batch", front, made(number), 1, 1, 40),
            Cell(f"{mark}parent", "32 texts, 2 workers: the parent", front, made(text), 32, 200, 1, 2, as_given),
        ]
    return found


CELLS = {cell.name: cell for cell in _cells()}


def runner(cell: Cell, whose: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """What runs the cell's epochs, and what ends its loader. They have been run once before: all is warm."""
    loader_class = importlib.import_module(whose).DataLoader
    options: dict[str, Any] = {"batch_size": cell.size, "shuffle": True, "num_workers": cell.workers}
    if cell.collate_fn is not None:
        options["collate_fn"] = cell.collate_fn
    if cell.workers:
        options |= {"multiprocessing_context": "fork", "persistent_workers": True}
    if whose == CORE:
        options["seed"] = 1
    else:
        importlib.import_module("torch").manual_seed(1)
    loader = loader_class(cell.make(cell.size * cell.batches), **options)

    def run() -> None:
        for _ in range(cell.epochs):
            for _ in loader:
                pass

    run()
    return run, getattr(loader, "close", gc.collect)  # torch ends workers with the loader


def calibrate() -> None:
    """Python and NumPy as a loader uses them: the unit of all numbers."""
    for turn in range(60):
        rows = [VECTORS[(turn * 7 + place * 13) % 512] for place in range(32)]
        np.stack(rows)
        kept = {place: str(place) for place in range(100)}
        sorted(kept, key=kept.__getitem__)


# --- the meters ---


def count_instructions(names: list[str], whose: str) -> dict[str, int]:
    """Callgrind was told to write its counts down before each `getpriority`, and to begin again."""
    calibrate()
    _mark()
    calibrate()
    _mark()
    pieces = {CALIBRATION: 1}
    for name in names:
        run, close = runner(CELLS[name], whose)
        _quiet()
        _mark()
        run()
        _mark()
        close()
        gc.enable()
        pieces[name] = CELLS[name].pieces
    return pieces


def _mark() -> None:
    os.getpriority(os.PRIO_PROCESS, 0)


def _quiet() -> None:
    gc.collect()
    gc.disable()


def cpu_times(names: list[str], whose: str) -> dict[str, float]:
    """Of each cell the CPU time of a piece as a share of the calibration's, the least of the rounds, taken in turns."""
    found = {}
    for name in names:
        run, close = runner(CELLS[name], whose)
        _quiet()
        times = max(1, round(LEAST / max(_spent(run), 1e-6)))
        rounds = [(_spent(calibrate), sum(_spent(run) for _ in range(times)) / times) for _ in range(ROUNDS)]
        close()
        gc.enable()
        unit, least = (min(column) for column in zip(*rounds, strict=True))
        found[name] = least / CELLS[name].pieces / unit
    return found


def _spent(run: Callable[[], None]) -> float:
    """Of this thread: other programs and other threads do not count."""
    began = time.thread_time()
    run()
    return time.thread_time() - began


def main() -> None:
    folder, whose, meter, *names = sys.argv[1:]
    place = Path(importlib.import_module("feedline").__file__ or "").resolve()
    if Path(folder).resolve() not in place.parents:
        sys.exit(f"feedline was imported from {place}, not from {folder}")
    print(json.dumps((count_instructions if meter == "instructions" else cpu_times)(names, whose)))


if __name__ == "__main__":
    main()
