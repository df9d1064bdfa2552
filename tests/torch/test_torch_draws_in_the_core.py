"""A dataset of the core's loader that draws from torch's default generator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kinds import PROCESSES

from feedline import DataLoader, Dataset

COUNT = 200


class Noisy(Dataset[float]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> float:
        return torch.rand((), dtype=torch.float64).item()


def epochs(**options: Any) -> list[list[float]]:
    with DataLoader(Noisy(), batch_size=5, seed=3, **options) as loader:
        return [[value for batch in loader for value in batch.tolist()] for _ in range(2)]


@pytest.mark.parametrize("kind", PROCESSES)
def test_no_two_samples_or_epochs_draw_the_same_and_any_workers_draw_alike(kind: dict[str, Any]) -> None:
    found = epochs(**kind)
    assert len({value for epoch in found for value in epoch}) == 2 * COUNT
    assert found == epochs() == epochs(**{**kind, "num_workers": 1})


def test_the_users_own_draws_go_on_as_if_nothing_had_been() -> None:
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    epochs()
    assert torch.equal(torch.rand(4), expected)
