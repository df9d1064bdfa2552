"""Is num_workers="auto", once it has settled, within a tenth of the best fixed number?

    python benchmarks/auto_workers.py                 # some five minutes; --only latency, --rounds 9, --out auto.json
    python benchmarks/auto_workers.py --quick         # a look: fewer numbers, shorter turns

Each workload is loaded with num_workers="auto" until that has settled (how long it takes is printed), then with every
fixed number and with auto in turns, so that noise hits all alike; each turn takes the same time, on workers that stay.
The medians of the turns are compared. "trivial" is eight scalars a batch, where no loader can win by workers; auto
has one all the same, because code of the user's is never run in the main process. The last line of each workload says
what was chosen, and why.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from feedline import ArrayDataset, DataLoader
from feedline.diagnose.bench.turns import order
from feedline.machine.cpus import cpu_time
from jpeg import Pictures, folder_of_pictures
from tiny_batches import Scalars
from tuning import Latency

TARGET = 0.9
LONGEST_SETTLING = 30.0
LONGEST_REST = 5.0


class Case(NamedTuple):
    """A workload: what is loaded, in batches of how many, for a step of how many seconds."""

    dataset: Callable[[], Any]
    batch: int
    step: float = 0.0


CASES = {
    "trivial": Case(Scalars, 8),
    "in memory": Case(lambda: ArrayDataset(np.ones((100_000, 32), np.float32), np.arange(100_000)), 256),
    "in memory, 19 MB batches": Case(lambda: ArrayDataset(np.ones((800, 3, 224, 224), np.float32)), 32),
    "JPEG": Case(lambda: Pictures(folder_of_pictures()), 16),
    "5 ms latency": Case(Latency, 32),
    "5 ms latency, 40 ms step": Case(Latency, 32, 0.04),
    "consumer-bound JPEG": Case(lambda: Pictures(folder_of_pictures()), 8, 0.1),
}


class Side:
    """One loader, read on and on."""

    def __init__(self, case: Case, dataset: Any, workers: int | str) -> None:
        self.step = case.step
        self.loader = DataLoader(
            dataset, case.batch, shuffle=True, num_workers=workers, persistent_workers=workers != 0, seed=1
        )
        self._batches = self._endless()

    def _endless(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def take(self, seconds: float) -> float:
        """Batches a second, over about that time."""
        next(self._batches)
        flow = self.loader.stats().epoch
        for _ in range(2 * flow.num_workers):  # what lay ready since the last turn
            next(self._batches)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds or count < 2 * flow.num_workers + 2:
            next(self._batches)
            count += 1
            if self.step:
                time.sleep(self.step)
        rate = count / (time.perf_counter() - began)
        self._rest()
        return rate

    def _rest(self) -> None:
        """Until all that may be made ahead is made: for 16 workers that is half a second, of the next one's turn."""
        workers, before = self.loader._session.kept, -1.0
        until = time.perf_counter() + LONGEST_REST
        while workers is not None and time.perf_counter() < until:
            used = sum(cpu_time(f"/proc/{pid}") for _, pid in workers.processes())
            if used == before:
                break
            before = used
            time.sleep(0.1)

    def settle(self) -> float:
        """Seconds until nothing is tried out any more."""
        began = time.perf_counter()
        while time.perf_counter() - began < LONGEST_SETTLING:
            next(self._batches)
            if self.step:
                time.sleep(self.step)
            chosen = self.loader.stats().auto_workers if time.perf_counter() % 0.1 < 0.02 else None
            if chosen is not None and chosen.settled:
                break
        return time.perf_counter() - began


def measured(case: Case, numbers: list[int], rounds: int, seconds: float) -> dict[str, Any]:
    dataset = (
        case.dataset()
    )  # one for all: arrays that lie elsewhere, in pages of another size, are read at another speed
    sides: dict[int | str, Side] = {"auto": Side(case, dataset, "auto")}
    took = sides["auto"].settle()
    sides |= {number: Side(case, dataset, number) for number in numbers}
    rates: dict[int | str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name in order(list(sides), turn):  # or one of them would always find what the other left in the caches
            rate = sides[name].take(seconds)
            if turn:  # the first has the start of workers in it
                rates[name].append(rate)
    chosen = sides["auto"].loader.stats().auto_workers
    for side in sides.values():
        side.loader.close()
    middle = {str(name): statistics.median(each) for name, each in rates.items()}
    return {"settled after": took, "batches/s": middle, "chosen": str(chosen)}


def told(name: str, found: dict[str, Any]) -> str:
    rates = found["batches/s"]
    fixed = {number: rate for number, rate in rates.items() if number != "auto"}
    best = max(fixed, key=lambda number: fixed[number])
    lines = [f"{name}: auto is {rates['auto'] / fixed[best]:.2f} of the best fixed number ({best})"]
    lines[0] += f", {rates['auto'] / fixed['0']:.2f} of no workers; settled after {found['settled after']:.1f} s"
    lines.append("  batches/s: " + ", ".join(f"{number}: {rate:.4g}" for number, rate in rates.items()))
    lines.append(f"  {found['chosen']}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    numbers = [0, 1, 2, 8] if given.quick else [0, 1, 2, 4, 8, 16]
    rounds, seconds = (2, 0.4) if given.quick else (given.rounds, given.seconds)
    results = {}
    for name in given.only or CASES:
        results[name] = measured(CASES[name], numbers, rounds, seconds)
        print(told(name, results[name]), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
