"""Samples of unequal cost, in the order of the sampler: how near to the limit does each loader come?

    make bench-skewed                               # about six minutes; ARGS="--quick" for a look

Takes: nothing. Gives: a JSON file (`docs/make_pages.py --skewed FILE` puts it into docs/skewed.md).
Promises: a share of the samples takes 2, 10 or 100 times as long as the others, strewn at random or in bursts. Where a
sample waits (a disk, a network), 4 workers pay on any number of cores; where it computes, there are as many workers as
cores (two). The limits are computed: `limit` is all work over the workers; `limit in order` that of a loader that costs
nothing and hands out single samples, with as many batches ahead as torch has (stragglers_limit.split).
Not its job: one sample in a hundred at 200 times, in `make bench` (stragglers); the table (docs/measured_skewed.py).
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import json
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import Case, Sample, Samples, Workload, epochs, serve
from stragglers_limit import split

SAMPLES, BATCH, BURST, AHEAD = 1280, 32, 48, 2
WORKERS = {"waits": 4, "computes": 2}
BASE = 0.002
"""Seconds of a quick sample that waits."""
LOOPS = 30_000
"""Of a quick sample that computes: some 1.5 ms."""
SHARES = {2: 0.30, 10: 0.10, 100: 0.01}
"""By how many times slower: which share. Each of them makes the mean sample 1.3 to 2 times as dear as a quick one."""


def costs(times: int, placing: str) -> np.ndarray:
    """What each sample costs, a quick one 1. Bursts are a batch and a half long, and never cover all of the epoch.

    >>> [float(costs(times, placing).mean().round(2)) for times in SHARES for placing in ("random", "bursts")]
    [1.3, 1.3, 1.9, 1.9, 2.01, 2.01]
    """
    found = np.ones(SAMPLES)
    slow = round(SHARES[times] * SAMPLES)
    random = np.random.default_rng(times)
    if placing == "random":
        found[random.choice(SAMPLES, slow, replace=False)] = times
        return found
    starts = random.choice(SAMPLES // BURST, -(-slow // BURST), replace=False) * BURST
    found[np.concatenate([np.arange(start, start + BURST) for start in starts])[:slow]] = times
    return found


class Skewed:
    """Samples that wait or compute, each as long as it costs."""

    def __init__(self, work: str, times: int, placing: str) -> None:
        self.work, self.costs = work, costs(times, placing).tolist()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> np.ndarray:
        if self.work == "waits":
            time.sleep(BASE * self.costs[index])
        else:
            total = 0
            for number in range(int(LOOPS * self.costs[index])):
                total += number ^ index
        return np.full(32, index, np.float32)


# --- the sides ---


def _run(loader_class: Any, work: str, times: int, placing: str, **more: Any) -> Samples:
    options = {"num_workers": WORKERS[work], "persistent_workers": True, "prefetch_factor": AHEAD, **more}
    loader = loader_class(Skewed(work, times, placing), BATCH, **options)
    yield from epochs(loader, SAMPLES)


def with_feedline(**case: Any) -> Samples:
    from feedline import DataLoader

    yield from _run(DataLoader, **case)


def with_fetch_threads(**case: Any) -> Samples:
    yield from with_feedline(**case, fetch_threads=4)


def with_feedline_as_they_come(**case: Any) -> Samples:
    yield from with_feedline(**case, in_order=False)


def with_torch_front(**case: Any) -> Samples:
    from feedline.torch import DataLoader

    yield from _run(DataLoader, **case)


def with_torch(**case: Any) -> Samples:
    from torch.utils.data import DataLoader

    yield from _run(DataLoader, **case)


def with_torch_as_they_come(**case: Any) -> Samples:
    yield from with_torch(**case, in_order=False)


def limits(work: str, times: int, placing: str) -> Samples:
    """Computed from what a quick sample costs; where it computes, that is measured here, in a plain loop."""
    found = costs(times, placing)
    while True:
        data = Skewed(work, times, placing)
        began = time.perf_counter()
        quick = [index for index in range(SAMPLES) if found[index] == 1][:200]
        for index in quick:
            data[index]
        base = BASE if work == "waits" else (time.perf_counter() - began) / len(quick)
        workers, seconds = WORKERS[work], (base * found).tolist()
        batches = [seconds[start : start + BATCH] for start in range(0, SAMPLES, BATCH)]
        in_order = split(batches, workers, AHEAD * workers)
        yield {"samples/s": SAMPLES * workers / sum(seconds), "in order": SAMPLES / in_order}


THREADS, LIMIT = "feedline, fetch_threads=4", "limit"
SIDES = {
    LIMIT: limits,
    "torch": with_torch,
    "feedline.torch": with_torch_front,
    "feedline": with_feedline,
    THREADS: with_fetch_threads,
    "torch, in_order=False": with_torch_as_they_come,
    "feedline, in_order=False": with_feedline_as_they_come,
}


def _case(work: str, times: int, placing: str) -> Case:
    where = "at random" if placing == "random" else f"in bursts of {min(BURST, round(SHARES[times] * SAMPLES))}"
    name = f"{SHARES[times]:.0%} take {times}×, {where}; a sample {work}"
    skips = {THREADS: "threads do not compute side by side"} if work == "computes" else {}
    return Case(name, {"work": work, "times": times, "placing": placing}, skips=skips)


WORKLOAD = Workload(
    name="skewed",
    metrics={"samples/s": "more"},
    cases=[
        _case(work, times, placing)
        for work in WORKERS
        for times in SHARES
        for placing in ("random", "bursts")
        if work == "waits" or times > 2
    ],
    sides=SIDES,
    torch_in_all=True,
)


# --- all of them ---


def main() -> int:
    from contest import Terms, hold  # not above: workers import this file again
    from feedline.diagnose.bench.machine import machine
    from feedline.observe.terminal import show_line

    chosen, began = _arguments(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="feedline-skewed-") as scratch:
        source = Path(scratch) / "src"
        shutil.copytree(
            Path(__file__).resolve().parents[1] / "src", source, ignore=shutil.ignore_patterns("__pycache__")
        )
        compileall.compile_dir(source, quiet=1)
        terms = Terms(Path(scratch), 0, show_line)
        contests = [hold(WORKLOAD, case, 1 if chosen.quick else chosen.repeats, terms) for case in WORKLOAD.cases]
    show_line("")
    facts: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "seconds": round(time.monotonic() - began),
        "quick": chosen.quick,
        "repeats": 1 if chosen.quick else chosen.repeats,
        "machine": machine(),
        "python": platform.python_version(),
        "torch": next((each.versions.get("torch") for each in contests), None),
        "cases": [
            {
                "title": each.case.name,
                "work": each.case.options["work"],
                "workers": WORKERS[each.case.options["work"]],
                "values": {side: _values(samples) for side, samples in each.samples.items()},
                "in order": _values(each.samples[LIMIT], "in order"),
                "noise": each.noise,
                "failures": {side: why for side, why in each.failures.items() if side not in each.case.skips},
                "skips": each.case.skips,
            }
            for each in contests
        ],
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    failures = [f"{case['title']}, {side}: {why}" for case in facts["cases"] for side, why in case["failures"].items()]
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"{facts['seconds']} s; wrote {chosen.out}\n  python docs/make_pages.py --skewed {chosen.out}")
    return 1 if failures else 0


def _values(samples: list[Sample], metric: str = "samples/s") -> list[float]:
    return [sample[metric] for sample in samples]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one turn of each: a look, not a result")
    parser.add_argument("--repeats", type=int, default=3, help="turns (default: %(default)s)")
    out = Path(__file__).parent / "results" / "skewed.json"
    parser.add_argument("--out", type=Path, default=out, help="default: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SIDES:  # the process of a side, as contest starts it
        serve(WORKLOAD)
    else:
        sys.exit(main())
