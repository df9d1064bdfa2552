"""A run that stops goes on with the batch that would have come next, whatever has changed meanwhile."""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, QUICK, SPAWN, THREADS, few, thorough

import feedline
from feedline import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    StateError,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


class Augmented(Dataset[Any]):
    """Every way to be random: the sample's own generator, and the global ones."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        assert 0 <= index < self.length
        return index, feedline.rng().random(), np.random.rand(), random.random()


class Foreign:
    """A sampler that is nothing but an iterable."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter([(7 * place) % max(1, self.length) for place in range(self.length)])


class Keeping(Foreign):
    """One that keeps its own place, and would be wrong if it were taken from its beginning again."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.given = 0

    def __iter__(self) -> Iterator[int]:
        order = list(super().__iter__())
        while self.given < len(order):
            self.given += 1
            yield order[self.given - 1]
        self.given = 0

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


def batch_lists(length: int) -> list[list[int]]:
    return [list(range(first, min(length, first + 1 + first % 3))) for first in range(0, length, 3)]


SAMPLERS: dict[str, Any] = {
    "shuffle": lambda n: {"shuffle": True},
    "sequential": lambda n: {},
    "random": lambda n: {"sampler": RandomSampler(n)},
    "with replacement": lambda n: {"sampler": RandomSampler(n, replacement=True, num_samples=2 * n)},
    "weighted": lambda n: {"sampler": WeightedRandomSampler(np.arange(1, n + 1), 3 * n)},
    "subset": lambda n: {"sampler": SubsetRandomSampler(range(0, n, 2))},
    "foreign": lambda n: {"sampler": Foreign(n)},
    "keeping": lambda n: {"sampler": Keeping(n)},
    "ranks": lambda n: {"sampler": DistributedSampler(RandomSampler(n), 2, 1)},
}
BATCH_SAMPLERS: dict[str, Any] = {
    "lists": lambda n: {"batch_sampler": batch_lists(n)},
    "ours": lambda n: {"batch_sampler": BatchSampler(RandomSampler(n), 3)},
}


def plain(batches: Any) -> list[Any]:
    return [[np.asarray(leaf).tolist() for leaf in batch] for batch in batches]


def saved(loader: DataLoader) -> Any:
    text = json.dumps(loader.state_dict())
    assert len(text) < 1024
    return json.loads(text)


def part(options: Any, n: int, kind: dict[str, Any], state: Any, stop: int) -> tuple[list[Any], Any]:
    """Up to `stop` batches from a state on, in a new loader, and the state then; epochs follow one another."""
    with DataLoader(Augmented(n), **options(n), **kind) as loader:
        if state is not None:
            loader.load_state_dict(state)
        got: list[Any] = []
        while len(got) < stop:
            before = len(got)
            got += itertools.islice(loader, stop - len(got))
            if len(got) == before and not len(loader):
                break
        return plain(got), saved(loader)


KINDS = st.sampled_from([INLINE, INLINE, INLINE, THREADS, {**THREADS, "num_workers": 3}])


@given(
    st.sampled_from(list(SAMPLERS)),
    st.integers(1, 40),
    st.integers(1, 9),
    st.booleans(),
    st.lists(st.integers(0, 30), min_size=2, max_size=3),
    st.lists(KINDS, min_size=4, max_size=4),
)
def test_the_parts_of_a_run_are_the_run(name: str, n: int, size: int, drop: bool, stops: list[int], kinds: Any) -> None:
    check_parts(lambda n: {**SAMPLERS[name](n), "batch_size": size, "drop_last": drop, "seed": 5}, n, stops, kinds)


@given(
    st.sampled_from(list(BATCH_SAMPLERS)),
    st.integers(1, 40),
    st.lists(st.integers(0, 30), min_size=2, max_size=3),
    st.lists(KINDS, min_size=4, max_size=4),
)
def test_the_parts_of_a_run_with_a_batch_sampler_are_the_run(name: str, n: int, stops: list[int], kinds: Any) -> None:
    check_parts(lambda n: {**BATCH_SAMPLERS[name](n), "seed": 5}, n, stops, kinds)


def check_parts(options: Any, n: int, stops: list[int], kinds: list[Any]) -> None:
    whole, _ = part(options, n, INLINE, None, sum(stops))
    state, got = None, []
    for stop, kind in zip(stops, kinds, strict=False):
        batches, state = part(options, n, kind, state, stop)
        got += batches
    assert got == whole


STOPS = [0, 1, pytest.param(4, marks=thorough), pytest.param(9, marks=thorough), 10]


@pytest.mark.parametrize("kind", [*QUICK, pytest.param(SPAWN, id="spawn")])
@pytest.mark.parametrize("stop", STOPS)  # before and after the first batch, in the middle, and about the last one
def test_every_kind_of_worker_goes_on(kind: dict[str, Any], stop: int) -> None:
    def options(n: int) -> Any:
        return {"batch_size": 4, "shuffle": True, "seed": 3}

    whole, _ = part(options, 40, INLINE, None, 25)
    first, state = part(options, 40, kind, None, stop)
    rest, _ = part(options, 40, FORK if kind is INLINE else INLINE, state, 25 - stop)
    assert first + rest == whole


def test_before_in_after_the_last_batch_and_after_the_loop() -> None:
    loader = DataLoader(np.arange(6), batch_size=2, shuffle=True, seed=1)
    assert (saved(loader)["epoch"], saved(loader)["batches"]) == (0, 0)
    iterator = iter(loader)
    assert saved(loader)["batches"] == 0  # begun, nothing delivered
    seen = []
    for number, _ in enumerate(iterator):
        seen.append(saved(loader))
        assert (seen[-1]["epoch"], seen[-1]["batches"]) == (0, number + 1)
    assert (saved(loader)["epoch"], saved(loader)["batches"]) == (1, 0)
    loader.load_state_dict(seen[-1])  # after the last batch, before the loop's end
    assert list(loader) == []
    assert len(list(loader)) == 3
    assert loader.epoch == 2


@pytest.mark.parametrize("kind", [THREADS, FORK])
def test_batches_made_ahead_are_neither_counted_nor_lost(kind: dict[str, Any]) -> None:
    with DataLoader(np.arange(40), batch_size=2, seed=1, prefetch_factor=4, **kind) as loader:
        iterator = iter(loader)
        first = [next(iterator).tolist() for _ in range(3)]
        state = saved(loader)
    again = DataLoader(np.arange(40), batch_size=2)
    again.load_state_dict(state)
    assert first + [batch.tolist() for batch in again] == [[i, i + 1] for i in range(0, 40, 2)]


def test_a_state_does_not_change_with_the_loader() -> None:
    loader = DataLoader(np.arange(40), batch_size=2, shuffle=True)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    text = json.dumps(state)
    list(iterator)
    assert json.dumps(state) == text


def test_loaded_and_saved_again_is_the_same() -> None:
    loader = DataLoader(np.arange(40), batch_size=2, shuffle=True)
    next(iter(loader))
    state = saved(loader)
    again = DataLoader(np.arange(40), batch_size=2, shuffle=True)
    again.load_state_dict(state)
    assert saved(again) == state
    again.set_epoch(0)  # as training loops do before every epoch
    assert saved(again) == state
    again.set_epoch(3)
    assert (saved(again)["epoch"], saved(again)["batches"]) == (3, 0)


class OutOfOrder(Dataset[int]):
    """Batch 0 is not ready before others have been delivered."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 0:
            self.gate.wait(600)
        return index


