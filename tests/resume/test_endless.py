"""Endless loading: exactly N batches per virtual epoch, the data begun anew when it ends, resumable anywhere."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import FORK, THREADS

from feedline import DataLoader, DistributedSampler, FeedlineError, RandomSampler, StateError


def endless(n: int, size: int, per: int, **options: Any) -> Any:
    return DataLoader(np.arange(n), batch_size=size, shuffle=True, seed=3, **options).forever(per)


def passes(n: int, size: int, count: int) -> list[list[int]]:
    """The batches of one pass over the data after the other."""
    loader = DataLoader(np.arange(n), batch_size=size, shuffle=True, seed=3)
    found: list[list[int]] = []
    while len(found) < count:
        found += [batch.tolist() for batch in loader]
    return found[:count]


@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 20), st.integers(1, 4))
def test_virtual_epochs_are_stretches_of_one_endless_sequence(n: int, size: int, per: int, epochs: int) -> None:
    loader = endless(n, size, per)
    assert len(loader) == per
    got = [[batch.tolist() for batch in loader] for _ in range(epochs)]
    assert [len(epoch) for epoch in got] == [per] * epochs
    assert list(itertools.chain(*got)) == passes(n, size, per * epochs)


@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 9), st.lists(st.integers(0, 12), max_size=3))
def test_it_goes_on_after_any_stop(n: int, size: int, per: int, stops: list[int]) -> None:
    state, got = None, []
    for stop in [*stops, 3 * per]:
        loader = endless(n, size, per)
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        iterator = iter(loader)
        for _ in range(stop):
            batch = next(iterator, None)
            if batch is None:  # the virtual epoch is over: on with the next
                iterator = iter(loader)
                batch = next(iterator)
            got.append(batch.tolist())
        state = loader.state_dict()
    assert got == passes(n, size, len(got))


def test_the_rest_of_a_virtual_epoch_comes_first() -> None:
    loader = endless(10, 3, 5)
    list(itertools.islice(loader, 2))
    again = endless(10, 3, 5)
    again.load_state_dict(loader.state_dict())
    assert [len(list(again)) for _ in range(3)] == [3, 5, 5]
    over = endless(10, 3, 5)
    list(itertools.islice(over, 5))
    again.load_state_dict(over.state_dict())  # after the last batch: nothing is left of that one
    assert [len(list(again)) for _ in range(2)] == [0, 5]
    list(over)
    again.load_state_dict(over.state_dict())  # after the loop: a whole new one
    assert [len(list(again)) for _ in range(2)] == [5, 5]


@pytest.mark.parametrize("options", [THREADS, {**FORK, "persistent_workers": True}])
def test_with_workers(options: dict[str, Any]) -> None:
    loader = endless(10, 3, 6, **options)
    assert [batch.tolist() for batch in itertools.chain(loader, loader)] == passes(10, 3, 12)
    loader.loader.close()


def test_ranks_differ() -> None:
    def rank(number: int) -> list[int]:
        sampler = DistributedSampler(RandomSampler(12), 2, number)
        loader = DataLoader(np.arange(12), batch_size=3, sampler=sampler, seed=1).forever(4)
        return np.concatenate(list(loader)).tolist()

    one, two = rank(0), rank(1)
    assert sorted(one[:6] + two[:6]) == sorted(one[6:] + two[6:]) == list(range(12))
    assert one[:6] != one[6:]


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="batches_per_epoch must be at least 1"):
        endless(4, 2, 0)
    with pytest.raises(FeedlineError, match="no batches"):
        next(iter(endless(0, 2, 3)))
    with pytest.raises(StateError, match="not a state of loader"):
        endless(4, 2, 2).load_state_dict(endless(4, 2, 2).loader.state_dict())


@pytest.mark.parametrize("given", [-3, True, "2", None])
def test_a_damaged_state_of_forever_is_refused(given: Any) -> None:
    endless = DataLoader(list(range(10)), batch_size=2).forever(3)
    with pytest.raises(StateError, match="not a number of batches"):
        endless.load_state_dict({**endless.state_dict(), "given": given})
