"""Random numbers of samples that are read many at once: those that they have when they are read one by one."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from feedline import DataLoader
from feedline.datasets import ConcatDataset, StackDataset, Subset
from feedline.sources import ParquetDataset, TarDataset, TarWriter

ROWS = 12


def drawn(sample: dict[str, Any]) -> dict[str, Any]:
    return {"draw": feedline.rng().random()}


class Singly:
    """The same samples, one by one."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


@pytest.fixture
def tables(tmp_path: Path) -> list[ParquetDataset]:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in "ab":
        parquet.write_table(arrow.table({"x": range(ROWS)}), tmp_path / f"{name}.parquet", row_group_size=5)
    return [ParquetDataset(tmp_path / f"{name}.parquet", transform=drawn) for name in "ab"]


def draws(dataset: Any, sampler: Iterable[int] | None = None) -> list[float]:
    loader: Any = DataLoader(dataset, batch_size=8, sampler=sampler, seed=3)
    return [value for batch in loader for value in _values(batch)]


def _values(batch: Any) -> list[float]:
    found: list[float] = np.stack([part["draw"] for part in (batch if isinstance(batch, list | tuple) else [batch])])
    return np.asarray(found).ravel().tolist()


def test_in_several_datasets_together_no_two_samples_draw_alike(tables: list[ParquetDataset]) -> None:
    together = draws(ConcatDataset(tables))
    assert len(set(together)) == 2 * ROWS
    assert together == draws(ConcatDataset([Singly(each) for each in tables]))


def test_a_part_of_a_dataset_draws_as_if_read_one_by_one(tables: list[ParquetDataset]) -> None:
    chosen = [7, 2, 11, 0]
    assert draws(Subset(tables[0], chosen)) == draws(Subset(Singly(tables[0]), chosen))


def test_datasets_side_by_side_go_on_drawing(tables: list[ParquetDataset]) -> None:
    assert draws(StackDataset(*tables)) == draws(StackDataset(*map(Singly, tables)))


def test_an_index_that_comes_again_draws_anew(tables: list[ParquetDataset]) -> None:
    again = [4, 4, 4, 1, 4, 1]
    found = draws(tables[0], again)
    assert len(set(found)) == len(again)
    assert found == draws(Singly(tables[0]), again)


def test_members_of_shards_draw_by_their_sample(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar") as writer:
        for number in range(ROWS):
            writer.write({"__key__": str(number), "cls": number})
    shards = TarDataset(tmp_path / "a.tar", decode=lambda data, suffix: feedline.rng().random())
    indices = list(range(5, 9))

    class AtOnce(Singly):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [{"draw": each["cls"]} for each in shards.__getitems__(indices)]

    class OneByOne(Singly):
        def __getitem__(self, index: int) -> Any:
            return {"draw": shards[index]["cls"]}

    for sampler in (None, [3, 3, 1]):
        wrapped = (Subset(AtOnce(shards), indices), Subset(OneByOne(shards), indices))
        assert draws(wrapped[0], sampler) == draws(wrapped[1], sampler)
