"""Foreign samplers are asked again when a run goes on: the same order goes on exactly, another one is refused."""

from __future__ import annotations

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


class Shuffled:
    """As users write it: the same order each time only if it is seeded."""

    def __init__(self, seed: int | None) -> None:
        self.random = random.Random() if seed is None else None
        self.seed = seed

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Iterator[Any]:
        indices = list(range(40))
        (self.random or random.Random(self.seed)).shuffle(indices)
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
    what = "3 batches" if kind == "batch_sampler" else "3 indices" if kind == "unbatched" else "12 indices"
    with pytest.raises(feedline.StateError, match=f"does not give the {what} before the saved place as it did then"):
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
