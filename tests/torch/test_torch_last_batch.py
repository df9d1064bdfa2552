"""A last batch of one sample is pointed out in torch's clothes too, with torch's samplers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.utils.data

import feedline
from feedline.torch import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

DATA = range(66)
SHUFFLED: dict[str, dict[str, Any]] = {
    "shuffle": {"dataset": range(33), "shuffle": True},
    "random": {"sampler": RandomSampler(range(33))},
    "subset": {"sampler": SubsetRandomSampler(range(33))},
    "weighted": {"sampler": WeightedRandomSampler([1.0] * 33, 33)},
    "a rank's share": {"sampler": DistributedSampler(DATA, num_replicas=2, rank=0)},
    "feedline's": {"sampler": feedline.RandomSampler(33)},
    "a rank's share, feedline's": {"sampler": feedline.DistributedSampler(DATA, num_replicas=2, rank=0)},
}
SILENT: dict[str, dict[str, Any]] = {
    "in order": {"dataset": range(33)},
    "sequential": {"sampler": SequentialSampler(range(33))},
    "a rank's share in order": {"sampler": DistributedSampler(DATA, num_replicas=2, rank=0, shuffle=False)},
    "dropped": {"dataset": range(33), "shuffle": True, "drop_last": True},
    "no batches": {"dataset": range(33), "shuffle": True, "batch_size": None},
    "even": {"dataset": range(34), "shuffle": True},
}


def said(loader: Any, epochs: int = 2) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(epochs):
            assert len(list(loader)) > 0
    return [str(each.message)[:48] for each in caught]


HINT = ["the last batch of each epoch has a single sample"]


@pytest.mark.parametrize("options", SHUFFLED.values(), ids=SHUFFLED)
def test_it_is_said_once_of_shuffling_loaders(options):
    assert said(DataLoader(**{"dataset": DATA, "batch_size": 8, **options})) == HINT


@pytest.mark.parametrize("options", SILENT.values(), ids=SILENT)
def test_of_others_it_is_not(options):
    assert said(DataLoader(**{"dataset": DATA, "batch_size": 8, **options})) == []


@pytest.mark.parametrize("module", [torch.utils.data, feedline])
def test_batch_samplers_are_asked_if_they_are_known(module):
    class Own(BatchSampler):
        pass

    random = RandomSampler(range(33))
    assert said(DataLoader(DATA, batch_sampler=module.BatchSampler(random, 8, drop_last=False))) == HINT
    assert said(DataLoader(DATA, batch_sampler=module.BatchSampler(random, 8, drop_last=True))) == []
    assert said(DataLoader(DATA, batch_sampler=Own(random, 8, drop_last=False))) == []


def test_where_it_is_an_error_nothing_was_drawn():
    torch.manual_seed(0)
    expected = [batch.tolist() for batch in torch.utils.data.DataLoader(range(33), batch_size=8, shuffle=True)]
    loader = DataLoader(range(33), batch_size=8, shuffle=True)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Pass drop_last=True"):
            iter(loader)
        assert [batch.tolist() for batch in loader] == expected


def test_batch_norm_indeed_fails_on_it():
    with pytest.raises(ValueError, match="Expected more than 1 value per channel when training"):
        torch.nn.BatchNorm1d(3)(torch.zeros(1, 3))


def test_drop_last_belongs_to_whoever_makes_the_batches() -> None:
    batches = BatchSampler(RandomSampler(range(33)), 8, drop_last=False)
    with pytest.warns(UserWarning, match="Pass drop_last=True to the BatchSampler;"):
        next(iter(DataLoader(DATA, batch_sampler=batches)))
    with pytest.warns(UserWarning, match="Pass drop_last=True;"):
        next(iter(DataLoader(range(33), batch_size=8, shuffle=True)))