def test_batches_delivered_out_of_order_are_not_given_again() -> None:
    import threading

    gate = threading.Event()
    with DataLoader(OutOfOrder(gate), batch_size=2, in_order=False, **THREADS) as loader:
        iterator = iter(loader)
        first = [next(iterator).tolist() for _ in range(2)]
        state = saved(loader)
        gate.set()
    assert state["batches"] == 0
    assert len(state["ahead"]) == 2
    again = DataLoader(OutOfOrder(gate), batch_size=2)
    again.load_state_dict(state)
    assert sorted(first + [batch.tolist() for batch in again]) == [[i, i + 1] for i in range(0, 12, 2)]


@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 7), st.integers(0, 8))
def test_another_batch_size_goes_on_with_the_next_sample(n: int, size: int, other: int, stop: int) -> None:
    loader = DataLoader(np.arange(n), batch_size=size, shuffle=True, seed=4)
    whole = np.concatenate(list(loader)).tolist()
    loader.set_epoch(0)
    got = [batch.tolist() for batch in itertools.islice(loader, stop)]
    again = DataLoader(np.arange(n), batch_size=other, shuffle=True, seed=4)
    again.load_state_dict(saved(loader))
    if len(got) < len(loader) or not got:
        got += [batch.tolist() for batch in again]
        assert all(len(batch) == other for batch in got[stop:-1])
        assert list(itertools.chain(*got)) == whole


