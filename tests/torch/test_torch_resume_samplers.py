"""feedline.torch: samplers inside of others, and torch's for ranks, go on as the uninterrupted run does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as torchs
from going_on import after_json, listed
from kinds import FORK, INLINE, THREADS

import feedline
import feedline.torch as ours
from feedline import StateError


class Eager:
    """Draws from torch's global generator when it is asked."""

    def __len__(self) -> int:
        return 24

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(24).tolist())


class Around:
    """Holds another sampler under a name of its own, gives what it gives."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        yield from self.inner


class InFours(Around):
    """Makes batches of what another sampler gives."""

    def __len__(self) -> int:
        return len(self.inner) // 4

    def __iter__(self) -> Iterator[list[int]]:
        return map(list, zip(*[iter(self.inner)] * 4, strict=False))


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


Make = Callable[[], dict[str, Any]]


def check(make: Make, front: Any = ours.DataLoader, kinds: tuple[Any, Any] = (INLINE, INLINE)) -> None:
    """In its second epoch a loader is saved; another, in another process, goes on with the rest and the third one."""

    def loader_of(kind: Any) -> Any:
        return front(np.arange(24) if front is feedline.DataLoader else range(24), **make(), **kind)

    torch.manual_seed(1)
    with loader_of(kinds[0]) as loader:
        first = [np.asarray(batch).tolist() for batch in loader]
        iterator = iter(loader)
        assert [np.asarray(next(iterator)).tolist() for _ in range(2)] != first[:2]
        state = json.loads(json.dumps(loader.state_dict()))
        generator = torch.get_rng_state()
        wanted = [np.asarray(batch).tolist() for batch in [*iterator, *loader]]
    torch.manual_seed(99)
    with loader_of(kinds[1]) as again:
        again.load_state_dict(state)
        torch.set_rng_state(generator)
        assert [np.asarray(batch).tolist() for batch in [*again, *again]] == wanted


FOREIGN: dict[str, Callable[[], Any]] = {
    "weighted": lambda: torchs.WeightedRandomSampler([1.0] * 24, 24),
    "random": lambda: torchs.RandomSampler(range(24)),
    "random with a generator": lambda: torchs.RandomSampler(range(24), generator=seeded()),
    "eager": Eager,
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_foreign_sampler_shared_out_by_ours_is_not_drawn_anew(name: str, rank: int) -> None:
    def make() -> dict[str, Any]:
        return {"sampler": feedline.DistributedSampler(FOREIGN[name](), 2, rank), "batch_size": 3}

    check(make)
    if rank:
        check(make, kinds=(FORK, THREADS))


def test_a_foreign_sampler_shared_out_is_named() -> None:
    def loader_of(name: str) -> Any:
        return ours.DataLoader(range(24), 3, sampler=feedline.DistributedSampler(FOREIGN[name](), 2, 0))

    loader = loader_of("weighted")
    next(iter(loader))
    with pytest.raises(StateError, match=r"WeightedRandomSampler.*, and now .*RandomSampler"):
        loader_of("random").load_state_dict(loader.state_dict())


@pytest.mark.parametrize("front", [ours.DataLoader, feedline.DataLoader])
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(
    "around",
    [InFours, lambda sampler: torchs.BatchSampler(sampler, 4, False), lambda sampler: Around(InFours(sampler))],
)
def test_our_samplers_in_the_hands_of_a_foreign_batch_sampler(front: Any, seed: int | None, around: Any) -> None:
    check(lambda: {"batch_sampler": around(feedline.RandomSampler(24, seed=seed))}, front)


@pytest.mark.parametrize("name", ["random", "random with a generator"])
def test_a_sampler_inside_a_wrapper_that_calls_it_otherwise(name: str) -> None:
    check(lambda: {"sampler": Around(Around(FOREIGN[name]())), "batch_size": 4})


def test_all_generators_of_a_sampler_are_kept() -> None:
    class Two:
        def __init__(self) -> None:
            self.first, self.second = seeded(), seeded()

        def __iter__(self) -> Iterator[int]:
            for generator in (self.second, self.first, self.second):
                yield from torch.randperm(8, generator=generator).tolist()

    check(lambda: {"sampler": Two(), "batch_size": 4, "generator": seeded()})
    loader = ours.DataLoader(range(24), sampler=Two())
    assert set(loader.state_dict()["torch"]["left"]) == {"sampler", "sampler 1"}
    loader = ours.DataLoader(range(24), sampler=torchs.RandomSampler(range(24), generator=seeded()))
    assert set(loader.state_dict()["torch"]["left"]) == {"sampler"}


class Named(torchs.DistributedSampler[int]):
    """One of those that frameworks derive, and leave as they are."""


class InBlocks(torchs.DistributedSampler[int]):
    """Gives each rank a stretch of the order."""

    def __iter__(self) -> Iterator[int]:
        share = len(self.dataset) // self.num_replicas  # type: ignore[arg-type]
        return iter(range(self.rank * share, (self.rank + 1) * share))


def share_of(kind: Any, ranks: int, rank: int, **options: Any) -> Any:
    sampler = kind(range(24), num_replicas=ranks, rank=rank, **options)
    return ours.DataLoader(range(24), 12 // ranks, sampler=sampler)


def test_a_subclass_of_torchs_distributed_sampler_may_have_another_number_of_ranks() -> None:
    whole = [set(batch.tolist()) for batch in share_of(Named, 1, 0)]
    loader = share_of(Named, 2, 1)
    next(iter(loader))
    shares = [share_of(Named, 3, rank) for rank in range(3)]
    for share in shares:
        share.load_state_dict(loader.state_dict())
    (last,) = zip(*([batch.tolist() for batch in share] for share in shares), strict=True)
    assert set().union(*last) == whole[1]


def test_one_that_shares_out_in_its_own_way_may_not() -> None:
    loader = share_of(InBlocks, 2, 1)
    next(iter(loader))
    state = loader.state_dict()
    again = share_of(InBlocks, 2, 1)
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == [list(range(18, 24))]
    with pytest.raises(StateError, match=r"on 2 ranks', and now .* on 3 ranks'"):
        share_of(InBlocks, 3, 1).load_state_dict(state)


@pytest.mark.parametrize("other", [{"seed": 2}, {"shuffle": False}])
def test_torchs_distributed_sampler_in_another_order_is_refused(other: dict[str, Any]) -> None:
    loader = share_of(torchs.DistributedSampler, 2, 0)
    next(iter(loader))
    with pytest.raises(StateError, match="another sampler was used"):
        share_of(torchs.DistributedSampler, 2, 0, **other).load_state_dict(loader.state_dict())


@pytest.mark.parametrize("kinds", [(THREADS, INLINE), (INLINE, THREADS)])
def test_a_sampler_that_draws_when_it_is_asked_is_asked_as_often_as_before_the_stop(kinds: tuple[Any, Any]) -> None:
    check(lambda: {"sampler": Eager(), "batch_size": None}, kinds=kinds)


def test_it_is_so_in_a_state_from_between_two_epochs() -> None:
    def run(kind: Any, state: Any) -> tuple[Any, Any]:
        with ours.DataLoader(range(24), None, sampler=Eager(), **kind) as loader:
            if state is not None:
                loader.load_state_dict(state)
            torch.manual_seed(1)
            return [int(sample) for sample in loader], loader.state_dict()

    once, _ = run(INLINE, None)
    twice, state = run(THREADS, None)
    assert run(INLINE, state)[0] == twice != once
    assert run(INLINE, run(INLINE, state)[1])[0] == twice


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
