"""Samples of 600 kB that cost nothing to read: what does it cost to batch them and hand them over?"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve

LENGTH, BATCH = 4096, 64


class ConstantImages:
    """The same array every time, so that only the loader's own work is measured."""

    def __init__(self) -> None:
        self.image = np.random.default_rng(0).random((3, 224, 224), dtype=np.float32)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> np.ndarray:
        return self.image


def options(workers: int) -> dict[str, Any]:
    return {"batch_size": BATCH, "num_workers": workers, "persistent_workers": workers > 0}


def with_feedline(workers: int) -> Samples:
    from feedline import DataLoader

    with DataLoader(ConstantImages(), **options(workers)) as loader:
        yield from epochs(loader, LENGTH)


def with_torch(workers: int) -> Samples:
    from torch.utils.data import DataLoader

    yield from epochs(DataLoader(ConstantImages(), **options(workers)), LENGTH)


WORKLOAD = Workload(
    name="large_samples",
    metrics={"samples/s": "more"},
    cases=[
        Case("3×224×224, 0 workers", {"workers": 0}, targets={"torch": 2}),
        Case("3×224×224, 1 worker", {"workers": 1}, in_quick=False),
        Case("3×224×224, 2 workers", {"workers": 2}, targets={"torch": 6}),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
)

if __name__ == "__main__":
    serve(WORKLOAD)
