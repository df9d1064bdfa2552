"""What every workload file is made of, and the child process that measures one side of it.

Takes: a `Workload` (its cases, its sides) and, in the child, one side's generator of measurements.
Gives: one JSON line per measurement, each made only when the parent asks, so that the sides can take turns.
Promises: imports little of the standard library and nothing else: a spawned worker imports the workload file
again, and with it this one, and that must not blur what its own library costs.
Not its job: taking turns (contest), ratios and pictures (report).
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

Sample = dict[str, float]
"""One measurement: a value for each metric of the workload."""

Samples = Generator[Sample, None, None]
"""Measurements as they are asked for; closing it ends the loader inside."""

Side = Callable[..., Samples]
"""Sets a library up for a case (its options come as keywords), then yields one Sample whenever asked."""

AT_LEAST = 0.5
"""Seconds that a measurement lasts: a fast side runs as many epochs as that takes."""


@dataclass(frozen=True)
class Case:
    """One setting of a workload.

    `targets` says how many times better than each other side feedline must be, in the first metric.
    `limits` are upper bounds on feedline's own numbers. `skips` gives the reason why a side is left out.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    targets: dict[str, float] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    skips: dict[str, str] = field(default_factory=dict)
    in_quick: bool = True


@dataclass(frozen=True)
class Workload:
    """A workload: `metrics` maps a metric's name to "more" or "less", whichever is better.

    `fresh` starts a new process for each measurement, for what happens only once in a process.
    """

    name: str
    metrics: dict[str, str]
    cases: list[Case]
    sides: dict[str, Side]
    fresh: bool = False
    torch_in_all: bool = False
    """Do all sides need torch? Otherwise one that has imported it without need is refused."""
    repeats: int = 5
    quick_repeats: int = 2


def epochs(loader: Iterable[Any], expected: int, metric: str = "samples/s") -> Samples:
    """Throughput over whole epochs, without end; one epoch of warm-up comes before the first measurement.

    "samples/s" counts what the batches hold, "batches/s" the batches; `expected` is that count for one epoch.
    """
    run = _count_samples if metric == "samples/s" else _count_batches
    seen = run(loader)
    if seen != expected:
        raise RuntimeError(f"an epoch gave {seen} where {expected} were expected ({metric})")
    while True:
        done, started, elapsed = 0, time.perf_counter(), 0.0
        while elapsed < AT_LEAST:
            done += run(loader)
            elapsed = time.perf_counter() - started
        yield {metric: done / elapsed}


def _count_samples(loader: Iterable[Any]) -> int:
    count = 0
    for batch in loader:
        leaf = batch[0] if isinstance(batch, (tuple, list)) else batch
        count += leaf.shape[0]
    return count


def _count_batches(loader: Iterable[Any]) -> int:
    count = 0
    for batch in loader:
        count += 1 if batch.shape[0] else 0
    return count


def serve(workload: Workload) -> None:
    """The child process: measure one side of one case (argv[1], argv[2]), once for each line on stdin."""
    side = sys.argv[1] if len(sys.argv) > 1 else "feedline"
    name = sys.argv[2] if len(sys.argv) > 2 else workload.cases[0].name
    case = next(case for case in workload.cases if case.name == name)
    measurements = workload.sides[side](**case.options)
    try:
        for _ in sys.stdin:
            print(json.dumps(_measure(side, measurements, workload.torch_in_all)), flush=True)
    finally:
        measurements.close()  # ends the loader inside


def _measure(side: str, measurements: Samples, torch_allowed: bool) -> dict[str, Any]:
    sample = next(measurements)
    if not side.startswith("torch") and "torch" in sys.modules and not torch_allowed:
        raise RuntimeError(f"the process that measures {side} has imported torch: not a fair comparison")
    return {"sample": sample, "version": _version(side)}


def _version(side: str) -> str | None:
    first = side.partition(" ")[0]  # torch with another setting is torch
    module = first if first in ("feedline", "torch") else "numpy"
    return getattr(importlib.import_module(module), "__version__", None)