@settings(max_examples=few(30))
@given(st.integers(1, 200), st.data())
def test_other_numbers_of_ranks_see_the_same_global_batches(n: int, data: Any) -> None:
    ranks_and_sizes = [(8, 3), (2, 12), (3, 8), (1, 24), (24, 1)]
    uneven = data.draw(st.sampled_from(["pad", "drop", "exact"]))
    whole = DataLoader(np.arange(n), batch_size=24, shuffle=True, seed=0)
    expected = [sorted(batch.tolist()) for batch in whole]
    got: list[list[int]] = []
    state = None
    while len(got) < n // 24:  # the whole batches; what happens at the uneven end is tested by itself
        ranks, size = data.draw(st.sampled_from(ranks_and_sizes))
        stop = data.draw(st.integers(1, n // 24 - len(got)))
        steps = []
        for rank in range(ranks):
            sampler = DistributedSampler(RandomSampler(n), ranks, rank, uneven=uneven)
            loader = DataLoader(np.arange(n), batch_size=size, sampler=sampler, seed=0)
            if state is not None:
                loader.load_state_dict(state)
            steps.append([batch.tolist() for batch in itertools.islice(loader, stop)])
        state = saved(loader)
        got += [sorted(itertools.chain(*step)) for step in zip(*steps, strict=True)]
    assert got == expected[: len(got)]


@given(st.integers(0, 60), st.integers(1, 9))
def test_uneven_ends(n: int, ranks: int) -> None:
    def shares(uneven: str) -> list[list[int]]:
        return [list(DistributedSampler(SequentialSampler(n), ranks, rank, uneven=uneven)) for rank in range(ranks)]

    assert sorted(itertools.chain(*shares("exact"))) == list(range(n))
    dropped = shares("drop")
    assert {len(share) for share in dropped} == {n // ranks}
    assert sorted(itertools.chain(*dropped)) == list(range(n // ranks * ranks))
    padded = shares("pad")
    assert {len(share) for share in padded} == {-(-n // ranks)}
    assert set(itertools.chain(*padded)) == set(range(n))


def test_weighted_draws_are_shared_out_too() -> None:
    weights = WeightedRandomSampler(np.arange(1, 51), 1000)
    shares = [DistributedSampler(weights, 4, rank, seed=9) for rank in range(4)]
    together = np.array([list(share) for share in shares]).T.ravel()
    assert together.tolist() == weights.order(9, 0)[:].tolist()


def test_ranks_are_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    sampler = DistributedSampler(range(9), shuffle=False)
    assert (sampler.rank, sampler.num_replicas, list(sampler)) == (2, 3, [2, 5, 8])


def test_ranks_that_are_nowhere_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="pass both"):
        DistributedSampler(range(9))
    with pytest.raises(ValueError, match="rank must be below num_replicas=2"):
        DistributedSampler(range(9), 2, 2)
    with pytest.raises(ValueError, match="leave out one"):
        DistributedSampler(range(9), 2, 0, drop_last=True, uneven="exact")


def loader_of(n: int = 40, **options: Any) -> DataLoader:
    return DataLoader(np.arange(n), **{"batch_size": 4, "shuffle": True, "seed": 3, **options})


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (loader_of(41), "another length when it was saved: 40, and now 41"),
        (loader_of(seed=4), "the seed was 3 when it was saved and is 4 now"),
        (
            loader_of(shuffle=False),
            "another sampler was used when it was saved: 'RandomSampler', and now 'SequentialSampler'",
        ),
        (
            loader_of(batch_size=None),
            "batches were made in another way when it was saved: 'batch_size', and now 'nobody'",
        ),
    ],
)
def test_a_state_of_something_else_is_refused_by_what_differs(other: DataLoader, words: str) -> None:
    loader = loader_of()
    next(iter(loader))
    with pytest.raises(StateError, match=words):
        other.load_state_dict(saved(loader))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"feedline": 99}, "format 99"),
        ({"batches": -1}, "damaged"),
        ({"epoch": "two"}, "damaged"),
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(StateError, match=words):
        loader_of().load_state_dict({**saved(loader_of()), **change})


def test_what_is_no_state_is_refused() -> None:
    for wrong in ({}, None, [1], {"_num_yielded": 3}):
        with pytest.raises(StateError, match="not the state of a feedline loader"):
            loader_of().load_state_dict(wrong)  # type: ignore[arg-type]


def test_ranks_that_cannot_share_a_place_are_told() -> None:
    loader = DataLoader(np.arange(40), batch_size=5, sampler=DistributedSampler(range(40), 1, 0))
    next(iter(loader))
    other = DataLoader(np.arange(40), batch_size=5, sampler=DistributedSampler(range(40), 2, 0))
    other.load_state_dict(saved(loader))
    with pytest.raises(StateError, match="sample 5 of its epoch, and 2 ranks cannot divide"):
        iter(other)


def test_deep_in_a_shuffle_of_a_billion_nothing_is_gone_through() -> None:
    class Huge(Dataset[int]):
        def __len__(self) -> int:
            return 10**9

        def __getitem__(self, index: int) -> int:
            return index

    loader = DataLoader(Huge(), batch_size=64, shuffle=True, seed=1)
    state = {**saved(loader), "batches": 10**7, "samples": 64 * 10**7}
    loader.load_state_dict(state)
    order = RandomSampler(10**9).order(1, 0)
    assert next(iter(loader)).tolist() == order[64 * 10**7 : 64 * 10**7 + 64].tolist()


def test_an_iteration_that_cannot_be_begun_leaves_the_place_where_it_was() -> None:
    loader = DataLoader(list(range(10)), batch_size=1)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = saved(loader)
    shared = DataLoader(list(range(10)), batch_size=1, sampler=DistributedSampler(SequentialSampler(10), 2, 0, seed=0))
    state["sampler"] = shared.state_dict()["sampler"]
    shared.load_state_dict(state)
    for _ in range(2):
        with pytest.raises(StateError, match="2 ranks cannot divide that number evenly"):
            iter(shared)
        assert shared.epoch == 0
        assert shared.state_dict()["batches"] == 3


def test_a_state_saved_from_another_thread_is_never_torn() -> None:
    loader = DataLoader(np.arange(6_000), batch_size=2)
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
    def loader() -> tuple[DataLoader, DistributedSampler]:
        sampler = DistributedSampler(list(range(24)), 2, 0, seed=5)
        return DataLoader(list(range(24)), batch_size=2, sampler=sampler), sampler

    first, sampler = loader()
    sampler.set_epoch(7)
    batches = iter(first)
    next(batches)
    again, _ = loader()
    again.load_state_dict(saved(first))
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in batches]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("seed", value) for value in (None, "x", 1.5, [], -1, True, 1 << 64)],
        *[("feedline", value) for value in (True, 1, 3, "2")],
        *[(name, value) for name in ("epoch", "batches", "samples") for value in (None, -1, True, 10**30, "3")],
        ("sampler_epoch", -1),
        ("last", [1, -1]),
    ],
)
def test_a_damaged_state_is_refused_when_it_is_loaded(name: str, value: Any) -> None:
    loader = DataLoader(list(range(10)), batch_size=2)
    next(iter(loader))
    with pytest.raises(StateError):
        DataLoader(list(range(10)), batch_size=2).load_state_dict({**loader.state_dict(), name: value})
