"""Rows of arrays in memory, shuffled, no workers: how near is a loader to a bare gather?

torch's users put tensors into a TensorDataset, feedline's put arrays into an ArrayDataset; the third side is
the loop one would write by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve

ROWS, COLUMNS, BATCH = 500_000, 32, 256


def columns() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((ROWS, COLUMNS), dtype=np.float32), random.integers(0, 10, ROWS)


def with_feedline() -> Samples:
    from feedline import ArrayDataset, DataLoader

    with DataLoader(ArrayDataset(*columns()), batch_size=BATCH, shuffle=True, seed=0) as loader:
        yield from epochs(loader, ROWS)


def with_torch() -> Samples:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    features, labels = columns()
    dataset = TensorDataset(torch.from_numpy(features), torch.from_numpy(labels))
    yield from epochs(DataLoader(dataset, batch_size=BATCH, shuffle=True), ROWS)


class ByHand:
    """The loop without a library: one permutation per epoch, one np.take per array and batch."""

    def __init__(self) -> None:
        self.features, self.labels = columns()
        self.random = np.random.default_rng(0)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        order = self.random.permutation(ROWS)
        for start in range(0, ROWS, BATCH):
            rows = order[start : start + BATCH]
            yield np.take(self.features, rows, axis=0), np.take(self.labels, rows)


def by_hand() -> Samples:
    yield from epochs(ByHand(), ROWS)


WORKLOAD = Workload(
    name="in_memory",
    metrics={"samples/s": "more"},
    cases=[Case("500,000×32, 0 workers", targets={"torch": 80, "bare np.take": 0.6})],
    sides={"feedline": with_feedline, "torch": with_torch, "bare np.take": by_hand},
)

if __name__ == "__main__":
    serve(WORKLOAD)
