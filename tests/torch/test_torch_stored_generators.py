"""A torch.Generator among a dataset's attributes, under both fronts."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from kinds import FORK, every_process

import feedline
from feedline.torch import DataLoader
from feedline.workers import stored_generators


class Noisy(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(5)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.rand(2, generator=self.generator).tolist(), torch.randn(1, generator=self.generator).item()


def drawn(front: Any, **kind: Any) -> list[float]:
    seed = {"generator": torch.Generator().manual_seed(1)} if front is DataLoader else {"seed": 1}
    loader = front(Noisy(), batch_size=None, **seed, **kind)
    return [value for _ in range(2) for pair, single in loader for value in (*pair, single)]


@every_process
@pytest.mark.parametrize("front", [DataLoader, feedline.DataLoader])
def test_workers_and_epochs_draw_differently_and_any_workers_the_same(front: Any, kind: dict[str, Any]) -> None:
    several = drawn(front, **kind)
    assert len(set(several)) == len(several) == 72
    assert drawn(front, **{**FORK, "num_workers": 1}) == several


@pytest.mark.parametrize("front", [DataLoader, feedline.DataLoader])
def test_threads_are_warned_of(front: Any) -> None:
    with pytest.warns(UserWarning, match=r"dataset\.generator is a random generator that all worker threads draw from"):
        drawn(front, num_workers=2, workers="thread")


def test_without_workers_it_is_the_users() -> None:
    generator = torch.Generator().manual_seed(5)
    alone = []
    for _ in range(24):
        alone += [*torch.rand(2, generator=generator).tolist(), torch.randn(1, generator=generator).item()]
    assert drawn(DataLoader) == alone


class Killed(Noisy):
    """One sample kills its worker, once."""

    def __init__(self, once: Path) -> None:
        super().__init__()
        self.once = once

    def __getitem__(self, index: int) -> Any:
        if index == 7 and not self.once.exists():
            self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.filterwarnings("ignore:worker . .* was killed")
def test_a_replacement_draws_as_the_one_it_replaces(tmp_path: Path) -> None:
    def loaded(once: Path) -> list[Any]:
        dataset = Killed(once)
        torch.manual_seed(5)  # the loader takes its seed from there
        drawn = []
        with DataLoader(dataset, batch_size=2, collate_fn=list, **{**FORK, "num_workers": 1}) as loader:
            for batch in loader:
                drawn.append(batch)
                torch.rand(1, generator=dataset.generator)  # the user looks at a sample now and then
        return drawn

    (tmp_path / "there").touch()
    assert loaded(tmp_path / "once") == loaded(tmp_path / "there")
    assert (tmp_path / "once").exists()


def test_torchs_global_one_is_seeded_as_that() -> None:
    job = type("Job", (), {"dataset": [torch.default_generator], "collate_fn": None})()
    assert stored_generators.generators(job) == []
