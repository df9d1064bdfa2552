"""A state that is loaded into a stream's dataset is for one epoch, and for one part; what is read again is compared."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from idioms import SIZE, Around, CountingEpochs, Keeping, Shuffling, Thing, Told, Torchdatas, is_whole, numbers
from kinds import FORK, INLINE, THREADS
from torch.utils.data import IterableDataset

import feedline
from feedline.reading.seen import seen
from feedline.torch import DataLoader
from feedline.workers.copying import set_apart

LASTING = {**FORK, "persistent_workers": True}
OTHERS = "gave other elements than those that had been delivered"

KINDS = [
    pytest.param(INLINE, id="inline"),
    pytest.param({**THREADS, "persistent_workers": True}, id="threads"),
    pytest.param(LASTING, id="fork"),
]


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("kind", [Keeping, Around])
@pytest.mark.parametrize("batches", [7, 19, 99])  # 19: all that one of two workers has, which does not know it yet
def test_later_epochs_are_whole(kind: Any, options: dict[str, Any], batches: int, told: Told) -> None:
    with DataLoader(kind(), batch_size=2, **options) as loader:
        first = numbers(islice(iter(loader), batches)) if batches < 99 else (numbers(loader), [])[1]
        state = loader.state_dict()
    with DataLoader(kind(), batch_size=2, **options) as loader:
        loader.load_state_dict(state)
        assert is_whole(first + numbers(loader))
        assert [is_whole(numbers(loader)) for _ in range(3)] == [True] * 3
    assert told() == ""


class Ordered(IterableDataset[int]):
    """Begins where a state was loaded whenever it is opened, in the order of the epoch which it was told."""

    start = at = epoch = 0

    def __iter__(self) -> Iterator[int]:
        self.at = self.start
        while self.at < SIZE:
            self.at += 1
            yield self.epoch * SIZE + self.at - 1

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.start = state["at"]

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Slotted(Ordered):
    """Without a dictionary of its own, where its bases have none."""

    __slots__ = ("at", "epoch", "start")

    def __init__(self) -> None:
        self.start = self.at = self.epoch = 0


class Passing(IterableDataset[int]):
    """Holds the one that is told."""

    def __init__(self) -> None:
        self.inner = Ordered()

    def __iter__(self) -> Iterator[int]:
        return (each for each in self.inner)

    def state_dict(self) -> Any:
        return self.inner.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        self.inner.set_epoch(epoch)


@pytest.mark.parametrize("kind", [Ordered, Slotted, Passing])
@pytest.mark.parametrize("early", [False, True])
def test_an_epoch_that_the_user_tells_the_dataset_holds(kind: Any, early: bool, told: Told) -> None:
    loader = DataLoader(kind(), batch_size=2)
    first = numbers(islice(iter(loader), 5))
    state = loader.state_dict()
    dataset = kind()
    inner = getattr(dataset, "inner", dataset)  # which the user has, too
    loader = DataLoader(dataset, batch_size=2)
    loader.load_state_dict(state)
    whole = list(range(SIZE))
    batches = iter(loader)
    found = first + numbers(islice(batches, 2))
    if early:
        dataset.set_epoch(1)  # not for this one, whose elements say it all the same
    assert [each % SIZE for each in found + numbers(batches)] == whole
    for epoch in range(1, 4):
        (dataset if epoch < 3 else inner).set_epoch(epoch)
        assert numbers(loader) == [epoch * SIZE + each for each in whole]
        assert inner.epoch == epoch
    assert told() == ""


@pytest.mark.parametrize("now", [INLINE, {**FORK, "num_workers": 3}, {**THREADS, "num_workers": 1}])
@pytest.mark.parametrize("batches", [6, 99])
def test_with_another_number_of_workers_too(now: dict[str, Any], batches: int, told: Told) -> None:
    with DataLoader(Keeping(), batch_size=2, **LASTING) as loader:
        first = numbers(islice(iter(loader), batches)) if batches < 99 else (numbers(loader), [])[1]
        state = loader.state_dict()
    with DataLoader(Keeping(), batch_size=2, **{"persistent_workers": bool(now), **now}) as loader:
        loader.load_state_dict(state)
        assert is_whole(first + numbers(loader))
        # What each says at its end is how far its part went: half of another's.
        assert ("so the epoch begins without these states" in told()) is (batches == 99)
        assert [is_whole(numbers(loader)) for _ in range(2)] == [True] * 2


class Stuck(Keeping):
    """Does not say where it stands before it is read."""

    def state_dict(self) -> Any:
        if not self.at:
            raise RuntimeError
        return super().state_dict()


def test_who_cannot_be_put_back_is_told(told: Told) -> None:
    loader = DataLoader(Stuck(), batch_size=2)
    first = numbers(islice(iter(loader), 5))
    state = loader.state_dict()
    loader = DataLoader(Stuck(), batch_size=2)
    loader.load_state_dict(state)
    assert is_whole(first + numbers(loader))
    told()
    assert len(numbers(loader)) == SIZE - 10
    assert "begins this epoch in the middle: it is still at the state that was loaded into it" in told()


class Lagging(Keeping):
    """What it says at its end is not yet its end."""

    def state_dict(self) -> Any:
        return {"at": max(0, self.at - 3)}


def test_an_end_that_is_none_is_told(told: Told) -> None:
    loader = DataLoader(Lagging(), batch_size=2)
    numbers(loader)
    state = loader.state_dict()
    loader = DataLoader(Lagging(), batch_size=2)
    loader.load_state_dict(state)
    assert len(numbers(loader)) == 3
    assert f"gave 3 elements in epoch 1, and {SIZE} in the epoch before it, for which a state was loaded" in told()


class Halfway(feedline.IterableDataset[Any], Keeping):
    """Promises a complete state, and says how far its part went."""

    __iter__ = Keeping.__iter__


def test_a_state_that_is_of_another_number_of_parts_is_told(told: Told) -> None:
    with DataLoader(Halfway(), batch_size=2, **LASTING) as loader:
        numbers(loader)
        state = loader.state_dict()
    loader = DataLoader(Halfway(), batch_size=2)
    loader.load_state_dict(state)
    assert len(numbers(loader)) == SIZE // 2
    assert f"gave {SIZE // 2} elements in epoch 1, and {SIZE} in the epoch before it" in told()


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("kind", [Shuffling, CountingEpochs])
def test_a_resumed_stream_in_another_order_is_told(kind: Any, options: dict[str, Any], told: Told) -> None:
    with DataLoader(kind(), batch_size=2, **options) as loader:
        numbers(loader)
        first = numbers(islice(iter(loader), 6))
        state = loader.state_dict()
    told()
    with DataLoader(kind(), batch_size=2, **options) as loader:
        loader.load_state_dict(state)
        assert not is_whole(first + numbers(loader))
        assert OTHERS in told()
        assert is_whole(numbers(loader))


def test_a_part_that_had_said_nothing_yet_is_told(told: Told) -> None:
    with DataLoader(Torchdatas(), batch_size=2, **LASTING) as loader:
        numbers(loader)
        first = numbers(islice(iter(loader), 1))
        state = loader.state_dict()
    with DataLoader(Torchdatas(), batch_size=2, **LASTING) as loader:
        loader.load_state_dict(state)
        assert not is_whole(first + numbers(loader))
    assert "nothing had been delivered of 1 part of the IterableDataset Torchdatas" in told()


def test_after_resuming_with_more_workers_they_draw_alike(told: Told) -> None:
    with DataLoader(Shuffling(), batch_size=2, **{**LASTING, "num_workers": 1}) as loader:
        first = numbers(islice(iter(loader), 3))
        state = loader.state_dict()
    with DataLoader(Shuffling(), batch_size=2, **{**LASTING, "num_workers": 3}) as loader:
        loader.load_state_dict(state)
        assert is_whole(first + numbers(loader))
        assert [is_whole(numbers(loader)) for _ in range(2)] == [True] * 2


# ---- threads


class Cache(dict[str, Any]):
    """As Hugging Face's cache of file systems: to copy what is in it adds to it, the first times."""


