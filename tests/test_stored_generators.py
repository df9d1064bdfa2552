"""Random generators among a dataset's attributes: in worker processes no two draw the same, and the batches are a
function of the seed; in threads it is said that they are not; without workers they are the user's."""

from __future__ import annotations

import os
import random
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, THREADS, every_process, few

from feedline import DataLoader, Dataset, IterableDataset, get_worker_info
from feedline.workers import stored_generators

MAKERS: dict[str, Callable[[int], Any]] = {
    "default_rng": np.random.default_rng,
    "RandomState": np.random.RandomState,
    "Random": random.Random,
    "Philox": lambda seed: np.random.Generator(np.random.Philox(seed)),
    "SFC64": lambda seed: np.random.Generator(np.random.SFC64(seed)),
    "MT19937": lambda seed: np.random.Generator(np.random.MT19937(seed)),
    "PCG64DXSM": lambda seed: np.random.Generator(np.random.PCG64DXSM(seed)),
    "RandomState of PCG64": lambda seed: np.random.RandomState(np.random.PCG64(seed)),
}
every_generator = pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in MAKERS.items()])


def draw(generator: Any) -> tuple[float, float]:
    """One number, and one of those that come in pairs of which the second is kept for later."""
    if isinstance(generator, random.Random):
        return generator.random(), generator.gauss(0, 1)
    return generator.random(), generator.normal()


class Noisy(Dataset[Any]):
    def __init__(self, generator: Any, length: int = 12) -> None:
        self.generator = generator
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return draw(self.generator)


class Several(Noisy):
    def __getitem__(self, index: int) -> Any:
        return [draw(generator) for generator in self.generator]


def batches(generator: Any, epochs: int = 2, seed: int = 7, size: int = 3, length: int = 12, **kind: Any) -> list[Any]:
    with DataLoader(Noisy(generator, length), batch_size=size, seed=seed, **kind) as loader:
        return [[column.tolist() for column in batch] for _ in range(epochs) for batch in loader]


def values(batches: list[Any]) -> list[float]:
    return [value for batch in batches for column in batch for value in column]


def all_kinds(own: int = 0, seed: int = 7, used: bool = False, workers: int = 2) -> dict[str, list[float]]:
    """What each kind of generator draws in two epochs: all of them in one dataset, which takes one pair of workers."""
    generators = [make(own) for make in MAKERS.values()]
    for generator in generators if used else ():
        draw(generator)
    kind: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": "fork"}
    with DataLoader(Several(generators), batch_size=3, seed=seed, **kind) as loader:
        got = [batch for _ in range(2) for batch in loader]
    return {
        name: [value for batch in got for column in batch[place] for value in column.tolist()]
        for place, name in enumerate(MAKERS)
    }


def test_no_two_workers_batches_or_epochs_draw_the_same_whatever_their_number() -> None:
    one, two, three = (all_kinds(workers=number) for number in (1, 2, 3))
    assert one == two == three
    for name, drawn in one.items():
        assert len(set(drawn)) == len(drawn) == 48, name


@every_process
@pytest.mark.parametrize("persistent", [False, True])
def test_nor_does_the_start_method(kind: dict[str, Any], persistent: bool) -> None:
    def loaded(**kind: Any) -> list[Any]:
        with DataLoader(Several([make(0) for make in MAKERS.values()]), batch_size=None, seed=7, **kind) as loader:
            return [sample for _ in range(2) for sample in loader]

    assert loaded(persistent_workers=persistent, **kind) == loaded(**FORK)


@settings(max_examples=few(40))
@given(
    name=st.sampled_from(sorted(MAKERS)),
    own=st.integers(0, 2**32 - 1),
    seed=st.integers(0, 2**63 - 1),
    length=st.integers(1, 20),
    size=st.integers(1, 6),
    workers=st.integers(1, 3),
    prefetch=st.integers(1, 4),
    method=st.sampled_from(["fork", "fork", "fork", "spawn", "forkserver"]),
)
def test_any_workers_give_the_same_batches(
    name: str, own: int, seed: int, length: int, size: int, workers: int, prefetch: int, method: str
) -> None:
    options: dict[str, Any] = {"seed": seed, "length": length, "size": size}
    one = batches(MAKERS[name](own), num_workers=1, multiprocessing_context="fork", **options)
    kind = {"num_workers": workers, "multiprocessing_context": method, "prefetch_factor": prefetch}
    assert batches(MAKERS[name](own), **kind, **options) == one
    drawn = values(one)
    assert len(set(drawn)) == len(drawn) == 4 * length


def test_the_loaders_seed_counts_and_so_does_the_generators_own() -> None:
    several = [all_kinds(), all_kinds(seed=8), all_kinds(own=1), all_kinds(used=True)]
    for name in MAKERS:
        drawn = [value for each in several for value in each[name]]
        assert len(set(drawn)) == len(drawn) == 4 * 48, name


def test_two_that_were_equal_stay_equal() -> None:
    samples = list(DataLoader(Several([np.random.default_rng(0), np.random.default_rng(0)]), batch_size=None, **FORK))
    assert all(one == other for one, other in samples)
    assert len({one for one, _ in samples}) == 12


class Deep(Noisy):
    """Where else a generator may be."""

    def __init__(self) -> None:
        super().__init__(None)
        self.steps = [{"noise": np.random.default_rng(0)}]
        self.bits = np.random.PCG64(5)

    def __getitem__(self, index: int) -> Any:
        return draw(self.steps[0]["noise"]), draw(self.of_class), np.random.Generator(self.bits).random()

    of_class = random.Random(3)


