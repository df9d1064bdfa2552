"""A run goes on only in the order it had: foreign samplers are asked again, ours have to agree, too."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch.utils.data

import feedline
import feedline.torch

FRONTS = {"core": feedline.DataLoader, "torch": feedline.torch.DataLoader}
BATCHES = 3
SEEDS = itertools.count(100)
"""Of samplers that are not seeded: another one each time."""


class Shuffled:
    """As users write it: the same order each time only if it is seeded."""

    def __init__(self, seed: int | None) -> None:
        self.seed = next(SEEDS) if seed is None else seed

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Iterator[Any]:
        indices = list(range(40))
        random.Random(self.seed).shuffle(indices)
        return iter(indices)


class InBatches(Shuffled):
    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[Any]:
        indices = list(super().__iter__())
        return iter([indices[start : start + 4] for start in range(0, 40, 4)])


def options(kind: str, seed: int | None) -> dict[str, Any]:
    if kind == "batch_sampler":
        return {"batch_sampler": InBatches(seed)}
    return {"sampler": Shuffled(seed), "batch_size": 4 if kind == "sampler" else None}


@pytest.fixture(params=FRONTS)
def front(request: pytest.FixtureRequest) -> Any:
    return FRONTS[request.param]


@pytest.fixture(params=["sampler", "batch_sampler", "unbatched"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def stopped(front: Any, kind: str, seed: int | None) -> tuple[dict[str, Any], list[Any]]:
    loader = front(list(range(40)), **options(kind, seed))
    batches = iter(loader)
    for _ in range(BATCHES):
        next(batches)
    return json.loads(json.dumps(loader.state_dict())), [batch.tolist() for batch in map(torch.as_tensor, batches)]


def test_an_order_that_is_the_same_again_goes_on(front: Any, kind: str) -> None:
    state, rest = stopped(front, kind, seed=5)
    loader = front(list(range(40)), **options(kind, seed=5))
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert [torch.as_tensor(batch).tolist() for batch in loader] == rest


def test_an_order_that_has_changed_is_refused(front: Any, kind: str) -> None:
    state, _ = stopped(front, kind, seed=None)
    loader = front(list(range(40)), **options(kind, seed=None))
    loader.load_state_dict(state)
    with pytest.raises(feedline.StateError, match="before batch 3 the sampler now gives other indices than when"):
        list(loader)


def test_another_batch_size_compares_the_same_indices(front: Any) -> None:
    state, rest = stopped(front, "sampler", seed=5)
    loader = front(list(range(40)), sampler=Shuffled(5), batch_size=7)
    loader.load_state_dict(state)
    assert [index for batch in loader for index in batch.tolist()] == [index for batch in rest for index in batch]


@pytest.mark.parametrize("last", [[1], [1, 2, 3], "ab", [-1, 2], [1.5, 2], None])
def test_a_damaged_tail_is_refused(last: Any) -> None:
    state, _ = stopped(feedline.DataLoader, "sampler", seed=5)
    loader = feedline.DataLoader(list(range(40)), **options("sampler", seed=5))
    with pytest.raises(feedline.StateError, match="damaged"):
        loader.load_state_dict({**state, "last": last})


WEIGHTS = [1.0, 2.0, 3.0, 4.0] * 10
CHANGED: dict[str, tuple[Any, Any]] = {
    "replacement": (
        lambda: feedline.RandomSampler(40, seed=1),
        lambda: feedline.RandomSampler(40, replacement=True, seed=1),
    ),
    "data": (
        lambda: feedline.RandomSampler(24, num_samples=30, seed=1),
        lambda: feedline.RandomSampler(40, num_samples=30, seed=1),
    ),
    "weights": (
        lambda: feedline.WeightedRandomSampler(WEIGHTS, 30, seed=1),
        lambda: feedline.WeightedRandomSampler(WEIGHTS[::-1], 30, seed=1),
    ),
    "subset": (
        lambda: feedline.SubsetRandomSampler(range(20), seed=1),
        lambda: feedline.SubsetRandomSampler(range(20, 40), seed=1),
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_one_of_our_samplers_in_another_setting_is_refused(front: Any, what: str) -> None:
    before, after = CHANGED[what]
    loader = front(list(range(40)), sampler=before(), batch_size=4)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    same, other = (front(list(range(40)), sampler=make(), batch_size=4) for make in (before, after))
    same.load_state_dict(state)
    assert [batch.tolist() for batch in same] == [batch.tolist() for batch in batches]
    other.load_state_dict(state)
    with pytest.raises(feedline.StateError, match="before batch 1 the sampler now gives other indices"):
        list(other)


def test_another_seed_is_refused_by_name(front: Any) -> None:
    loader = front(list(range(40)), sampler=feedline.RandomSampler(40, seed=1), batch_size=4)
    other = front(list(range(40)), sampler=feedline.RandomSampler(40, seed=2), batch_size=4)
    with pytest.raises(feedline.StateError, match=r"RandomSampler\(seed=1\)', and now 'RandomSampler\(seed=2\)'"):
        other.load_state_dict(loader.state_dict())


def test_other_labels_under_a_stratified_sampler_are_refused(front: Any) -> None:
    def loader(labels: list[int]) -> Any:
        return front(list(range(40)), batch_sampler=feedline.StratifiedBatchSampler(labels, 8, seed=3))

    first = loader([0, 1] * 20)
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    same, other = loader([0, 1] * 20), loader([0] * 20 + [1] * 20)
    same.load_state_dict(state)
    assert [batch.tolist() for batch in same] == [batch.tolist() for batch in batches]
    other.load_state_dict(state)
    with pytest.raises(feedline.StateError, match="before batch 1 the sampler now gives other indices"):
        list(other)