class Growing:
    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    def __deepcopy__(self, memo: Any) -> Growing:
        if len(self.cache) < 3:
            self.cache[f"copy {len(self.cache)}"] = None
        return Growing(memo.get(id(self.cache), self.cache))


class Cached(Keeping):
    """Keeps its place in something that a shallow copy shares."""

    def __init__(self) -> None:
        self.place = {"at": 0, "start": 0}
        self.cache: Any = {}
        self.cache["first"] = Growing(self.cache)

    def __iter__(self) -> Iterator[int]:
        self.place["at"] = self.place["start"]
        for number in self.share()[self.place["at"] :]:
            self.place["at"] += 1
            yield number

    def state_dict(self) -> Any:
        return {"at": self.place["at"]}

    def load_state_dict(self, state: Any) -> None:
        self.place["start"] = state["at"]


def test_threads_have_each_its_own_of_what_changes_when_it_is_copied(told: Told) -> None:
    with DataLoader(Cached(), batch_size=2, **THREADS) as loader:
        first = numbers(islice(iter(loader), 5))
        state = loader.state_dict()
    with DataLoader(Cached(), batch_size=2, **THREADS) as loader:
        loader.load_state_dict(state)
        assert is_whole(first + numbers(loader))
    assert told() == ""


def test_what_changes_when_it_is_copied_is_copied_all_the_same() -> None:
    stream = Cached()
    assert set_apart(stream).place is not stream.place


class Locked(Keeping):
    """Cannot be copied."""

    def __init__(self) -> None:
        self.kept = {"lock": threading.Lock(), "made": (each for each in ())}


def test_threads_that_share_a_dataset_with_a_state_are_told(told: Told) -> None:
    with DataLoader(Locked(), batch_size=2, **THREADS) as loader:
        numbers(loader)
    assert "the IterableDataset Locked has a state_dict(), but it cannot be copied" in told()


# ---- what is compared


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, True),
        (1.5, 1.25),
        ("a", "b"),
        (b"a", "a"),
        ([1, 2], [2, 1]),
        ((1, 2), [1, 2]),
        ({"x": 1}, {"y": 1}),
        (None, 0),
        (np.int64(1), np.int64(2)),
        (np.arange(3), np.arange(3.0)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (torch.arange(3), torch.arange(1, 4)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.float16)),
        ({"x": [torch.ones(2)]}, {"x": [torch.zeros(2)]}),
    ],
)
def test_elements_are_told_apart(one: Any, other: Any) -> None:
    assert seen(one, 0) == seen(one, 0) != seen(other, 0) != None  # noqa: E711
    assert seen(one, 0) != seen(one, 1)


@pytest.mark.parametrize(
    "thing",
    [
        Thing(1),
        [1, Thing(1)],
        {"x": Thing(1)},
        type("Number", (int,), {})(1),
        np.array([Thing(1)]),
        torch.zeros(2).to_sparse(),
        torch.zeros(2, device="meta"),
        {1, 2},
    ],
)
def test_of_anything_else_there_is_no_number(thing: Any) -> None:
    assert seen(thing, 0) is None
