"""Splits and mixtures in feedline.torch: torch's Subsets, read by the batch; mixtures in feedline's order."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

import feedline
import feedline.torch
from feedline.torch import (
    DataLoader,
    Dataset,
    DistributedSampler,
    Mixture,
    MixtureSampler,
    Subset,
    TensorDataset,
    split,
)
from feedline.torch.reading import batch_reader, reads_many

THREE = {"train": 0.8, "val": 0.1, "test": 0.1}


class Strict(Dataset[int]):
    """As one over a database: NumPy's numbers will not do."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        assert type(index) is int
        return index


@pytest.mark.parametrize("way", ["fraction", "labels", "groups", "keys"])
def test_the_parts_are_those_of_feedline_as_torchs_subsets(way: str) -> None:
    values: dict[str, Any] = {} if way == "fraction" else {way: torch.arange(50) // 2}
    parts = split(Strict(), THREE, seed=2, **values)
    expected = feedline.split(range(50), THREE, seed=2, **values)
    assert {name: list(part) for name, part in parts.items()} == {name: list(part) for name, part in expected.items()}
    assert all(type(part) is Subset for part in parts.values())
    assert sorted(itertools.chain(*parts.values())) == list(range(50))


def test_a_part_is_read_by_the_batch_where_the_dataset_can_be() -> None:
    data = TensorDataset(torch.arange(100) * 10, torch.arange(100))
    train = split(data, THREE)["train"]
    assert batch_reader(train) is not None
    assert batch_reader(split(Strict(), THREE)["train"]) is None
    ours = list(DataLoader(train, batch_size=32))
    torchs = list(torch.utils.data.DataLoader(train, batch_size=32))
    for mine, theirs in zip(ours, torchs, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
    assert list(pickle.loads(pickle.dumps(train)).indices) == list(train.indices)


def test_indices_take_eight_bytes_each() -> None:
    indices: Any = split(range(10_000), {"a": 1})["a"].indices  # type: ignore[arg-type]
    assert memoryview(indices).nbytes == 80_000
    assert np.asarray(indices).dtype == np.int64


# --- mixtures ---


def tensors(first: int, length: int) -> Any:
    return TensorDataset(torch.arange(first, first + length))


MIXTURE = Mixture({"web": tensors(0, 40), "code": tensors(100, 7)})
HALVES = {"web": 0.5, "code": 0.5}


def loader(num_samples: int = 60, **options: Any) -> DataLoader[Any]:
    return DataLoader(MIXTURE, batch_size=10, sampler=MixtureSampler(MIXTURE, HALVES, num_samples), **options)


def values(batches: Any) -> list[int]:
    return [value for (batch,) in batches for value in batch.tolist()]


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 2, "workers": "thread"}])
def test_a_mixture_has_feedlines_order_epoch_after_epoch(workers: dict[str, Any]) -> None:
    order = MixtureSampler(MIXTURE, HALVES, 180).order(0, 0)[:180].tolist()
    with loader(**workers) as one:
        found = values(one) + values(one) + values(one)
    assert found == [MIXTURE[index][0].item() for index in order]
    code = [value for value in found if value >= 100]
    assert sorted(code[:7]) == sorted(code[7:14]) == list(range(100, 107))  # also over the end of an epoch


def test_a_mixture_goes_on_from_a_state_with_other_workers() -> None:
    whole = loader()
    expected = values(whole) + values(whole)
    with loader(num_workers=2) as one:
        iterator = iter(one)
        taken = values(itertools.islice(iterator, 4))
        state = json.loads(json.dumps(one.state_dict()))
    sampler = MixtureSampler(MIXTURE, HALVES, 60)
    passes = sampler.source_epochs(state["epoch"], state["samples"])
    assert passes == {"web": sum(v < 100 for v in taken) / 40, "code": sum(v >= 100 for v in taken) / 7}
    two = loader()
    two.load_state_dict(state)
    assert taken + values(two) + values(two) == expected


def test_ranks_share_a_mixture() -> None:
    def rank(number: int) -> DataLoader[Any]:
        sampler = feedline.DistributedSampler(MixtureSampler(MIXTURE, HALVES, 60), 2, number)
        return DataLoader(MIXTURE, batch_size=5, sampler=sampler)

    first, second, whole = rank(0), rank(1), loader()
    for _ in range(2):
        for one, other, both in zip(first, second, whole, strict=True):
            assert sorted(values([one, other])) == sorted(values([both]))


def test_torchs_own_sampler_for_ranks_takes_a_mixture_as_data() -> None:
    assert len(DistributedSampler(MIXTURE, num_replicas=2, rank=0)) == 24


def test_a_source_that_is_read_singly_has_a_generator_per_sample() -> None:
    class Noisy(Dataset[float]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> float:
            return float(feedline.rng().random())

    mixture = Mixture({"a": Subset(Noisy(), range(5)), "b": split(Noisy(), {"all": 1})["all"]})
    assert not reads_many(mixture)
    generator = torch.Generator().manual_seed(3)
    at_once = list(DataLoader(mixture, batch_size=10, generator=generator))
    generator.manual_seed(3)
    assert torch.cat(list(DataLoader(mixture, batch_size=3, generator=generator))).tolist() == at_once[0].tolist()
