"""A dataset of the core's loader that draws from torch's default generator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kinds import PROCESSES

from feedline import DataLoader, Dataset
from feedline.randomness import global_generators
from feedline.randomness.global_generators import TorchGenerator
from feedline.randomness.twister import Words

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


@given(st.integers(0, 2**64 - 1))
def test_torchs_generator_is_seeded_as_by_manual_seed(value: int) -> None:
    before, words = torch.get_rng_state(), Words()
    saved: list[Any] = []
    words.seed(value & 0xFFFFFFFF)
    source = TorchGenerator()
    torch.randn(3)
    source.borrow(value, words, saved)
    alike = torch.Generator().manual_seed(value & 0x7FFFFFFFFFFFFFFF)
    assert torch.equal(torch.get_rng_state(), alike.get_state())
    assert torch.initial_seed() == alike.initial_seed()
    assert source.made is not None
    assert source.made[0] is not None  # the quick way
    source.restore(saved[0])
    torch.set_rng_state(before)


def test_a_torch_whose_states_look_different_is_seeded_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_generators, "_torch_state", lambda: (None, None, None))
    before, words = torch.get_rng_state(), Words()
    TorchGenerator().seed(5, words)
    assert torch.initial_seed() == 5
    torch.set_rng_state(before)
