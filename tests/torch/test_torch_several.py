"""`fetch_threads` and async datasets in torch's clothes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.utils.data as data
from kinds import THREADS

import feedline
from feedline.torch import DataLoader


class Plain(data.Dataset[Any]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        info = data.get_worker_info()
        return torch.tensor([index, -1 if info is None else info.num_workers]), feedline.rng().random()


class Awaited(Plain):
    async def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


def batches(dataset: Any, **options: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(5)
    with DataLoader(dataset, 4, shuffle=True, generator=generator, **options) as loader:
        return [(pairs.tolist(), draws.tolist()) for pairs, draws in loader]


@pytest.mark.parametrize("kind", [{}, THREADS], ids=["inline", "threads"])
def test_the_same_batches_and_torch_knows_the_worker(kind: dict[str, Any]) -> None:
    expected = batches(Plain(), **kind)
    assert {number for pairs, _ in expected for _, number in pairs} == {2 if kind else -1}
    assert batches(Plain(), fetch_threads=3, **kind) == expected
    assert batches(Awaited(), **kind) == expected


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: data.Subset(inner, [7, 2, 5]),
        lambda inner: data.ConcatDataset([inner, inner]),
        lambda inner: data.Subset(data.ConcatDataset([Plain(), inner]), [3, 13]),
        lambda inner: feedline.Subset(inner, [7, 2, 5]),
    ],
)
def test_torchs_wrappers_are_looked_into(wrap: Any) -> None:
    assert batches(wrap(Awaited())) == batches(wrap(Plain()))


class Many(Awaited):
    async def __getitems__(self, indices: list[int]) -> list[Any]:
        return [await self[index] for index in indices]


def test_side_by_side() -> None:
    for stacked in (data.StackDataset(Awaited(), Plain()), data.StackDataset(Many(), Many())):
        (first, second), *_ = DataLoader(stacked, 4)
        assert first[0].tolist() == second[0].tolist()
    assert len(list(DataLoader(feedline.ConcatDataset([Many(), Many()]), 4))) == 5


class Drawing(Plain):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(2)


def test_who_draws_from_torchs_generator_while_several_are_read_is_warned() -> None:
    with pytest.warns(UserWarning, match="the framework's default generator") as told:
        list(DataLoader(Drawing(), batch_size=4, fetch_threads=2))
    assert len(told) == 1
    list(DataLoader(Drawing(), batch_size=4))


def test_options() -> None:
    assert DataLoader(Plain(), fetch_threads=3).fetch_threads == 3
    for dataset, options, words in [
        (Plain(), {"batch_size": None}, "batch_size=None"),
        (data.TensorDataset(torch.arange(3)), {"fetch_threads": "2"}, "must be a whole number"),
        (feedline.ArrayDataset([1, 2]), {}, "reads many at once"),
        (feedline.ChainDataset([[1]]), {}, "a stream"),
    ]:
        with pytest.raises((feedline.OptionError, feedline.OptionTypeError), match=words):
            DataLoader(dataset, **{"fetch_threads": 2, **options})
