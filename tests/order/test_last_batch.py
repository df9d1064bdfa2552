"""A shuffling loader whose last batch would have one sample says so, once; any other is silent."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    Mixture,
    MixtureSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

HINT = "the last batch of each epoch has a single sample"


def said(loader: Any, epochs: int = 1) -> list[str]:
    """What is said while that many epochs are begun; nothing of it later."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        iterators = [iter(loader) for _ in range(epochs)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for iterator in iterators:
            assert len(list(iterator)) > 0
    return [str(each.message) for each in caught]


@given(length=st.integers(1, 60), batch_size=st.integers(1, 12), drop_last=st.booleans(), shuffle=st.booleans())
def test_it_is_said_exactly_when_a_shuffled_epoch_ends_so(length, batch_size, drop_last, shuffle):
    sizes = [len(batch) for batch in np.array_split(np.arange(length), range(batch_size, length, batch_size))]
    expected = shuffle and not drop_last and len(sizes) > 1 and batch_size > 1 and sizes[-1] == 1
    loader = DataLoader(np.arange(length), batch_size, shuffle, drop_last=drop_last)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        iter(loader)
    assert [HINT in str(each.message) for each in caught] == [True] * expected


def test_it_is_said_once_by_each_loader():
    for _ in range(2):
        (message,) = said(DataLoader(np.arange(33), batch_size=8, shuffle=True), epochs=3)
        assert "(33 in batches of 8)" in message
        assert "Pass drop_last=True" in message


def test_where_warnings_are_errors_the_next_epoch_is_the_first():
    loader, other = (DataLoader(np.arange(33), batch_size=8, shuffle=True, seed=1) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=HINT):
            iter(loader)
        found = [batch.tolist() for batch in loader]
    assert said(other)
    other.set_epoch(0)
    assert found == [batch.tolist() for batch in other]


class Own(Sampler):
    def order(self, seed, epoch):
        return np.arange(33)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(33))


DATA = np.arange(66)
SAID: dict[str, dict[str, Any]] = {
    "random": {"sampler": RandomSampler(33)},
    "random, longer": {"sampler": RandomSampler(5, num_samples=33)},
    "subset": {"sampler": SubsetRandomSampler(range(33))},
    "weighted": {"sampler": WeightedRandomSampler(np.ones(33), 33)},
    "mixture": {"sampler": MixtureSampler(Mixture({"a": range(30), "b": range(3)}), {"a": 1, "b": 1})},
    "a rank's share": {"sampler": DistributedSampler(DATA, num_replicas=2, rank=0)},
    "a rank's share of another": {"sampler": DistributedSampler(RandomSampler(66), num_replicas=2, rank=1)},
}
SILENT: dict[str, dict[str, Any]] = {
    "even": {"sampler": RandomSampler(32)},
    "two at the end": {"sampler": RandomSampler(34)},
    "sequential": {"sampler": SequentialSampler(33)},
    "indices in a list": {"sampler": list(range(33))},
    "a sampler of one's own": {"sampler": Own()},
    "a rank's share in order": {"sampler": DistributedSampler(DATA, num_replicas=2, rank=0, shuffle=False)},
    "the whole is no share": {"sampler": DistributedSampler(np.arange(33), num_replicas=3, rank=0)},
    "batches of one": {"sampler": RandomSampler(33), "batch_size": 1},
    "no batches": {"sampler": RandomSampler(33), "batch_size": None},
    "dropped": {"sampler": RandomSampler(33), "drop_last": True},
    "a single sample is all": {"sampler": RandomSampler(1)},
}


@pytest.mark.parametrize("options", SAID.values(), ids=SAID)
def test_of_samplers_that_shuffle_it_is_said(options):
    assert len(said(DataLoader(DATA, **{"batch_size": 8, **options}))) == 1


@pytest.mark.parametrize("options", SILENT.values(), ids=SILENT)
def test_of_others_it_is_not(options):
    assert said(DataLoader(DATA, **{"batch_size": 8, **options})) == []


def test_batch_samplers_are_asked_if_they_are_known():
    assert "Pass drop_last=True;" in str(said(DataLoader(DATA, batch_size=8, sampler=RandomSampler(33))))
    (hint,) = said(DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(33), 8)))
    assert "Pass drop_last=True to the BatchSampler;" in str(hint)  # the loader would refuse it
    assert not said(DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(33), 8, drop_last=True)))
    assert not said(DataLoader(DATA, batch_sampler=[[0, 1], [2]]))


def test_streams_are_not_counted():
    assert not said(DataLoader(Stream(), batch_size=8, shuffle_buffer=4))


def test_a_sampler_that_does_not_know_its_length_is_let_be():
    class Endless(RandomSampler):
        def __len__(self):
            raise TypeError("no length")

        def __iter__(self):
            return iter(range(33))

    assert not said(DataLoader(DATA, batch_size=8, sampler=Endless(33)))
