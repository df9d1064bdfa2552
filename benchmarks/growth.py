"""How the cost of a batch grows: with the dataset's length, the batch size, leaves, bytes and workers.

    make bench-growth                        # under four minutes; --quick for a look, --only length, --out FILE

Takes: nothing. Gives: a JSON file of every point; `docs/make_pages.py --growth FILE` puts it into docs/cost-growth.md.
Promises: each point in a process of its own, so that its memory is its own; points of all axes in turns, so that a
machine that slows down meanwhile bends no curve.
Not its job: exponents, table and picture (docs/measured_growth.py); other libraries (peers, run.py).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feedline import DataLoader
from feedline.diagnose.bench.machine import machine
from worker_memory import descendants, kilobytes

HERE = Path(__file__).resolve().parent
REPEATS, SECONDS = 3, 0.5
PATIENCE = 60.0


class Numbers:
    """As many indices as asked for, and nothing else."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class Leaves:
    """The same arrays again and again: what is measured is the loader's own work on them."""

    def __init__(self, leaves: int, size: int) -> None:
        self.sample = tuple(np.zeros(size, np.uint8) for _ in range(leaves))

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        return self.sample


class Waiting(Leaves):
    """Each sample takes 2 ms of waiting."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        time.sleep(0.002)
        return self.sample


@dataclass(frozen=True)
class Axis:
    """What grows, and the loader that is made for a value of it."""

    title: str
    values: list[int]
    make: Callable[[int], tuple[Any, dict[str, Any]]]


AXES = {
    "length": Axis(
        "indices in the dataset (shuffled, batch 64, no workers)",
        [10**3, 10**4, 10**5, 10**6, 10**7 - 1, 10**7, 10**8, 10**9],  # the largest order that is stored, too
        lambda length: (Numbers(length), {"batch_size": 64, "shuffle": True}),
    ),
    "batch": Axis(
        "samples in a batch (of 128 bytes, no workers)",
        [4**power for power in range(7)],
        lambda batch: (Leaves(1, 128), {"batch_size": batch}),
    ),
    "leaves": Axis(
        "leaves of a sample (of 128 bytes, batch 64, no workers)",
        [2**power for power in range(7)],
        lambda leaves: (Leaves(leaves, 128), {"batch_size": 64}),
    ),
    "bytes": Axis(
        "bytes of a sample (batch 16, 2 workers)",
        [4**power for power in range(3, 12)],
        lambda size: (Leaves(1, size), {"batch_size": 16, "num_workers": 2}),
    ),
    "workers": Axis(
        "workers (nothing to do for them, batch 64)",
        [1, 2, 4, 8, 16],
        lambda workers: (Leaves(1, 128), {"batch_size": 64, "num_workers": workers}),
    ),
    "waiting": Axis(
        "workers (2 ms of waiting a sample, batch 8)",
        [1, 2, 4, 8, 16],
        lambda workers: (Waiting(1, 128), {"batch_size": 8, "num_workers": workers}),
    ),
}


# --- one point, in a process of its own ---


def point(axis: str, value: int, seconds: float) -> dict[str, float]:
    """Seconds to the first batch and for each after it; bytes taken by this process at most, and by all at the end."""
    dataset, options = AXES[axis].make(value)
    before, together = _forget_peak(), _together()
    started = time.perf_counter()
    with DataLoader(dataset, **options) as loader:
        batches = iter(loader)
        next(batches)
        first = time.perf_counter() - started
        ahead = 2 * options.get("num_workers", 0)
        for _ in range(ahead):  # made while nobody waited
            next(batches)
        each = _seconds_each(batches, loader, seconds)
        return {"first": first, "batch": each, "peak": _peak() - before, "together": _together() - together}


def _seconds_each(batches: Iterator[Any], loader: Any, seconds: float) -> float:
    """Of batches that are not the first of an epoch: a short one would be measured by its beginning."""
    count, spent = 0, 0.0
    while spent < seconds or count < 3:
        started, before = time.perf_counter(), count
        for _ in batches:
            count += 1
            if time.perf_counter() - started > seconds:
                break
        spent += time.perf_counter() - started
        if count == before or spent < seconds:
            batches = iter(loader)
            next(batches)
    return spent / count


def _forget_peak() -> float:
    """Bytes this process has now; what it has at most is counted from here on (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return float(line.split()[1]) * 1024


def _together() -> float:
    """Of this process and its workers, with what they share counted once."""
    return 1024.0 * sum(kilobytes(process, "Pss:") for process in (os.getpid(), *descendants(os.getpid())))


# --- all of them ---


def main() -> int:
    chosen, started = _arguments(), time.monotonic()
    asked = [name for name in AXES if not chosen.only or name in chosen.only]
    found: dict[str, dict[int, list[dict[str, float]]]] = {axis: {} for axis in asked}
    for _ in range(1 if chosen.quick else REPEATS):
        for axis in asked:
            for value in AXES[axis].values:
                print(f"{axis} {value:,}", file=sys.stderr)
                found[axis].setdefault(value, []).append(_in_a_process(axis, value, 0.1 if chosen.quick else SECONDS))
    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "seconds": round(time.monotonic() - started),
        "quick": chosen.quick,
        "machine": machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "axes": [{"name": name, "title": AXES[name].title, "points": list(found[name].items())} for name in asked],
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(facts, ensure_ascii=False) + "\n")
    print(f"{facts['seconds']} s; wrote {chosen.out}\n  python docs/make_pages.py --growth {chosen.out}")
    return 0


def _in_a_process(axis: str, value: int, seconds: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--point", axis, str(value), str(seconds)]
    path = os.pathsep.join((str(HERE.parent / "src"), str(HERE)))
    environment = {**os.environ, "PYTHONPATH": path}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False)
    if answer.returncode:
        raise RuntimeError(f"{axis} {value}: {answer.stderr}")
    measured: dict[str, float] = json.loads(answer.stdout)
    return measured


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short look at each point")
    parser.add_argument("--only", action="append", choices=list(AXES), help="may be given again")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "growth.json", help="default: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--point"]:
        print(json.dumps(point(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
    else:
        sys.exit(main())
