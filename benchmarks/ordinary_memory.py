"""How long stacking 16 rows takes in a slot, in NumPy's memory and in torch's, for batches of 64 KB to 64 MB.

    .venv/bin/python benchmarks/ordinary_memory.py

Takes: nothing. Gives: a line a size; the least of many rounds, in turns, with the previous batch still held.
It chose `arena.ordinary.LARGEST`. Not its job: whole loaders (grid.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from feedline.arena.slots import LocalMemory, SlotPool
from feedline.collate.default import stacked

ROWS, ROUNDS = 16, 40


def least(stack: Callable[[], Any], times: int) -> float:
    """Microseconds of one call, the mean of `times` calls in a row."""
    began, batch = time.perf_counter(), None
    for _ in range(times):
        batch = stack()
    del batch
    return (time.perf_counter() - began) / times * 1e6


def main() -> None:
    pool = SlotPool()
    memory = LocalMemory(pool)
    for kilobytes in (64 << step for step in range(11)):
        rows = [np.random.default_rng(row).random((1, kilobytes * 128 // ROWS)) for row in range(ROWS)]
        tensors = [torch.from_numpy(row) for row in rows]

        def in_a_slot(rows: list[Any] = rows) -> Any:
            batch = stacked(rows, rows[0].dtype, memory)
            memory.finish()
            return batch

        ways: dict[str, Callable[[], Any]] = {
            "slot": in_a_slot,
            "NumPy": lambda rows=rows: stacked(rows, rows[0].dtype, np.empty),
            "torch": lambda tensors=tensors: torch.stack(tensors),
        }
        times = max(2, min(100, 20_000 // kilobytes))
        found: dict[str, float] = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for name, stack in ways.items():
                found[name] = min(found[name], least(stack, times))
        print(f"{kilobytes:6} KB  " + "  ".join(f"{name} {took:9.1f} µs" for name, took in found.items()))


if __name__ == "__main__":
    main()
