"""Places where a run was gone on with wrongly, as a review found them: each is a promise of docs/resuming.md."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch.utils.data

import feedline
import feedline.torch
from feedline import DistributedSampler, RandomSampler, SequentialSampler, StateError, WeightedRandomSampler

FRONTS = {"core": feedline.DataLoader, "torch": feedline.torch.DataLoader}


@pytest.fixture(params=FRONTS)
def front(request: pytest.FixtureRequest) -> Any:
    return FRONTS[request.param]


def listed(batches: Any) -> list[list[int]]:
    return [torch.as_tensor(batch).tolist() for batch in batches]


def after_json(loader: Any) -> Any:
    return json.loads(json.dumps(loader.state_dict()))


# ---- batches delivered ahead


def test_batches_delivered_ahead_count_once_the_epoch_has_come_past_them(front: Any) -> None:
    def loader() -> Any:
        return front(list(range(20)), batch_size=2, in_order=False)

    first = loader()
    next(iter(first))
    # As if workers had been out of order: batches 0 and 3 were delivered.
    state = {**first.state_dict(), "batches": 1, "samples": 2, "ahead": [3], "batch_size": 2}
    state.pop("last")
    second = loader()
    second.load_state_dict(state)
    batches = iter(second)
    assert listed(next(batches) for _ in range(4)) == [[2, 3], [4, 5], [8, 9], [10, 11]]
    state = after_json(second)
    assert (state["batches"], state["samples"], "ahead" in state) == (6, 12, False)
    third = loader()
    third.load_state_dict(state)
    assert listed(third) == [[12, 13], [14, 15], [16, 17], [18, 19]]


def test_with_batches_ahead_the_batch_size_must_stay(front: Any) -> None:
    loader = front(list(range(20)), batch_size=2, in_order=False)
    next(iter(loader))
    state = {**loader.state_dict(), "ahead": [3], "batch_size": 2}
    with pytest.raises(StateError, match="batch_size was 2 then and is 5 now"):
        front(list(range(20)), batch_size=5, in_order=False).load_state_dict(state)


# ---- the end of an epoch on several ranks


@pytest.mark.parametrize(
    ("count", "uneven", "before", "after"),
    [
        (10, "drop", (3, 2), (2, 3)),
        (10, "pad", (4, 2), (8, 1)),
        (10, "exact", (3, 2), (2, 3)),
        (25, "pad", (2, 6), (4, 3)),
    ],
)
def test_after_the_last_batch_nothing_is_left_whatever_the_number_of_ranks(
    front: Any, count: int, uneven: str, before: tuple[int, int], after: tuple[int, int]
) -> None:
    def loader(ranks: int, size: int, rank: int) -> Any:
        sampler = DistributedSampler(SequentialSampler(count), ranks, rank, uneven=uneven)
        return front(list(range(count)), batch_size=size, sampler=sampler)

    for rank in range(before[0]):
        saved = loader(*before, rank)
        batches = iter(saved)
        for _ in range(len(saved)):
            next(batches)
        for other in range(after[0]):
            again = loader(*after, other)
            again.load_state_dict(after_json(saved))
            assert listed(again) == []
            assert len(listed(again)) == len(again)  # the next epoch is whole


@pytest.mark.parametrize("uneven", ["pad", "drop", "exact"])
@pytest.mark.parametrize("repeating", [False, True])
def test_augmentations_do_not_depend_on_the_number_of_ranks(front: Any, uneven: str, repeating: bool) -> None:
    class Noisy(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 30

        def __getitem__(self, index: int) -> tuple[int, float]:
            return index, float(feedline.rng().random())

    def seen(ranks: int) -> set[tuple[int, float]]:
        found: set[tuple[int, float]] = set()
        for rank in range(ranks):
            inner = WeightedRandomSampler([1.0] * 30, 30, seed=3) if repeating else RandomSampler(30, seed=3)
            sampler = DistributedSampler(inner, ranks, rank, uneven=uneven)
            torch.manual_seed(0)
            options = {"seed": 3} if front is feedline.DataLoader else {"generator": torch.Generator().manual_seed(1)}
            for indices, draws in front(Noisy(), batch_size=30 // ranks, sampler=sampler, **options):
                found |= set(zip(torch.as_tensor(indices).tolist(), torch.as_tensor(draws).tolist(), strict=True))
        return found

    assert len(seen(1)) == 30
    assert seen(1) == seen(3) == seen(5)
    assert seen(1) <= seen(4) if uneven == "pad" else seen(4) <= seen(1)  # 30 is not divided by 4


# ---- what is loaded stays loaded, what is saved stays saved


def test_an_iteration_that_cannot_be_begun_leaves_the_place_where_it_was() -> None:
    loader = feedline.DataLoader(list(range(10)), batch_size=1)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = after_json(loader)
    shared = feedline.DataLoader(
        list(range(10)), batch_size=1, sampler=DistributedSampler(SequentialSampler(10), 2, 0, seed=0)
    )
    state["sampler"] = shared.state_dict()["sampler"]
    shared.load_state_dict(state)
    for _ in range(2):
        with pytest.raises(StateError, match="2 ranks cannot share evenly"):
            iter(shared)
        assert shared.epoch == 0
        assert shared.state_dict()["batches"] == 3


class Locked(torch.utils.data.Dataset[int]):
    """Cannot travel to a worker while it holds a lock."""

    def __init__(self) -> None:
        self.lock: Any = None

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


def test_workers_that_cannot_be_started_leave_the_place_where_it_was(front: Any) -> None:
    loader = front(Locked(), batch_size=2)
    batches = iter(loader)
    next(batches)
    data = Locked()
    again = front(data, batch_size=2, num_workers=1, multiprocessing_context="forkserver")
    again.load_state_dict(after_json(loader))
    data.lock = threading.Lock()
    with pytest.raises(feedline.ShippingError):
        iter(again)
    data.lock = None
    assert listed(again) == listed(batches)


class Failing:
    """A sampler that fails in the middle, once."""

    fails = True

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[int]:
        for index in range(10):
            if index == 6 and Failing.fails:
                raise OSError("no connection")
            yield index


def test_a_sampler_that_failed_has_not_ended_the_epoch(front: Any) -> None:
    Failing.fails = True
    loader = front(list(range(10)), batch_size=2, sampler=Failing())
    with pytest.raises(OSError, match="no connection"):
        listed(loader)
    Failing.fails = False
    again = front(list(range(10)), batch_size=2, sampler=Failing())
    again.load_state_dict(after_json(loader))
    assert listed(again) == [[6, 7], [8, 9]]


class Counting:
    """A sampler that hands out the very dict it counts in."""

    def __init__(self) -> None:
        self.state: Any = {"at": 0}

    def __len__(self) -> int:
        return 20

    def __iter__(self) -> Iterator[int]:
        while self.state["at"] < 20:
            self.state["at"] += 1
            yield self.state["at"] - 1

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "workers": "thread"}])
def test_a_stateful_samplers_state_is_a_copy(front: Any, options: dict[str, Any]) -> None:
    loader = front(list(range(20)), batch_size=2, sampler=Counting(), **options)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    written = json.dumps(state)
    list(batches)
    again = front(list(range(20)), batch_size=2, sampler=Counting(), **options)
    again.load_state_dict(state)
    assert listed(again)[0] == [2, 3]
    assert json.dumps(state) == written


class KeptByItsIterator:
    """As torchdata's convention has it: the sampler's iterator keeps the place, and nobody else could."""

    def __len__(self) -> int:
        return 20

    def __iter__(self) -> Any:
        return Drawing()


class Drawing(Counting):
    def __init__(self) -> None:
        self.state = {"at": 0, "key": next(KEYS)}

    def __next__(self) -> int:
        if self.state["at"] == 20:
            raise StopIteration
        self.state["at"] += 1
        return int(self.state["at"] * self.state["key"] % 20)


KEYS = itertools.cycle([7, 11, 13, 17])


@pytest.mark.parametrize("stop", [3, 10])
def test_a_samplers_iterator_that_keeps_its_place_is_asked(front: Any, stop: int) -> None:
    loader = front(list(range(20)), batch_size=2, sampler=KeptByItsIterator())
    batches = iter(loader)
    for _ in range(stop):
        next(batches)
    again = front(list(range(20)), batch_size=2, sampler=KeptByItsIterator())
    again.load_state_dict(after_json(loader))
    assert listed(again) == listed(batches)


def test_a_state_saved_from_another_thread_is_never_torn() -> None:
    loader = feedline.DataLoader(np.arange(6_000), batch_size=2)
    torn: list[Any] = []
    stop = threading.Event()

    def save() -> None:
        while not stop.is_set():
            state = loader.state_dict()
            if state["samples"] != 2 * state["batches"]:
                torn.append(state)

    thread = threading.Thread(target=save)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # a thousand times the usual chance to come in between
    thread.start()
    for _ in loader:
        pass
    stop.set()
    thread.join()
    sys.setswitchinterval(before)
    assert torn == []


def test_the_epoch_a_sampler_was_told_by_hand_is_in_the_state() -> None:
    def loader() -> tuple[feedline.DataLoader, DistributedSampler]:
        sampler = DistributedSampler(list(range(24)), 2, 0, seed=5)
        return feedline.DataLoader(list(range(24)), batch_size=2, sampler=sampler), sampler

    first, sampler = loader()
    sampler.set_epoch(7)
    batches = iter(first)
    next(batches)
    again, _ = loader()
    again.load_state_dict(after_json(first))
    assert listed(again) == listed(batches)


@pytest.mark.parametrize("sampler", ["torch", "ours"])
def test_forever_reshuffles_under_a_distributed_sampler(front: Any, sampler: str) -> None:
    data = list(range(40))
    make: Callable[..., Any] = torch.utils.data.DistributedSampler if sampler == "torch" else DistributedSampler
    endless = front(data, batch_size=4, sampler=make(data, 2, 0)).forever(batches_per_epoch=5)
    assert len({str(listed(endless)) for _ in range(4)}) == 4


# ---- damaged states


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("seed", value) for value in (None, "x", 1.5, [], -1, True, 1 << 64)],
        *[("feedline", value) for value in (True, 2, "1")],
        *[(name, value) for name in ("epoch", "batches", "samples") for value in (None, -1, True, 10**30, "3")],
        ("sampler_epoch", -1),
        ("last", [1, -1]),
    ],
)
def test_a_damaged_state_is_refused_when_it_is_loaded(name: str, value: Any) -> None:
    loader = feedline.DataLoader(list(range(10)), batch_size=2)
    next(iter(loader))
    with pytest.raises(StateError):
        feedline.DataLoader(list(range(10)), batch_size=2).load_state_dict({**loader.state_dict(), name: value})


class Stream(feedline.IterableDataset):
    at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 40:
            self.at += 1
            yield self.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize(
    "damage",
    [
        {"shards": 10**8},
        {"batches": [[0, 10**12]]},
        {"batches": [[1]]},
        {"batches": [[-1, 2]]},
        {"kept": "AAA="},
        {"seq": 10**9},
    ],
)
def test_a_damaged_state_of_a_stream_is_refused_and_does_not_hang(damage: dict[str, Any]) -> None:
    loader = feedline.DataLoader(Stream(), batch_size=2, shuffle_buffer=4)
    batches = iter(loader)
    for _ in range(10):
        next(batches)
    state = after_json(loader)
    if "shards" in damage:
        state |= damage
    else:
        state["streams"]["0"]["shuffle"] |= damage
    with pytest.raises(StateError, match="damaged"):
        feedline.DataLoader(Stream(), batch_size=2, shuffle_buffer=4).load_state_dict(state)


@pytest.mark.parametrize("given", [-3, True, "2", None])
def test_a_damaged_state_of_forever_is_refused(given: Any) -> None:
    endless = feedline.DataLoader(list(range(10)), batch_size=2).forever(3)
    with pytest.raises(StateError, match="no number of batches given"):
        endless.load_state_dict({**endless.state_dict(), "given": given})
