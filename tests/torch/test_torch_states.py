"""A state of feedline.torch: what is in it, when it is refused, and what its loader says of its epoch."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
import torch

import feedline
import feedline.torch as ours
from feedline import StateError


def test_a_state_is_small_and_before_in_and_after_an_epoch_it_means_what_it_says() -> None:
    loader = ours.DataLoader(range(6), batch_size=2, shuffle=True)
    assert not loader.state_dict()["torch"]["begun"]
    iterator = iter(loader)
    begun = loader.state_dict()
    assert (begun["epoch"], begun["batches"], begun["torch"]["begun"]) == (0, 0, True)
    seen = [json.dumps(loader.state_dict()) for _ in iterator]
    assert max(map(len, seen)) < 1024
    assert (loader.epoch, loader.state_dict()["batches"]) == (1, 0)
    loader.load_state_dict(json.loads(seen[-1]))
    assert list(loader) == []
    assert len(list(loader)) == 3


def loader_of(n: int = 12, generator: int | None = None, **options: Any) -> Any:
    made = None if generator is None else torch.Generator().manual_seed(generator)
    return ours.DataLoader(range(n), **{"batch_size": 3, "shuffle": True, "generator": made, **options})


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (loader_of(13), "another length when it was saved: 12, and now 13"),
        (loader_of(shuffle=False), "'torch.RandomSampler', and now 'torch.SequentialSampler'"),
        (loader_of(batch_size=None), "'batch_size', and now 'nobody'"),
        (loader_of(generator=1), "other objects had a generator= when it was saved: none, and now the loader's"),
        (feedline.DataLoader(range(12), batch_size=3, shuffle=True), "'torch.RandomSampler', and now 'RandomSampler'"),
    ],
)
def test_a_state_of_something_else_is_refused_by_what_differs(other: Any, words: str) -> None:
    loader = loader_of()
    next(iter(loader))
    with pytest.raises(StateError, match=words):
        other.load_state_dict(loader.state_dict())


def test_a_damaged_state_is_refused() -> None:
    loader = loader_of(generator=4)
    next(iter(loader))
    state = loader.state_dict()
    drawn = state["torch"]
    for wrong in (
        {},
        None,
        {**drawn, "taken": {"loader": "AAAA"}},
        {**drawn, "seed": "x"},
        {**drawn, "taken": {"loader": "?"}},
    ):
        with pytest.raises(StateError, match="damaged"):
            loader.load_state_dict({**state, "torch": wrong})
    with pytest.raises(StateError, match="damaged"):
        loader.load_state_dict({**state, "seed": None})
    del state["torch"]
    with pytest.raises(StateError, match=r"saved by feedline\.DataLoader"):
        loader.load_state_dict(state)
    with pytest.raises(ValueError, match="whole number"):
        loader.set_epoch(-1)


def test_a_subclass_may_have_an_epoch_of_its_own() -> None:
    class Own(ours.DataLoader):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.epoch = "mine"

    assert Own(range(3)).epoch == "mine"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_stands_where_the_loader_stands(copied: Any) -> None:
    loader = ours.DataLoader(range(10), batch_size=2, shuffle=True)
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    state = loader.state_dict()
    assert copied(loader).state_dict() == state
    rest = [batch.tolist() for batch in iterator]
    again = ours.DataLoader(range(10), batch_size=2, shuffle=True)
    again.load_state_dict(state)
    for _ in range(2):  # what a copy has read, the loader and another copy have not
        assert [batch.tolist() for batch in copied(again)] == rest
    assert [batch.tolist() for batch in again] == rest
    assert copied(again).epoch == 1
