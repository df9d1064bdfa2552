"""What saving a loader's place costs at each step, and going on from deep in an epoch; beside torchdata's loader."""

from __future__ import annotations

import time
from typing import Any

from harness import Case, Samples, Workload, serve

LENGTH, BATCH = 1_000_000, 32
SAVES = 200


class Numbers:
    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        return index


def measure(make: Any, depth: int) -> Samples:
    """Saving, in the middle of an epoch; and from a state to its first batch, in a new loader."""
    loader = make()
    iterator = iter(loader)
    for _ in range(depth):
        next(iterator)
    state = loader.state_dict()
    while True:
        started = time.perf_counter()
        for _ in range(SAVES):
            loader.state_dict()
        saving = (time.perf_counter() - started) / SAVES
        again = make()
        started = time.perf_counter()
        again.load_state_dict(state)
        other = iter(again)
        next(other)
        yield {"resume s": time.perf_counter() - started, "save µs": 1e6 * saving}
        del other, again


def with_feedline(workers: int, depth: int) -> Samples:
    from feedline import DataLoader

    kept: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    return measure(lambda: DataLoader(Numbers(), BATCH, shuffle=True, seed=1, **kept), depth)


def with_torchdata(workers: int, depth: int) -> Samples:
    from torchdata.stateful_dataloader import StatefulDataLoader

    kept: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    return measure(lambda: StatefulDataLoader(Numbers(), BATCH, shuffle=True, **kept), depth)


WORKLOAD = Workload(
    name="resume",
    metrics={"resume s": "less", "save µs": "less"},
    cases=[
        Case("no workers, batch 5,000", {"workers": 0, "depth": 5_000}, limits={"save µs": 50}),
        Case("2 workers, batch 5,000", {"workers": 2, "depth": 5_000}, limits={"save µs": 50}),
    ],
    sides={"feedline": with_feedline, "torchdata": with_torchdata},
    torch_in_all=True,
    repeats=3,
    quick_repeats=1,
)

if __name__ == "__main__":
    serve(WORKLOAD)
