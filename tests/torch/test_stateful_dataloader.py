"""`StatefulDataLoader`: torchdata's name and signature, so that one line is changed."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Iterator
from itertools import islice
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torchs
from kinds import FORK, INLINE, THREADS

from feedline import OptionError, StateError
from feedline.torch import DataLoader, StatefulDataLoader, with_feedline

ASKED = get_context("fork").Value("i", 0)
"""How often a state was asked for, in all processes."""


class Numbers(torchs.IterableDataset[int]):
    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        info = torchs.get_worker_info()
        numbers = range(40) if info is None else range(info.id, 40, info.num_workers)
        while self.at < len(numbers):
            self.at += 1
            yield numbers[self.at - 1] * 1000 + int(np.random.randint(1000))
        self.at = 0

    def state_dict(self) -> Any:
        with ASKED.get_lock():
            ASKED.value += 1
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


def made(every: int | None = 1, **options: Any) -> Any:
    generator = torch.Generator().manual_seed(3)
    return StatefulDataLoader(Numbers(), 2, generator=generator, snapshot_every_n_steps=every, **options)


def listed(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def test_it_takes_what_torchdatas_takes_in_that_order() -> None:
    torchs_names = list(inspect.signature(torchs.DataLoader.__init__).parameters)
    names = list(inspect.signature(StatefulDataLoader.__init__).parameters)
    assert names[: len(torchs_names)] == torchs_names
    assert inspect.signature(StatefulDataLoader).parameters["snapshot_every_n_steps"].default == 1
    loader = StatefulDataLoader(list(range(4)), 2, snapshot_every_n_steps=7, on_error="skip")
    assert isinstance(loader, DataLoader)
    assert (loader.snapshot_every_n_steps, loader.on_error) == (7, "skip")
    with pytest.raises(OptionError, match="snapshot_every_n_steps"):
        StatefulDataLoader(list(range(4)), snapshot_every_n_steps=-1)


@pytest.mark.parametrize("every", [0, None, 1, 2, 3, 100])
@pytest.mark.parametrize("buffer", [0, 3])
def test_it_goes_on_exactly_however_seldom_the_state_is_asked_for(every: int | None, buffer: int) -> None:
    for kind in (INLINE, THREADS):
        with made(shuffle_buffer=buffer, **kind) as loader:
            whole = listed(loader)
        for stop in (0, 1, 2, 3, 4, 7, 19):
            with made(every, shuffle_buffer=buffer, **kind) as loader:
                first = listed(islice(loader, stop))
                state = loader.state_dict()
            with made(every, shuffle_buffer=buffer, **kind) as again:
                again.load_state_dict(state)
                assert first + listed(again) == whole


@pytest.mark.parametrize(("every", "asked"), [(1, 20), (3, 7), (0, 1)])
@pytest.mark.parametrize("kind", [INLINE, {**FORK, "num_workers": 1}])
def test_the_state_is_asked_for_as_seldom_as_was_said(every: int, asked: int, kind: dict[str, Any]) -> None:
    ASKED.value = 0
    with made(every, **kind) as loader:
        list(loader)
    before = kind is INLINE  # once before anything is read, should a state be loaded into it afterwards
    assert asked <= ASKED.value - before <= asked + 1  # and once at the end, for the next epoch


def test_an_empty_state_is_none_and_torchdatas_is_refused_by_name() -> None:
    loader = made()
    loader.load_state_dict({})
    assert len(listed(loader)) == 20
    for state in ({"_snapshot": {}, "_steps_since_snapshot": 0}, {"_num_yielded": 3}):
        with pytest.raises(StateError, match="saved by torchdata's StatefulDataLoader"):
            loader.load_state_dict(state)
    with pytest.raises(StateError, match="not the state of a feedline loader"):
        loader.load_state_dict(3)


def test_states_are_those_of_the_other_loader() -> None:
    loader = made(5)
    first = listed(islice(loader, 7))
    plain = DataLoader(Numbers(), 2, generator=torch.Generator())
    plain.load_state_dict(loader.state_dict())
    assert first + listed(plain) == listed(made())


def test_copies_and_loaders_made_of_it_know_how_often() -> None:
    loader = made(5)
    again = with_feedline(loader, in_order=False)
    for other in (copy.copy(loader), with_feedline(loader), again, pickle.loads(pickle.dumps(made(5)))):
        assert other.snapshot_every_n_steps == other._feedline.own.snapshot_every_n_steps == 5
