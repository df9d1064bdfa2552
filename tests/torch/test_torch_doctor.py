"""The doctor with torch's datasets and loaders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import feedline


class Images(Dataset[Any]):
    def __init__(self) -> None:
        self.targets = torch.arange(96) * 7 % 4

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> Any:
        return torch.randint(0, 255, (3, 32, 32), dtype=torch.uint8), self.targets[index]


class Seeded(Images):
    def __getitem__(self, index: int) -> Any:
        torch.manual_seed(0)
        return super().__getitem__(index)


class Numbers(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, 200, step):
            yield torch.tensor([number, number]), number * 7 % 3


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (Images(), []),
        (DataLoader(Images(), batch_size=16, shuffle=True, num_workers=2), []),
        (DataLoader(Numbers(), batch_size=16), []),
        (DataLoader(Images(), batch_size=95, shuffle=True), ["last-batch-of-one"]),
        (Seeded(), ["fixed-seed"]),
    ],
    ids=["images", "loader", "stream", "last of one", "seeded"],
)
def test_torchs(what: Any, said: list[str]) -> None:
    state = torch.get_rng_state()
    found = feedline.doctor(what, seconds=2)
    assert [each.id for each in found if each.severity != "ok"] == said, str(found)
    assert torch.equal(torch.get_rng_state(), state)
