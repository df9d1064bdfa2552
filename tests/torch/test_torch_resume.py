"""feedline.torch: a run that stops goes on in torch's order, and torch's generators are as if it had not stopped."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torchs
from going_on import after_json, listed
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS, few

import feedline
import feedline.torch as ours
from feedline import DistributedSampler, RandomSampler, SequentialSampler, StateError, WeightedRandomSampler

WORKERS = {"inline": INLINE, "threads": THREADS, "fork": FORK}


class Eager:
    """Draws from the global generator as soon as it is asked for an iterator."""

    def __init__(self, length: int, generator: torch.Generator | None = None) -> None:
        self.length, self.generator = length, generator

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.length, generator=self.generator).tolist())


class Pythons(Eager):
    """Draws from `random` and `numpy.random`, when its first index is wanted."""

    def __iter__(self) -> Iterator[int]:
        order = np.random.permutation(self.length).tolist()
        random.shuffle(order)
        yield from order


class Batches(Eager):
    """As a batch sampler."""

    def __iter__(self) -> Iterator[Any]:
        yield from torch.randperm(self.length).split(3)

    def __len__(self) -> int:
        return -(-self.length // 3)


class Keeping(Eager):
    """Keeps its own place, and would be wrong if taken from its beginning again."""

    given = 0

    def __iter__(self) -> Iterator[int]:
        while self.given < self.length:
            self.given += 1
            yield (self.given * 7) % self.length
        self.given = 0

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


Make = Callable[[int, Any], Any]
SAMPLERS: dict[str, Make] = {
    "sequential": lambda n, g: torchs.SequentialSampler(range(n)),
    "random": lambda n, g: torchs.RandomSampler(range(n), generator=g),
    "random, more than once": lambda n, g: torchs.RandomSampler(range(n), num_samples=2 * n + 1, generator=g),
    "replacement": lambda n, g: torchs.RandomSampler(range(n), replacement=True, num_samples=n + 35, generator=g),
    "subset": lambda n, g: torchs.SubsetRandomSampler(range(0, n, 2), generator=g),
    "weighted": lambda n, g: torchs.WeightedRandomSampler([1.0 + i for i in range(n)], n + 2, generator=g),
    "ranks": lambda n, g: torchs.DistributedSampler(range(n), num_replicas=3, rank=1, seed=4),
    "list": lambda n, g: list(range(n - 1, -1, -1)),
    "eager": lambda n, g: Eager(n, g),
    "python's": lambda n, g: Pythons(n),
    "keeping": lambda n, g: Keeping(n),
}
BATCH_SAMPLERS: dict[str, Make] = {
    "torch's": lambda n, g: torchs.BatchSampler(torchs.RandomSampler(range(n), generator=g), 4, drop_last=n > 4),
    "lists": lambda n, g: [[0], [n - 1, 0], list(range(n))],
    "tensors": lambda n, g: Batches(n),
}


def options_of(name: str, n: int, size: int | None, seed: int | None, own: bool) -> Callable[[], dict[str, Any]]:
    """Options made anew, generators too, as a new process would; `own` gives the sampler one of its own."""

    def make() -> dict[str, Any]:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        samplers = torch.Generator().manual_seed(5) if own else generator
        if name in BATCH_SAMPLERS:
            return {"batch_sampler": BATCH_SAMPLERS[name](n, samplers), "generator": generator}
        return {"sampler": SAMPLERS[name](n, samplers), "batch_size": size, "generator": generator}

    return make


def globals_now() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())


def save_globals() -> tuple[Any, ...]:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def load_globals(saved: Any) -> None:
    torch.set_rng_state(saved[0])
    random.setstate(saved[1])
    np.random.set_state(saved[2])


def trained(batch: Any) -> Any:
    """What a step of training sees, and what its dropout draws."""
    return torch.as_tensor(batch).tolist(), torch.rand(()).item()


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def uninterrupted(n: int, options: dict[str, Any], steps: int, seed: int, **further: Any) -> list[Any]:
    seed_all(seed)
    loader = torchs.DataLoader(range(n), **options, **further)
    got: list[Any] = []
    epoch = 0
    while len(got) < steps:
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        got += [trained(batch) for batch in loader]
        epoch += 1
    return got[:steps]


def part(
    n: int, options: dict[str, Any], kind: dict[str, Any], saved: Any, stop: int, drained: bool = True
) -> tuple[list[Any], Any]:
    """So many steps from a checkpoint on, and the checkpoint then: at the end of an epoch after its loop or before."""
    with ours.DataLoader(range(n), **options, **kind) as loader:
        if saved is not None:
            seed_all(999)  # another process, whatever it has done before
            load_globals(saved[0])
            loader.load_state_dict(json.loads(saved[1]))
            assert json.loads(saved[1]) == loader.state_dict()
        got: list[Any] = []
        first = True
        while len(got) < stop:
            loader.set_epoch(loader.epoch)
            before = globals_now()
            iterator = iter(loader)
            if saved is not None and first and "taken" in json.loads(saved[1])["torch"]:
                assert globals_now() == before
            first = False
            for batch in iterator:
                got.append(trained(batch))
                if len(got) == stop:
                    if drained and loader.state_dict()["batches"] == len(loader):
                        assert next(iterator, None) is None
                    break
        return got, (save_globals(), json.dumps(loader.state_dict()))


def check_parts(n: int, make: Any, stops: list[int], kinds: list[dict[str, Any]], seed: int) -> None:
    """Stops are so many steps, the last step of an epoch in its loop or after it."""
    whole = uninterrupted(n, make(), sum(stops), seed)
    seed_all(seed)
    got, saved = [], None
    for stop, kind in zip(stops, kinds, strict=True):
        more, saved = part(n, make(), kind, saved, stop, drained=stop % 2 == 0)
        got += more
    assert got == whole


names = st.sampled_from([*SAMPLERS, *BATCH_SAMPLERS])
stops = st.lists(st.integers(0, 25), min_size=2, max_size=3).map(lambda found: [*found, 12])
generators = st.one_of(st.none(), st.integers(0, 9))


@settings(max_examples=few(100))
@given(
    names, st.integers(1, 20), st.sampled_from([None, 1, 3, 7]), generators, st.booleans(), stops, st.integers(0, 99)
)
def test_the_parts_of_a_run_are_torchs_run(
    name: str, n: int, size: int | None, generator: int | None, own: bool, stops: list[int], seed: int
) -> None:
    check_parts(n, options_of(name, n, size, generator, own), stops, [INLINE] * len(stops), seed)


# A sampler that draws when it is asked is asked twice with workers, by torch too.
@settings(max_examples=few(15), deadline=None)
@given(
    names.filter(lambda name: name != "eager"),
    st.integers(1, 20),
    generators,
    stops,
    st.lists(st.sampled_from(list(WORKERS)), min_size=4, max_size=4),
)
def test_workers_may_change_between_the_parts(
    name: str, n: int, generator: int | None, stops: list[int], kinds: list[str]
) -> None:
    used = [WORKERS[kind] for kind in kinds][: len(stops)]
    check_parts(n, options_of(name, n, 3, generator, False), stops, used, 7)


# Threads and processes ask for indices ahead alike: two of the samplers with processes.
@pytest.mark.parametrize("way", ["inline", "ahead"])
@pytest.mark.parametrize(("number", "name"), [*enumerate([*SAMPLERS, *BATCH_SAMPLERS])])
def test_every_sampler_with_and_without_workers(number: int, name: str, way: str) -> None:
    forked = way == "ahead" and number % 8 == 1
    kind = INLINE if way == "inline" else {**FORK, "num_workers": 1} if forked else THREADS
    # Within the first epoch of four batches, and within another. Each epoch of a process is dear.
    stops = (2, 5, 4) if forked else (2, 9, 8)
    for generator in (3,) if forked else (None, 3):
        make = options_of(name, 11, 3, generator, False)
        whole = uninterrupted(11, make(), sum(stops), 1) if kind is INLINE or name != "eager" else None
        seed_all(1)
        reference, _ = part(11, make(), kind, None, sum(stops))
        assert whole is None or reference == whole
        seed_all(1)
        found, saved = [], None
        for stop in stops:
            more, saved = part(11, make(), kind, saved, stop)
            found += more
        assert found == reference


def test_persistent_workers_keep_their_base_seed() -> None:
    kind = {**FORK, "persistent_workers": True}
    make = options_of("random", 11, 3, None, False)
    seed_all(2)
    whole, _ = part(11, make(), kind, None, 14)
    for stop in (2, 4, 5):
        seed_all(2)
        first, saved = part(11, make(), kind, None, stop)
        rest, _ = part(11, make(), kind, saved, 14 - stop)
        assert first + rest == whole


class Augmented(torchs.Dataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return index, torch.rand(()).item(), np.random.rand(), feedline.rng().random()


@pytest.mark.parametrize("sampler", ["random", "weighted"])
def test_augmentations_are_the_same(sampler: str) -> None:
    def run(loader: Any, most: int) -> Any:
        found: list[Any] = []
        iterator = iter(loader)
        while len(found) < most and (batch := next(iterator, None)) is not None:
            found.append([leaf.tolist() for leaf in batch])
        return found

    make = options_of(sampler, 12, 3, 1, False)
    seed_all(1)
    with ours.DataLoader(Augmented(), **make()) as loader:
        list(loader)
        whole = run(loader, 9)
    seed_all(1)
    with ours.DataLoader(Augmented(), **make(), **FORK) as loader:
        list(loader)
        first = run(loader, 2)
        state = loader.state_dict()
    again = ours.DataLoader(Augmented(), **make())
    again.load_state_dict(state)
    assert first + run(again, 9) == whole


@pytest.mark.parametrize("name", ["random", "weighted", "sequential"])
def test_another_batch_size_goes_on_with_the_next_sample(name: str) -> None:
    seed_all(4)
    loader = ours.DataLoader(range(20), **options_of(name, 20, 4, None, False)())
    iterator = iter(loader)
    first = [index for _ in range(2) for index in next(iterator).tolist()]
    state = loader.state_dict()
    rest = [index for batch in iterator for index in batch.tolist()]
    again = ours.DataLoader(range(20), **options_of(name, 20, 5, None, False)())
    again.load_state_dict(state)
    batches = [batch.tolist() for batch in again]
    assert [index for batch in batches for index in batch] == rest
    assert len(batches[0]) == 5
    assert len(first) == 8


def test_a_sampler_that_draws_when_asked_from_the_generator_that_the_base_seed_comes_from() -> None:
    check_parts(5, options_of("eager", 5, None, 3, False), [2, 6, 12], [INLINE] * 3, 1)


def test_another_number_of_ranks_sees_the_same_global_batches() -> None:
    def steps(ranks: int, size: int, state: Any, stop: int) -> tuple[list[set[int]], Any]:
        found = []
        for rank in range(ranks):
            sampler = torchs.DistributedSampler(range(48), num_replicas=ranks, rank=rank)
            loader = ours.DataLoader(range(48), batch_size=size, sampler=sampler)
            if state is not None:
                loader.load_state_dict(state)
            loader.set_epoch(loader.epoch if state is not None else 3)
            iterator = iter(loader)
            found.append([next(iterator).tolist() for _ in range(stop)])
        return [set().union(*step) for step in zip(*found, strict=True)], loader.state_dict()

    whole, _ = steps(1, 12, None, 4)
    first, state = steps(4, 3, None, 2)
    rest, _ = steps(2, 6, state, 2)
    assert first + rest == whole


def test_a_distributed_sampler_need_not_be_told_the_epoch_again() -> None:
    def loader_of(epoch: int) -> Any:
        sampler = torchs.DistributedSampler(range(30), num_replicas=2, rank=0)
        sampler.set_epoch(epoch)
        return ours.DataLoader(range(30), batch_size=4, sampler=sampler)

    loader = loader_of(3)
    iterator = iter(loader)
    next(iterator)
    again = loader_of(0)
    again.load_state_dict(loader.state_dict())
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in iterator]


@pytest.mark.parametrize("given", ["shuffle", "generator", "in order", "drawn with replacement"])
def test_without_batches_torchs_samplers_are_resumed_too(given: str) -> None:
    def make() -> dict[str, Any]:
        replacing = {"sampler": torchs.RandomSampler(range(20), replacement=True)}
        order = {"in order": {"shuffle": False}, "drawn with replacement": replacing}.get(given, {"shuffle": True})
        generator = torch.Generator().manual_seed(3) if given == "generator" else None
        return {**order, "generator": generator, "batch_size": None}

    seed_all(6)
    whole, _ = part(20, make(), INLINE, None, 45)
    for taken in (0, 4, 20):
        seed_all(6)
        first, saved = part(20, make(), INLINE, None, taken)
        rest, _ = part(20, make(), INLINE, saved, 45 - taken)
        assert first + rest == whole


def test_feedlines_samplers_are_resumed_too_and_follow_the_loaders_epoch() -> None:
    for make in (
        lambda: {"sampler": feedline.RandomSampler(20), "batch_size": 3},
        lambda: {"sampler": feedline.DistributedSampler(range(20), 2, 1), "batch_size": 3},
        lambda: {"sampler": feedline.WeightedRandomSampler(np.arange(1, 21), 30), "batch_size": None},
        lambda: {"batch_sampler": feedline.BatchSampler(feedline.RandomSampler(20), 3)},
    ):
        seed_all(6)
        whole, _ = part(20, make(), INLINE, None, 15)
        seed_all(6)
        first, saved = part(20, make(), FORK, None, 4)
        rest, _ = part(20, make(), THREADS, saved, 11)
        assert first + rest == whole
    loader = ours.DataLoader(range(20), sampler=feedline.RandomSampler(20, seed=1), batch_size=20)
    epochs = [next(iter(loader)).tolist() for _ in range(2)]
    assert epochs[0] != epochs[1]
    loader.set_epoch(0)
    assert next(iter(loader)).tolist() == epochs[0]
    assert loader.epoch == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_saved_between_iter_and_the_first_batch(workers: int) -> None:
    kind = {} if not workers else FORK
    for generator in (None, 3):
        make = options_of("random", 11, 3, generator, False)
        seed_all(1)
        with ours.DataLoader(range(11), **make(), **kind) as loader:
            iterator = iter(loader)
            state, saved = loader.state_dict(), save_globals()
            whole = [trained(batch) for batch in iterator] + [trained(batch) for batch in loader]
        seed_all(99)
        load_globals(saved)
        with ours.DataLoader(range(11), **make(), **kind) as again:
            again.load_state_dict(state)
            assert [trained(batch) for batch in again] + [trained(batch) for batch in again] == whole


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
    with pytest.raises(StateError, match="batch_size was 2 and is 5 now"):
        front(list(range(20)), batch_size=5, in_order=False).load_state_dict(state)


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