class Mixing:
    def __init__(self) -> None:
        self.generator = np.random.default_rng(1)

    def __call__(self, samples: list[Any]) -> Any:
        return samples, draw(self.generator)


def test_it_is_found_wherever_it_is_and_in_collate_fn_too() -> None:
    def loaded(workers: int) -> list[Any]:
        options: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": "fork", "seed": 1}
        return list(DataLoader(Deep(), batch_size=2, collate_fn=Mixing(), **options))

    one = loaded(1)
    assert one == loaded(2) == loaded(3)
    flat = [value for samples, mixed in one for value in (*mixed, *(v for a, b, c in samples for v in (*a, *b, c)))]
    assert len(set(flat)) == len(flat) == 72


class Stream(IterableDataset[Any]):
    def __init__(self, shards: bool) -> None:
        self.generator = np.random.default_rng(0)
        self.shards = shards

    def __iter__(self) -> Any:
        info = get_worker_info() if self.shards else None
        mine = self.generator
        for _ in range(0 if info is None else info.id, 12, 1 if info is None else info.num_workers):
            yield mine.random()


@pytest.mark.filterwarnings("ignore:the IterableDataset neither")
def test_a_stream_read_whole_draws_the_same_with_any_number_of_workers() -> None:
    one, two, three = (
        [b.tolist() for b in DataLoader(Stream(False), 2, num_workers=n, multiprocessing_context="fork", seed=3)]
        for n in (1, 2, 3)
    )
    assert one == two == three
    assert len({value for batch in one for value in batch}) == 12


def test_the_shards_of_a_stream_draw_differently() -> None:
    drawn = [value for batch in DataLoader(Stream(True), 2, seed=3, **FORK) for value in batch.tolist()]
    assert len(set(drawn)) == len(drawn) == 12


@every_generator
def test_without_workers_the_generator_is_the_users(make: Callable[[int], Any]) -> None:
    alone = make(0)
    assert values(batches(make(0), size=1)) == [value for _ in range(24) for value in draw(alone)]


def test_here_they_are_left_as_they_were() -> None:
    generators, untouched = ([make(0) for make in MAKERS.values()] for _ in range(2))
    assert len(list(DataLoader(Several(generators), batch_size=3, **FORK))) == 4
    for name, one, other in zip(MAKERS, generators, untouched, strict=True):
        assert draw(one) == draw(other), name


@every_generator
def test_threads_share_it_and_that_is_said_once(make: Callable[[int], Any]) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        batches(make(0), **THREADS)
    (only,) = told
    assert str(only.message).startswith("dataset.generator is a random generator that all worker threads draw from")
    assert "feedline.rng()" in str(only.message)


def test_one_thread_has_it_for_itself() -> None:
    assert batches(np.random.default_rng(0), num_workers=1, workers="thread") == batches(np.random.default_rng(0))


class Killed(Several):
    """One sample kills its worker, once."""

    def __init__(self, generator: Any, once: Path) -> None:
        super().__init__(generator)
        self.once = once

    def __getitem__(self, index: int) -> Any:
        if index == 7 and not self.once.exists():
            self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.filterwarnings("ignore:worker . .* was killed")
@pytest.mark.parametrize("persistent", [False, True])
def test_a_replacement_draws_as_the_one_it_replaces(persistent: bool, tmp_path: Path) -> None:
    def loaded(once: Path) -> list[Any]:
        generators = [make(0) for make in MAKERS.values()]
        options: dict[str, Any] = {**FORK, "num_workers": 1, "persistent_workers": persistent, "collate_fn": Mixing()}
        drawn = []
        with DataLoader(Killed(generators, once), batch_size=2, seed=5, **options) as loader:
            for _ in range(2):
                for batch in loader:
                    drawn.append(batch)
                    for generator in generators:  # the user looks at a sample now and then
                        draw(generator)
        return drawn

    (tmp_path / "there").touch()
    assert loaded(tmp_path / "once") == loaded(tmp_path / "there")
    assert (tmp_path / "once").exists()


class Own(random.Random):
    def random(self) -> float:
        return 0.25

    def gauss(self, mu: float = 0, sigma: float = 1) -> float:
        return 0.5


@every_process
def test_one_that_cannot_be_seeded_is_warned_of(kind: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match=r"dataset\.generator is a random generator of a kind feedline cannot reseed"):
        batches(Own(), **kind)


def test_the_systems_own_and_the_global_ones_need_no_seed_of_their_own() -> None:
    things = Noisy([random.SystemRandom(), random._inst, np.random.mtrand._rand, random, np.random])
    job = type("Job", (), {"dataset": things, "collate_fn": None})()
    assert stored_generators.generators(job) == []


class Remade(Noisy):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index), get_worker_info().id  # type: ignore[union-attr]


def test_one_made_in_the_worker_is_the_workers() -> None:
    def remake(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        info.dataset.generator = np.random.default_rng(worker)

    loader = DataLoader(Remade(None), batch_size=None, worker_init_fn=remake, **FORK)
    seen: dict[int, list[Any]] = {0: [], 1: []}
    for drawn, worker in loader:
        seen[worker].append(drawn)
    for worker, drawn in seen.items():
        generator = np.random.default_rng(worker)
        assert drawn == [draw(generator) for _ in drawn]
