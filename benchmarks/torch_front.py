"""The same workloads in torch's clothes: `feedline.torch.DataLoader` against torch's, tensors out of both."""

from __future__ import annotations

from typing import Any

import torch
import torch.utils.data
from torch.utils.data import TensorDataset

from harness import Case, Samples, Workload, epochs, serve

ROWS, COLUMNS = 500_000, 32


class Constant(torch.utils.data.Dataset[torch.Tensor]):
    """The same image again and again: nothing but the loader's own work."""

    def __init__(self) -> None:
        self.image = torch.rand(3, 224, 224)

    def __len__(self) -> int:
        return 64 * 30

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.image


class Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 8 * 2000

    def __getitem__(self, index: int) -> int:
        return index


def measure(loader_class: Any, what: str, workers: int) -> Samples:
    kept: dict[str, Any] = {"num_workers": workers, "persistent_workers": True} if workers else {}
    if what == "rows":
        dataset = TensorDataset(torch.rand(ROWS, COLUMNS), torch.randint(0, 10, (ROWS,)))
        return epochs(loader_class(dataset, batch_size=256, shuffle=True, **kept), ROWS)
    if what == "images":
        return epochs(loader_class(Constant(), batch_size=64, **kept), 64 * 30)
    return epochs(loader_class(Numbers(), batch_size=8, **kept), 8 * 2000)


def with_feedline(what: str, workers: int) -> Samples:
    from feedline.torch import DataLoader

    return measure(DataLoader, what, workers)


def with_torch(what: str, workers: int) -> Samples:
    return measure(torch.utils.data.DataLoader, what, workers)


WORKLOAD = Workload(
    name="torch_front",
    metrics={"samples/s": "more"},
    cases=[
        Case("500,000×32 tensors, 0 workers", {"what": "rows", "workers": 0}, targets={"torch": 80}),
        Case("3×224×224 tensors, 0 workers", {"what": "images", "workers": 0}, targets={"torch": 2}, in_quick=False),
        Case("3×224×224 tensors, 2 workers", {"what": "images", "workers": 2}, targets={"torch": 6}),
        Case("8 numbers a batch, 2 workers", {"what": "numbers", "workers": 2}, targets={"torch": 8}, in_quick=False),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    torch_in_all=True,
)

if __name__ == "__main__":
    serve(WORKLOAD)
