"""What counting costs, and what recording costs: tiny batches, where both weigh most.

`stats()` is counted always, so the other side has the counting taken out; the third writes a trace. Two more have
`with loader.step():` around nothing, by the host's clock, and with events of a stand-in, which take no time themselves.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

from harness import Case, Samples, Workload, epochs, serve
from tiny_batches import BATCH, BATCHES, Scalars


class Event:
    """Of a device that has done everything at once."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        return 1.0


class Timing:
    """What records such events."""

    def record(self) -> Event:
        return Event()

    def give_back(self, event: Event) -> None: ...


class Stepped:
    """The batches of a loader, each followed by a step that does nothing."""

    def __init__(self, loader: Any, on_device: bool) -> None:
        from feedline.observe.stepping import DeviceClock

        self.loader = loader
        if on_device:
            loader._session._stepping.clock = DeviceClock(Timing(), print)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            with self.loader.step():
                pass
            yield batch


def stepping(workers: int, on_device: bool = False) -> Samples:
    from feedline import DataLoader

    kept: dict[str, Any] = {"num_workers": workers, "persistent_workers": True} if workers else {}
    with DataLoader(Scalars(), batch_size=BATCH, **kept) as loader:
        yield from epochs(Stepped(loader, on_device), BATCHES, "batches/s")


def stepping_on_a_device(workers: int) -> Samples:
    yield from stepping(workers, on_device=True)


def measured(workers: int, trace: bool = False) -> Samples:
    from feedline import DataLoader

    kept: dict[str, Any] = {"num_workers": workers, "persistent_workers": True} if workers else {}
    with tempfile.TemporaryDirectory() as folder, DataLoader(Scalars(), batch_size=BATCH, **kept) as loader:
        recorder = loader.trace(os.path.join(folder, "run.json")) if trace else None
        if recorder is not None:
            recorder.write = lambda: None  # type: ignore[method-assign]  # the file is not what is measured
        yield from epochs(loader, BATCHES, "batches/s")


def with_feedline(workers: int) -> Samples:
    yield from measured(workers)


def without_counting(workers: int) -> Samples:
    from feedline.observe.meter import Meter
    from feedline.workers import inline, process_main

    def nothing(*arguments: Any) -> None: ...

    for name in ("asked", "gave", "gave_none", "take"):
        setattr(Meter, name, nothing)
    for module in (inline, process_main):
        vars(module)["count_making"] = nothing
    yield from measured(workers)


def recording(workers: int) -> Samples:
    yield from measured(workers, trace=True)


WORKLOAD = Workload(
    name="observing",
    metrics={"batches/s": "more"},
    cases=[
        Case("8 scalars, 2 workers", {"workers": 2}, targets={"without counting": 0.98}),
        Case("8 scalars, 0 workers", {"workers": 0}, targets={"without counting": 0.98}),
    ],
    sides={
        "feedline": with_feedline,
        "without counting": without_counting,
        "recording a trace": recording,
        "loader.step()": stepping,
        "loader.step() and events": stepping_on_a_device,
    },
    repeats=9,
    quick_repeats=5,
)

if __name__ == "__main__":
    serve(WORKLOAD)
