"""Does the simulator of `feedline explore` say what real loaders do? Epochs simulated and measured, in 13 settings.

    python benchmarks/simulation.py --out docs/measured/simulation.json      # about two minutes; then `make pictures`

Takes: nothing. Gives: a JSON file with the seconds of each setting, simulated and measured (each time of several).
Promises: samples sleep, so that neither the number of cores nor other programs change much; costs are strewn as the
explorer strews them. Later epochs of kept workers are measured, which begin with nothing prefetched, as simulated.
A sample is simulated with what such a sleep takes on this machine, which is measured before.
Not its job: the picture (docs/measured_simulation.py), samples that compute.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from feedline.diagnose.explorer.costs import Costs, sample_costs
from feedline.diagnose.simulation import Work, Workers, simulate

PLAIN = Costs(mean=4000)
SPREAD = Costs(mean=4000, spread=0.8)
SKEWED = Costs(mean=4000, stragglers=0.02, factor=25)
SETTINGS: tuple[tuple[str, int, int, Costs, int, Workers], ...] = (
    # name, batches, batch size, costs, step in µs, workers
    ("no workers", 20, 16, PLAIN, 20_000, Workers(0)),
    ("1 worker", 20, 16, PLAIN, 20_000, Workers(1)),
    ("2 workers", 30, 16, PLAIN, 20_000, Workers(2)),
    ("4 workers", 40, 16, PLAIN, 20_000, Workers(4)),
    ("4 workers, no step", 60, 16, PLAIN, 0, Workers(4)),
    ("4 workers, prefetch 1", 40, 16, SPREAD, 15_000, Workers(4, prefetch=1)),
    ("4 workers, spread", 40, 16, SPREAD, 10_000, Workers(4)),
    ("4 workers, stragglers", 40, 32, SKEWED, 10_000, Workers(4)),
    ("4 workers, stragglers, as they come", 40, 32, SKEWED, 10_000, Workers(4, in_order=False)),
    ("torch, 2 workers", 30, 16, PLAIN, 20_000, Workers(2, rules="torch")),
    ("torch, 4 workers, spread", 40, 16, SPREAD, 10_000, Workers(4, rules="torch")),
    ("torch, 4 workers, stragglers", 40, 32, SKEWED, 10_000, Workers(4, rules="torch")),
    ("torch, 4 workers, stragglers, as they come", 40, 32, SKEWED, 10_000, Workers(4, rules="torch", in_order=False)),
)


class Sleeps:
    """Samples that wait as long as they cost."""

    def __init__(self, costs: list[int]) -> None:
        self.costs = costs

    def __len__(self) -> int:
        return len(self.costs)

    def __getitem__(self, index: int) -> np.ndarray:
        time.sleep(self.costs[index] / 1e6)
        return np.full(8, index, np.float32)


def loader_for(dataset: Sleeps, size: int, workers: Workers) -> Any:
    options: dict[str, Any] = {"num_workers": workers.count}
    if workers.count:
        kept = {"prefetch_factor": workers.prefetch, "persistent_workers": True, "in_order": workers.in_order}
        options |= kept
    if workers.rules == "torch":
        from torch.utils.data import DataLoader as Torchs

        return Torchs(dataset, size, **options)
    from feedline import DataLoader

    if workers.count:
        options["prefetch_next_epoch"] = False
    return DataLoader(dataset, size, **options)


def epoch_of(loader: Iterable[Any], step: int) -> float:
    began = time.perf_counter()
    for _ in loader:
        if step:
            time.sleep(step / 1e6)
    return time.perf_counter() - began


def measure(quick: bool) -> list[dict[str, Any]]:
    late = sleeping_late()
    found = []
    for name, batches, size, costs, step, workers in SETTINGS:
        samples = sample_costs(costs, batches * size, key=7)
        cut = [[one + late for one in samples[at : at + size]] for at in range(0, len(samples), size)]
        known = sum(map(sum, cut)) / len(samples) / 1e6 if workers.rules == "feedline" else None
        simulated = simulate(
            Work(cut, step=step + late * bool(step)),
            Workers(workers.count, workers.prefetch, workers.in_order, True, workers.rules, known),
        )
        loader = loader_for(Sleeps(samples), size, workers)
        for _ in range(2):  # the first starts the workers; the next is slower than those after it
            epoch_of(loader, step)
        times = [epoch_of(loader, step) for _ in range(1 if quick else 3)]
        found.append({"setting": name, "simulated": simulated.end / 1e6, "measured": times})
        print(
            f"{name:45} {simulated.end / 1e6:6.3f} {median(times):6.3f} {simulated.end / 1e6 / median(times) - 1:+.1%}"
        )
        del loader
    return found


def sleeping_late() -> int:
    """By how many microseconds a sleep takes longer here than it should."""
    times = []
    for _ in range(100):
        began = time.perf_counter()
        time.sleep(0.002)
        times.append(time.perf_counter() - began)
    return round((median(times) - 0.002) * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="one epoch of each")
    given = parser.parse_args()
    facts = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "settings": measure(given.quick),
    }
    if given.out:
        given.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
