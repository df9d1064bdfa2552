"""Across epochs in torch's clothes: the order is predicted from copies of the generators, and never taken on trust."""

from __future__ import annotations

import itertools
import json
import multiprocessing
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, few
from noted import Noted, Reads
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import feedline
from feedline.loader import _job
from feedline.torch import DataLoader
from feedline.torch.prediction import predicted
from feedline.workers.changeable import changeable

TURNS: dict[str, Any] = {**FORK, "num_workers": 1, "prefetch_factor": 4, "persistent_workers": True}
KEPT: dict[str, Any] = {**TURNS, "assignment": "free"}
THREAD: dict[str, Any] = {"workers": "thread", "multiprocessing_context": None}
EARLY = 8
"""Samples of the tasks that may be out: four batches of two."""


class Mine(Sampler[int]):
    """Of the user's own: nobody knows what asking it does."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked = 0

    def __iter__(self) -> Any:
        self.asked += 1
        return iter(torch.randperm(self.size).tolist())

    def __len__(self) -> int:
        return self.size


def samplers(kind: str, size: int) -> dict[str, Any]:
    own = torch.Generator()
    own.manual_seed(11)
    ones = [1.0] * size
    return {
        "shuffle": lambda: {"shuffle": True},
        "shuffle, generator": lambda: {"shuffle": True, "generator": own},
        "in order": dict,
        "single": lambda: {"batch_size": None, "sampler": RandomSampler(range(size))},
        "again": lambda: {"sampler": RandomSampler(range(size), replacement=True, num_samples=size + 40)},
        "more": lambda: {"sampler": RandomSampler(range(size), num_samples=2 * size + 1, generator=own)},
        "subset": lambda: {"sampler": SubsetRandomSampler(range(size), generator=own)},
        "subset, default": lambda: {"sampler": SubsetRandomSampler(range(size))},
        "weighted": lambda: {"sampler": WeightedRandomSampler(ones, size)},
        "ranks": lambda: {"sampler": DistributedSampler(range(size), num_replicas=2, rank=1)},
        "batches": lambda: {"batch_sampler": BatchSampler(SequentialSampler(range(size)), 3, True)},
        "ours": lambda: {"sampler": feedline.RandomSampler(size, seed=3)},
        "our ranks": lambda: {"sampler": feedline.DistributedSampler(range(size), num_replicas=2, rank=0)},
        "mine": lambda: {"sampler": Mine(size)},
    }[kind]()


KINDS = [
    *("shuffle", "shuffle, generator", "in order", "single", "again", "more", "subset", "subset, default", "weighted"),
    *("ranks", "batches", "ours", "our ranks", "mine"),
]
FORESEEN = KINDS[:-3]


class Run:
    """One loader, to which things are done; what it gave and said, and how torch's generators stand then."""

    def __init__(self, kind: str, size: int, **options: Any) -> None:
        torch.manual_seed(5)
        options = samplers(kind, size) | KEPT | options
        if "batch_sampler" not in options:
            options = {"batch_size": 2} | options
        self.loader: Any = DataLoader(Noted(size), **options)
        self.default = torch.get_rng_state()
        self.saved: str | None = None

    def do(self, action: str, number: int) -> list[Any]:
        torch.set_rng_state(self.default)
        loader, seen = self.loader, []
        sampler = loader.sampler
        if action == "whole":
            seen = [batch.tolist() for batch in loader]
        elif action == "take":
            seen = [batch.tolist() for batch in itertools.islice(iter(loader), number)]
        elif action == "draw":
            torch.rand(number)
        elif action == "draw from its own" and getattr(sampler, "generator", None) is not None:
            torch.rand(number, generator=sampler.generator)
        elif action == "tell" and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(number)
        elif action == "set_epoch":
            loader.set_epoch(number)
        elif action == "save":
            self.saved = json.dumps(loader.state_dict())
        elif action == "load" and self.saved is not None:
            loader.load_state_dict(json.loads(self.saved))
        elif action == "close":
            loader.close()
        self.default = torch.get_rng_state()
        return [seen, loader.state_dict(), loader.epoch, self.default.tolist(), getattr(sampler, "asked", 0)]


