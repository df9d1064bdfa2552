"""A torch.Generator that a dataset holds: under feedline.torch it draws what it draws under torch's own loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data
from kinds import FORK, ours

import feedline
from feedline.torch import DataLoader


class Noisy(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(5)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.rand(2, generator=self.generator)


class Ordered(torch.utils.data.Dataset[Any]):
    """Draws an order once, when its first sample is read."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(5)
        self.order: Any = None

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> Any:
        if self.order is None:
            self.order = torch.randperm(120, generator=self.generator)
        return int(self.order[index])


class Files(torch.utils.data.IterableDataset[Any]):
    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(5)

    def __iter__(self) -> Iterator[Any]:
        files = torch.randperm(24, generator=self.generator).tolist()
        info = torch.utils.data.get_worker_info()
        return iter(files if info is None else files[info.id :: info.num_workers])


def epochs(loader: Any, number: int = 3) -> list[list[Any]]:
    return [[batch.tolist() for batch in loader] for _ in range(number)]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_stream_that_shuffles_and_shares_out_gives_torchs_batches(persistent: bool) -> None:
    options: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "persistent_workers": persistent}
    ours = epochs(DataLoader(Files(), **options))
    assert ours == epochs(torch.utils.data.DataLoader(Files(), **options))
    assert all(sorted(value for batch in epoch for value in batch) == list(range(24)) for epoch in ours)


@pytest.mark.parametrize("front", [DataLoader, feedline.DataLoader])
def test_an_order_drawn_once_is_the_same_in_all_workers(front: Any) -> None:
    (got,) = epochs(front(Ordered(), batch_size=4, num_workers=2), 1)
    assert sorted(value for batch in got for value in batch) == list(range(120))


def test_one_worker_draws_what_the_generator_gives() -> None:
    one: dict[str, Any] = {"batch_size": 4, "num_workers": 1}
    assert epochs(DataLoader(Noisy(), **one), 1) == epochs(torch.utils.data.DataLoader(Noisy(), **one), 1)


def test_epochs_that_repeat_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"dataset\.generator is a random generator that samples draw from"):
        epochs(DataLoader(Noisy(), batch_size=2, **{**FORK, "num_workers": 1}), 2)


def test_without_workers_it_is_the_users() -> None:
    assert epochs(DataLoader(Noisy(), batch_size=4)) == epochs(torch.utils.data.DataLoader(Noisy(), batch_size=4))


class Told(Files):
    """Is told its epoch through shared memory, and can say where it stands: as Hugging Face's streams."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = torch.tensor(0).share_memory_()

    def __iter__(self) -> Iterator[Any]:
        return iter([int(self.epoch) * 100 + file for file in super().__iter__()])

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("nobody resumes here")


@pytest.mark.parametrize("workers", ["process", "thread"])
def test_what_is_told_through_shared_memory_reaches_persistent_workers_of_either_kind(workers: str) -> None:
    data = Told()
    loader = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True, workers=workers)
    for epoch in range(3):
        data.epoch.fill_(epoch)
        found = sorted(value for batch in loader for value in batch.tolist())
        assert found == [epoch * 100 + file for file in range(24)]
    loader.close()


of_module = torch.Generator().manual_seed(5)


class FromModule(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.rand(2, generator=of_module)


def test_a_modules_generator_that_repeats_itself_is_warned_of_and_left_alone() -> None:
    state = of_module.get_state()
    loader = DataLoader(FromModule(), batch_size=2, num_workers=1, multiprocessing_context="fork")
    with pytest.warns(UserWarning, match=r"\.of_module is a random generator that samples draw from") as told:
        first, second, _ = epochs(loader)
    assert first == second
    assert len(ours(told)) == 1
    assert torch.equal(of_module.get_state(), state)
