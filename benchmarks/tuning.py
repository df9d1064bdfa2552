"""Is what `feedline.tune` recommends within a tenth of the best of all settings, and is it the smallest?

    python benchmarks/tuning.py                      # all workloads; some four minutes on two cores
    python benchmarks/tuning.py --only latency --rounds 5 --out tuning.json

Each workload is tuned as a user would. Then every setting of the grid (workers × kind) is measured with the same
consumer, in rounds, so that noise hits all alike; the recommended one and the best of the grid are compared by the
medians of these measurements, not by those of the search. "smallest" is the smallest setting that is fast enough by
the grid.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import feedline
from feedline.diagnose.consumer import clock
from feedline.diagnose.tune.candidates import Bounds, chosen, cost, facts_of, grid
from feedline.diagnose.tune.running import Runner
from feedline.diagnose.tune.trial import Trial
from feedline.diagnose.tune.tune_subject import subject_of
from feedline.machine.cpus import look
from feedline.observe.window import Setting

TARGET = 0.9


class Latency:
    """Each sample comes from a store that takes 5 ms to answer."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        time.sleep(0.005)
        return np.full((3, 32, 32), index, np.float32), index % 10


class Large:
    """600 kB samples that cost nothing to read."""

    def __init__(self) -> None:
        self.images = np.zeros((64, 3, 224, 224), np.float32)

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.images[index % 64], index % 10


class Tokens:
    """Python code that holds the interpreter's lock: a tokenizer, say."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> np.ndarray:
        words = [str(number * index) for number in range(600)]
        return np.array([hash(word) % 1000 for word in words], np.int64)


def in_memory() -> Any:
    random = np.random.default_rng(0)
    features = random.standard_normal((200_000, 32), dtype=np.float32)
    return feedline.ArrayDataset(features, random.integers(0, 10, len(features)))


def pictures() -> Any:
    from jpeg import Pictures, folder_of_pictures

    return Pictures(folder_of_pictures())


@dataclass(frozen=True)
class Work:
    make: Callable[[], Any]
    step_ms: float | None
    batch_size: int = 32
    max_workers: int = 4
    seconds: float = 30.0


WORKLOADS = {
    "in memory": Work(in_memory, None, batch_size=256),
    "jpeg": Work(pictures, None),
    "jpeg, 200 ms step": Work(pictures, 200),
    "latency, 20 ms step": Work(Latency, 20, max_workers=12),
    "latency, no step": Work(Latency, None, batch_size=8, max_workers=12),
    "large samples": Work(Large, None, batch_size=64),
    "python, 30 ms step": Work(Tokens, 30),
    "consumer-bound": Work(in_memory, 50, batch_size=256),
}


def main() -> int:
    """0 if everything could be measured, reached or not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(WORKLOADS), help="may be given again")
    parser.add_argument("--rounds", type=int, default=3, help="over the whole grid (default: 3)")
    parser.add_argument("--out", type=Path, help="write all numbers as JSON")
    given = parser.parse_args()
    results = []
    print("workload             step    recommended      of best  best of grid     smallest         settings  seconds")
    for name in given.only or WORKLOADS:
        result = compared(WORKLOADS[name], given.rounds)
        results.append({"workload": name, **result})
        print(line(name, WORKLOADS[name], result), flush=True)
    if given.out:
        given.out.write_text(json.dumps(results, indent=2))
    return 0


def compared(work: Work, rounds: int) -> dict[str, Any]:
    dataset = work.make()
    options = {"batch_size": work.batch_size, "max_workers": work.max_workers}
    found = feedline.tune(dataset, step_ms=work.step_ms, seconds=work.seconds, **options)
    measured, computes = everything(dataset, work, rounds, found.best.setting)
    best = max(measured.values(), key=lambda trial: trial.batches_per_second)
    smallest = chosen(measured.values(), (work.step_ms or 0) / 1e3, computes)
    assert smallest is not None
    return {
        "recommended": str(found.best.setting),
        "of_best": measured[found.best.setting].batches_per_second / best.batches_per_second,
        "best": str(best.setting),
        "smallest": str(smallest.setting),
        "bottleneck": found.bottleneck.name,
        "tried": len(found.trials),
        "in_grid": len(measured),
        "seconds": found.seconds,
        "grid": [trial.to_json() for trial in measured.values()],
    }


def everything(dataset: Any, work: Work, rounds: int, recommended: Setting) -> tuple[dict[Setting, Trial], bool]:
    """The grid and the recommended setting, in turns."""
    step = (work.step_ms or 0) / 1e3
    runner = Runner(subject_of(dataset, work.batch_size, None), step, False, clock() + 3600)
    one, none = (runner.measure(Setting(count), 0.5) for count in (1, 0))
    facts = facts_of(one, none)
    settings = grid(Bounds(look().usable, max_workers=work.max_workers), facts)
    settings = sorted({*settings, recommended}, key=lambda each: cost(each, facts.computes))
    measured: dict[Setting, Trial] = {}
    for setting in in_turns(settings, rounds):
        trial = runner.measure(setting, 0.6)
        measured[setting] = measured[setting].plus(trial) if setting in measured else trial
    return measured, facts.computes


def in_turns(settings: list[Setting], rounds: int) -> Iterator[Setting]:
    for turn in range(rounds):
        yield from settings if turn % 2 == 0 else reversed(settings)


def line(name: str, work: Work, result: dict[str, Any]) -> str:
    step = f"{work.step_ms:.0f} ms" if work.step_ms else "–"
    mark = "" if result["of_best"] >= TARGET else " (below 0.90)"
    return (
        f"{name:20s} {step:>6s}  {result['recommended']:16s} {result['of_best']:7.2f}  {result['best']:16s} "
        f"{result['smallest']:16s} {result['tried']:3d}/{result['in_grid']:<3d} {result['seconds']:8.0f}{mark}"
    )


if __name__ == "__main__":
    sys.exit(main())
