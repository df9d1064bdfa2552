"""feedline.torch against torch.utils.data: the same options, the same seed, batch by batch the same."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_sharer
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.utils.data as torchs
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few, thorough
from sameness import DTYPES, Make, Trees, array, assert_same, filled, trees

import feedline.torch as ours
from feedline.datasets import SMALL_LEAF

# torch's own, when its loader is left early: a thread of its queue writes to a pipe that is closed by then.
pytestmark = pytest.mark.filterwarnings("ignore:[^x]*QueueFeederThread:pytest.PytestUnhandledThreadExceptionWarning")


class Eager:
    """A sampler that draws from the global generator as soon as it is asked for an iterator."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.length).tolist())

    def __len__(self) -> int:
        return self.length


class EagerBatches(Eager):
    """As a batch sampler: tensors of indices."""

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.randperm(self.length).split(3))

    def __len__(self) -> int:
        return -(-self.length // 3)


class Recipe(NamedTuple):
    """How to make the same loader twice: samplers and generators are made anew for each."""

    length: int
    options: Callable[[int, torch.Generator | None], dict[str, Any]]
    generator: int | None
    seed: int
    epochs: tuple[int | None, ...]
    """After how many batches each epoch is left; None for never."""


def _plain(batch_size: int | None, shuffle: bool, drop_last: bool) -> Callable[..., dict[str, Any]]:
    return lambda length, generator: {
        "batch_size": batch_size,
        "shuffle": shuffle and length > 0,  # torch refuses to shuffle nothing
        "drop_last": drop_last and batch_size is not None,
        "generator": generator,
    }


def _sampled(sampler: Callable[..., Any], batch_size: int | None, drop_last: bool) -> Callable[..., dict[str, Any]]:
    return lambda length, generator: {
        "sampler": sampler(max(1, length), generator),
        "batch_size": batch_size,
        "drop_last": drop_last and batch_size is not None,
        "generator": generator,
    }


def _batch_sampled(batch_sampler: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    return lambda length, generator: {"batch_sampler": batch_sampler(max(1, length), generator), "generator": generator}


SAMPLERS: list[Callable[[int, torch.Generator | None], Any]] = [
    lambda n, g: torchs.SequentialSampler(range(n)),
    lambda n, g: torchs.RandomSampler(range(n)),
    lambda n, g: torchs.RandomSampler(range(n), generator=g),
    lambda n, g: torchs.RandomSampler(range(n), num_samples=2 * n + 1, generator=g),
    lambda n, g: torchs.RandomSampler(range(n), num_samples=max(1, n // 2)),
    lambda n, g: torchs.RandomSampler(range(n), replacement=True, num_samples=n + 35, generator=g),
    lambda n, g: torchs.SubsetRandomSampler(range(0, n, 2), generator=g),
    lambda n, g: torchs.WeightedRandomSampler([1.0 + i for i in range(n)], n + 2, generator=g),
    lambda n, g: torchs.WeightedRandomSampler([1.0 + i for i in range(n)], n, replacement=False),
    lambda n, g: torchs.DistributedSampler(range(n), num_replicas=3, rank=1, seed=4),
    lambda n, g: torchs.DistributedSampler(range(n), num_replicas=3, rank=2, shuffle=False, drop_last=n > 3),
    lambda n, g: list(range(n - 1, -1, -1)),
    lambda n, g: Eager(n),
]
BATCH_SAMPLERS: list[Callable[[int, torch.Generator | None], Any]] = [
    lambda n, g: torchs.BatchSampler(torchs.RandomSampler(range(n), generator=g), 4, drop_last=True),
    lambda n, g: torchs.BatchSampler(torchs.SequentialSampler(range(n)), 3, drop_last=False),
    lambda n, g: torchs.BatchSampler(Eager(n), 3, drop_last=False),
    lambda n, g: [[0], [n - 1, 0], list(range(n))],
    lambda n, g: EagerBatches(n),
]
sizes = st.one_of(st.none(), st.integers(1, 9))
options = st.one_of(
    st.builds(_plain, sizes, st.booleans(), st.booleans()),
    st.builds(_sampled, st.sampled_from(SAMPLERS), sizes, st.booleans()),
    st.builds(_batch_sampled, st.sampled_from(BATCH_SAMPLERS)),
)
recipes = st.builds(
    Recipe,
    st.integers(0, 40),
    options,
    st.one_of(st.none(), st.integers(0, 9)),
    st.integers(0, 2**63 - 1),
    st.lists(st.one_of(st.none(), st.none(), st.integers(0, 4)), min_size=1, max_size=3).map(tuple),
)


def run(loader_class: Any, recipe: Recipe, make: Make, **further: Any) -> Any:
    """Everything that may be compared: the batches, the lengths, and what the generators give afterwards."""
    torch.manual_seed(recipe.seed)
    generator = None if recipe.generator is None else torch.Generator().manual_seed(recipe.generator)
    given_options = {**recipe.options(recipe.length, generator), **further}
    loader = loader_class(Trees(max(recipe.length, 1 if recipe.length else 0), make), **given_options)
    epochs, drawn = [], []
    for most in recipe.epochs:
        epochs.append(list(taken(loader, most)))
        if further.get("num_workers"):
            gc.collect()  # a torch iterator that is left to be collected in a forked worker hangs there for 5 s
        drawn.append((torch.rand(1), None if generator is None else torch.rand(1, generator=generator)))
    length = len(loader)
    del loader
    if further.get("num_workers"):
        let_torch_finish()
    return epochs, drawn, length


def let_torch_finish() -> None:
    gc.collect()  # its loader is part of a cycle
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join(300)
    resource_sharer.stop()  # it sends tensors of indices through files


def taken(loader: Any, most: int | None) -> Iterator[Any]:
    """Batches, and at the end the kind of error if there is one: torch cannot collate everything."""
    try:
        yield from itertools.islice(iter(loader), most)
    except Exception as error:
        yield next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins").__name__


def compare(recipe: Recipe, make: Make, **further: Any) -> None:
    if recipe.length == 0:
        recipe = recipe._replace(options=_plain(3, False, False))
    expected = run(torchs.DataLoader, recipe, make, **further)
    assert_same(run(ours.DataLoader, recipe, make, **further), expected, strides=not further)


@settings(max_examples=few(300))
@given(recipe=recipes, make=trees)
def test_without_workers_everything_is_torchs(recipe: Recipe, make: Make) -> None:
    compare(recipe, make)


@settings(max_examples=few(25))
@given(recipe=recipes, make=trees, workers=st.integers(1, 2), lasting=st.booleans())
def test_with_forked_workers_everything_is_torchs(recipe: Recipe, make: Make, workers: int, lasting: bool) -> None:
    compare(recipe, make, num_workers=workers, persistent_workers=lasting)


# Workers never see a sampler. Those that draw in another way, or are read in another, are tried with workers each time.
WITH_WORKERS = {1, 2, 7, 9, 11, 12}


@pytest.mark.parametrize(
    ("sampler", "workers"),
    [
        pytest.param(number, workers, marks=[thorough] if workers and number not in WITH_WORKERS else [])
        for number in range(len(SAMPLERS))
        for workers in (0, 2)
    ],
)
def test_each_sampler_with_and_without_workers(sampler: int, workers: int) -> None:
    recipe = Recipe(11, _sampled(SAMPLERS[sampler], 3, False), 5, 6, (2, None))
    compare(recipe, lambda number: number, num_workers=workers)


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_sampler_that_draws_when_asked_is_asked_as_often_as_by_torch(batch_size: int | None, lasting: bool) -> None:
    recipe = Recipe(9, _sampled(lambda n, g: Eager(n), batch_size, False), None, 1, (None, 1, None))
    compare(recipe, lambda number: number, num_workers=1, persistent_workers=lasting)
    recipe = recipe._replace(options=_batch_sampled(lambda n, g: EagerBatches(n)))
    compare(recipe, lambda number: number, num_workers=1, persistent_workers=lasting)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_dtype_large_enough_for_a_slot(workers: int) -> None:
    def sample(number: int) -> dict[str, torch.Tensor]:
        return {str(dtype): filled(number, (2, 2 * SMALL_LEAF // dtype.itemsize // 4), dtype) for dtype in DTYPES}

    recipe = Recipe(5, _plain(4, True, False), None, 3, (None,))
    compare(recipe, sample, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_arrays_mapped_from_a_file(workers: int, tmp_path: Any) -> None:
    array(1, (12, 5), "f4").tofile(tmp_path / "rows")
    rows = np.memmap(tmp_path / "rows", np.float32, "r+", shape=(12, 5))
    for batch_size in (None, 4):
        recipe = Recipe(12, _plain(batch_size, True, False), None, 3, (None, None))
        compare(recipe, lambda number: (rows[number], rows[number, 0]), num_workers=workers)


@pytest.mark.parametrize("further", [{}, {"num_workers": 2}])
def test_random_split_and_then_loading_is_torchs(further: dict[str, Any]) -> None:
    found = []
    for library in (torchs, ours):
        torch.manual_seed(11)
        parts = library.random_split(library.TensorDataset(torch.arange(20)), [0.7, 0.3])
        loaders = [library.DataLoader(part, batch_size=3, shuffle=True, **further) for part in parts]
        found.append([list(loader) for loader in loaders] + [torch.rand(2)])
    assert_same(found[1], found[0])


def test_two_loaders_in_turn_draw_as_torchs_do() -> None:
    found = []
    for library in (torchs, ours):
        torch.manual_seed(5)
        one, two = (library.DataLoader(range(10), batch_size=3, shuffle=True) for _ in range(2))
        found.append([list(zip(one, two, strict=True)) for _ in range(2)] + [torch.rand(2)])
    assert_same(found[1], found[0])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"sampler": Eager(9)}])
def test_indices_are_drawn_when_torch_draws_them(workers: int, options: dict[str, Any]) -> None:
    found = []
    for library in (torchs, ours):
        torch.manual_seed(5)
        shuffle = None if "sampler" in options else True
        iterator = iter(library.DataLoader(range(9), shuffle=shuffle, num_workers=workers, **options))
        drawn: list[Any] = [torch.rand(1)]  # with workers after the sampler's own draw, else before it
        for batch in iterator:
            drawn += [batch, torch.rand(1)]
        found.append(drawn)
        del iterator
        let_torch_finish()
    assert_same(found[1], found[0])
