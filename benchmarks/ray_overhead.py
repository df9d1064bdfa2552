"""What a batch costs on the way through Ray: workers="ray", local processes and ray.data on the same work, in turns.

    python benchmarks/ray_overhead.py [--seconds 2] [--rounds 7] [--json FILE]

One machine shows overhead and correctness, not scaling: all sides have the same CPUs. Each round measures all sides, in
another order; a ratio is that of two measurements of one round. Two workers each; CPU time is that of the machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

WORKERS = 2
LENGTH = 1 << 20


class Work:
    """Samples of so many floats; `loops` of Python beforehand."""

    def __init__(self, floats: int, loops: int) -> None:
        self.floats = floats
        self.loops = loops

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> dict[str, Any]:
        total = 0
        for each in range(self.loops):
            total += each
        return {"x": np.full(self.floats, index + total % 2, np.float32)}

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """The same for ray.data."""
        return self[int(row["id"])]


CASES = {
    "8 floats, batches of 32": (8, 0, 32),
    "48 kB, batches of 32": (12_288, 0, 32),
    "48 kB and 1 ms of Python, batches of 32": (12_288, 25_000, 32),
}


def of_feedline(kind: str, data: Work, batch: int) -> Iterator[int]:
    from feedline.torch import DataLoader

    with DataLoader(data, batch, num_workers=WORKERS, workers=kind, persistent_workers=True) as loader:
        while True:
            for each in loader:
                yield int(each["x"].shape[0])


def of_ray_data(data: Work, batch: int) -> Iterator[int]:
    import ray.data

    while True:
        pool = ray.data.TaskPoolStrategy(size=WORKERS)
        rows = ray.data.range(LENGTH, override_num_blocks=1024).map(data.row, compute=pool)
        for each in rows.iter_torch_batches(batch_size=batch, prefetch_batches=2 * WORKERS):
            yield int(each["x"].shape[0])


SIDES: dict[str, Callable[[Work, int], Iterator[int]]] = {
    "processes": lambda data, batch: of_feedline("process", data, batch),
    "ray": lambda data, batch: of_feedline("ray", data, batch),
    "ray.data": of_ray_data,
}


def per_batch(batches: Iterator[int], size: int, seconds: float) -> float:
    """Seconds a batch, after the first ones, which may have been made while nobody took any."""
    for _ in range(100):
        next(batches)
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        count += next(batches) / size
    return (time.perf_counter() - began) / count


def measured(case: tuple[int, int, int], rounds: int, seconds: float) -> dict[str, list[float]]:
    floats, loops, size = case
    found: dict[str, list[float]] = {name: [] for name in SIDES}
    data = Work(floats, loops)
    running = {name: SIDES[name](data, size) for name in ("processes", "ray")}
    for each in running.values():
        next(each)
    for _ in range(rounds):
        for name in random.sample(list(SIDES), len(SIDES)):
            # ray.data works on while nobody takes a batch, up to its memory: so it begins anew for each turn.
            batches = running.get(name) or SIDES[name](data, size)
            found[name].append(per_batch(batches, size, seconds))
            if name not in running:
                batches.close()  # type: ignore[attr-defined]
    for each in running.values():
        each.close()  # type: ignore[attr-defined]
    return found


class Ready(Work):
    """Samples that cost nothing: the driver is all there is to measure."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.zeros(self.floats, np.float32)}


def driver_seconds(floats: int, size: int, count: int) -> float:
    """CPU time of the driver for a batch: what all remote workers together cannot be faster than."""
    batches = of_feedline("ray", Ready(floats, 0), size)
    for _ in range(20):
        next(batches)
    began = time.process_time()
    for _ in range(count):
        next(batches)
    taken = (time.process_time() - began) / count
    batches.close()  # type: ignore[attr-defined]
    return taken


def told(name: str, times: list[float], base: list[float]) -> str:
    ratios = sorted(one / other for one, other in zip(times, base, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    ratio = f"{statistics.median(ratios):5.2f} ({low:.2f} to {high:.2f})"
    return f"{name:10} {1e3 * statistics.median(times):8.2f} ms  {ratio}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=CASES, nargs="*", default=list(CASES))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 — else Ray's workers give way to the other side's
    import ray
    import ray.data

    ray.init("local", num_cpus=2 * WORKERS, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    facts: dict[str, Any] = {"date": date.today().isoformat(), "ray": ray.__version__, "cases": {}}
    for name, case in ((name, CASES[name]) for name in given.only):
        found = facts["cases"][name] = measured(case, given.rounds, given.seconds)
        sys.stdout.write(f"{name}\n")
        for side, times in found.items():
            sys.stdout.write(f"  {told(side, times, found['processes'])}\n")
        sys.stdout.flush()
    facts["driver"] = {}
    for floats, size, count in ((8, 32, 400), (12_288, 32, 200), (37_632, 64, 60)):
        seconds = facts["driver"][4 * floats * size] = driver_seconds(floats, size, count)
        sys.stdout.write(f"driver, batches of {4 * floats * size:10,} bytes: {1e3 * seconds:.2f} ms of CPU time\n")
        sys.stdout.flush()
    if given.json:
        given.json.write_text(json.dumps(facts))
    ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
