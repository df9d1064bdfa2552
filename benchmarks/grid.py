"""A grid of ordinary loading: whole epochs, torch and feedline in turns, cell by cell.

    make bench-grid                                       # about a quarter of an hour on two quiet cores
    make bench-grid ARGS="--quick"                        # one pair of each cell: a look, not a result
    make bench-grid ARGS="--only text --workers 0 --budget 10"

Takes: the cells of grid_cells. Gives: a JSON file of every measurement (`docs/make_pages.py --grid FILE` makes the heat
map and the page of it), and on the screen the ratios and the worst cells.
Promises: in each pair both sides run the same number of epochs of the same dataset, each from `iter()` to the last
batch, in this process and in changing order. A ratio is torch's time over ours, the median of the pairs.
Not its job: what is loaded (grid_cells), how often (grid_turns), the page (docs/measured_grid.py), other loaders
(peers), two checkouts (before_after).
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from feedline.diagnose.bench.machine import Noise, machine
from feedline.observe.terminal import show_line
from grid_cells import KINDS, WORKERS, Cell, cells, loader_of
from grid_turns import BUDGET, FEWEST, take_turns


def epoch(loader: Any) -> float:
    """Seconds from `iter()` to the last batch."""
    began = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - began


def measure(cell: Cell, budget: float, fewest: int) -> None:
    """Both sides of a cell."""
    loaders = {side: loader_of(cell, side) for side in cell.seconds}
    noise = Noise(session=os.getsid(0))
    run = {side: lambda loader=loader: epoch(loader) for side, loader in loaders.items()}
    cell.seconds = take_turns(run, budget, fewest)
    cell.noise = noise.share()
    loaders["feedline"].close()


def summary(found: Sequence[Cell]) -> str:
    """What one wants to know at once; the page says more."""
    lines = []
    for workers in sorted({cell.workers for cell in found}):
        ratios = [cell.ratio for cell in found if cell.workers == workers]
        mean, slower = statistics.geometric_mean(ratios), sum(ratio < 1 for ratio in ratios)
        lines.append(f"{workers} workers: {len(ratios)} cells, geometric mean {mean:.2f}, torch is faster in {slower}")
    worst = sorted(found, key=lambda cell: cell.ratio)[:10]
    return "\n".join([*lines, "", *(f"{cell.ratio:5.2f}  {cell}" for cell in worst)])


def main() -> int:
    chosen, began = _arguments(), time.monotonic()
    warnings.simplefilter("ignore")  # torch: more workers than cores
    gc.freeze()  # what torch has imported need not be looked at before each turn
    found = list(cells(chosen.only or tuple(KINDS), chosen.workers))
    for number, cell in enumerate(found, 1):
        show_line(f"{number} of {len(found)}: {cell}")
        measure(cell, 0.0 if chosen.quick else chosen.budget, 1 if chosen.quick else FEWEST)
    show_line("")
    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "seconds": round(time.monotonic() - began),
        "quick": chosen.quick,
        "machine": machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "kinds": {name: kind.title for name, kind in KINDS.items()},
        "cells": [{**asdict(cell), "seconds": _short(cell), "ratio": cell.ratio} for cell in found],
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(facts, ensure_ascii=False) + "\n", encoding="utf-8")
    print(summary(found))
    print(f"\n{facts['seconds']} s; wrote {chosen.out}\n  python docs/make_pages.py --grid {chosen.out}")
    return 0


def _short(cell: Cell) -> dict[str, list[float]]:
    """Four digits are more than is known, and the file is kept in the repository."""
    return {side: [float(f"{value:.4g}") for value in values] for side, values in cell.seconds.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one pair of each cell: a look, not a result")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--workers", nargs="+", type=int, choices=WORKERS, default=list(WORKERS))
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of a cell (default: %(default)s)")
    out = Path(__file__).parent / "results" / "grid.json"
    parser.add_argument("--out", type=Path, default=out, help="default: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
