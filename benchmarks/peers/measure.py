"""The process that measures one side of one workload: `python -m peers.measure with_grain jpeg 1.0`.

Takes: a module of this package with `batches(workload)` and `resume()`. Gives: a line of JSON for each line it reads.
Promises: only what was loaded while the clock ran is counted: what a side made ahead while others measured is passed
over first. A batch of another shape than asked for is an error, not a result.
Not its job: taking turns (run), ratios and pictures (docs/).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from peers.workloads import DEPTH, WORKLOADS, Workload

Batches = Iterator[Any]
"""Epoch after epoch, without end."""


def endless(loader: Iterable[Any]) -> Batches:
    """One epoch after another."""
    while True:
        yield from loader


def seconds_to_go_on(make: Callable[[], Any]) -> Iterator[float]:
    """From a state saved deep in an epoch to the first batch of a new loader; `make` gives one with torch's methods."""
    loader = make()
    batches = iter(loader)
    for _ in range(DEPTH):
        next(batches)
    state = loader.state_dict()
    while True:
        again = make()
        started = time.perf_counter()
        again.load_state_dict(state)
        next(iter(again))
        yield time.perf_counter() - started


def first_array(batch: Any) -> Any:
    """Of a batch that may be a tuple or a dict."""
    if isinstance(batch, dict):
        return next(iter(batch.values()))
    return batch[0] if isinstance(batch, (tuple, list)) else batch


def throughput(batches: Batches, workload: Workload, seconds: float) -> Iterator[float]:
    """Samples by the second, over at least so many seconds."""
    _check(tuple(first_array(next(batches)).shape), workload)
    while True:
        for _ in range(workload.passed):
            next(batches)
        count, started, elapsed = 0, time.perf_counter(), 0.0
        while elapsed < seconds:
            count += first_array(next(batches)).shape[0]
            elapsed = time.perf_counter() - started
        yield count / elapsed


def _check(shape: tuple[int, ...], workload: Workload) -> None:
    agrees = len(shape) == len(workload.shape) and all(
        asked in (None, found) for asked, found in zip(workload.shape, shape, strict=True)
    )
    if not agrees:
        raise ValueError(f"a batch of shape {shape}, but {workload.name} asks for {workload.shape}")


def main() -> None:
    module, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    workload, side = WORKLOADS[name], importlib.import_module(f"peers.{module}")
    values = side.resume() if workload.resumes else throughput(side.batches(name), workload, seconds)
    for _ in sys.stdin:
        print(json.dumps({"value": next(values)}), flush=True)
    # Some libraries wait long for their own threads and workers. The parent ends whatever is left of this session.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