ACTIONS = st.one_of(
    st.just(("whole", 0)),
    st.just(("whole", 0)),
    st.tuples(st.sampled_from(["take", "draw", "draw from its own", "tell", "set_epoch"]), st.integers(0, 4)),
    st.tuples(st.sampled_from(["save", "load", "close"]), st.just(0)),
)


@settings(max_examples=few(40))
@given(st.sampled_from(KINDS), st.integers(4, 20), st.lists(ACTIONS, min_size=2, max_size=6))
def test_whatever_is_done_batches_states_and_draws_are_those_without(
    kind: str, size: int, actions: list[tuple[str, int]]
) -> None:
    plain, ahead = Run(kind, size, **THREAD), Run(kind, size)
    with plain.loader, ahead.loader:
        for action in actions:
            assert ahead.do(*action) == plain.do(*action)


@pytest.mark.parametrize("kind", FORESEEN)
def test_the_order_is_foreseen_and_nobody_notices(kind: str) -> None:
    loader = Run(kind, 9).loader
    index_sampler = loader._index_sampler
    list(index_sampler)
    before = loader.state_dict(), torch.get_rng_state().tolist()
    tasks = predicted(index_sampler, loader._auto_collation, 1, seed=0, step=0)
    assert tasks is not None
    found = [list(task.indices) for task in iter(lambda: next(tasks, None), None)]
    assert (loader.state_dict(), torch.get_rng_state().tolist()) == before
    assert found == [[each] if isinstance(each, int) else each for each in index_sampler]


def test_a_sampler_of_the_users_own_is_not_asked_ahead() -> None:
    sampler = Mine(8)
    assert predicted(BatchSampler(sampler, 2, False), True, 1, 0, 1) is None
    assert predicted(sampler, False, 1, 0, 1) is None
    assert predicted(sampler, True, 1, 0, 1) is None
    assert sampler.asked == 0


@pytest.mark.parametrize("told", [True, False])
def test_ranks_are_read_ahead_whether_they_are_told_their_epoch_or_not(told: bool) -> None:
    reads = Reads()
    sampler: Any = DistributedSampler(range(40), num_replicas=2, rank=0)
    with DataLoader(Noted(40, reads.writing, draws=False), 2, sampler=sampler, **KEPT) as loader:
        for epoch in range(3):
            if told:
                sampler.set_epoch(epoch)
            order = list(sampler)
            if epoch == 2 and not told:  # 1 was predicted wrongly; after that nothing for an epoch
                reads.so_far()
            list(loader)
            if epoch == 2 and not told:
                assert sorted(reads.take(20 + EARLY)) == sorted(order + order[:EARLY])
            elif told:
                expected = order[EARLY:] if epoch else order
                sampler.set_epoch(epoch + 1)
                assert sorted(reads.take(len(expected) + EARLY)) == sorted(expected + list(sampler)[:EARLY])
    assert reads.rest() == []


@pytest.mark.parametrize("off", [{**KEPT, "prefetch_next_epoch": False}, TURNS], ids=["switched off", "in turn"])
def test_nothing_is_read_early_where_that_is_switched_off_and_where_workers_take_turns(off: dict[str, Any]) -> None:
    reads = Reads()
    with DataLoader(Noted(10, reads.writing), 2, **off) as loader:
        list(loader)
    assert sorted(reads.rest()) == list(range(10))


def test_who_draws_between_epochs_gets_what_torch_would_give() -> None:
    def epochs(**options: Any) -> list[Any]:
        torch.manual_seed(1)
        found: list[Any] = []
        with DataLoader(Noted(12), 2, shuffle=True, **{**KEPT, **options}) as loader:
            for _ in range(4):
                found.append([batch.tolist() for batch in loader])
                found.append(torch.rand(1).item())
        return found

    assert epochs() == epochs(**THREAD)


def test_tensors_in_shared_memory_can_be_changed() -> None:
    shared = torch.from_numpy(np.frombuffer(multiprocessing.RawArray("i", 3), np.int32))  # which torch does not know
    assert not shared.is_shared()
    for thing, is_shared in ((torch.ones(3), False), (torch.ones(3).share_memory_(), True), (shared[1:], True)):
        job = _job(feedline.DataLoader([thing]).options)
        assert (changeable(job) is not None) is is_shared
