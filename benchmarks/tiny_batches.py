"""Eight scalars per batch: nothing but the cost of sending a task out and a batch back."""

from __future__ import annotations

from typing import Any

from harness import Case, Samples, Workload, epochs, serve

BATCHES, BATCH = 1500, 8


class Scalars:
    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, index: int) -> float:
        return float(index)


OPTIONS: dict[str, Any] = {"batch_size": BATCH, "num_workers": 2, "persistent_workers": True}


def with_feedline() -> Samples:
    from feedline import DataLoader

    with DataLoader(Scalars(), **OPTIONS) as loader:
        yield from epochs(loader, BATCHES, "batches/s")


def with_torch() -> Samples:
    from torch.utils.data import DataLoader

    yield from epochs(DataLoader(Scalars(), **OPTIONS), BATCHES, "batches/s")


WORKLOAD = Workload(
    name="tiny_batches",
    metrics={"batches/s": "more"},
    cases=[Case("8 scalars, 2 workers", targets={"torch": 8})],
    sides={"feedline": with_feedline, "torch": with_torch},
)

if __name__ == "__main__":
    serve(WORKLOAD)
