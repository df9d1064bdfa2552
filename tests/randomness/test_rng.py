"""feedline.rng(): a sample's draws follow from seed, epoch and index, and from nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few, named

from feedline import ArrayDataset, DataLoader, RandomSampler, Subset, random_split, rng
from feedline.randomness import rng as rng_module
from feedline.randomness.rng import enter_sample, enter_task, leave_task, mix, task_seed, thread_place

WORDS = st.integers(0, 2**64 - 1)


@pytest.fixture(autouse=True)
def outside_afterwards() -> Iterator[None]:
    yield
    while thread_place().task is not None:
        leave_task()


def draw(seed: int, epoch: int, *key: int) -> float:
    enter_task(seed, epoch)
    enter_sample(*key)
    return float(rng().random())


# --- mixing ---


@given(st.lists(WORDS, max_size=5), st.lists(WORDS, max_size=5))
def test_different_numbers_mix_to_different_ones(one: list[int], other: list[int]) -> None:
    assert 0 <= mix(*one) < 2**64
    assert (mix(*one) == mix(*other)) == (one == other)


@given(st.lists(WORDS, min_size=1, max_size=4), st.data())
def test_one_changed_bit_changes_about_half_of_them(parts: list[int], data: st.DataObject) -> None:
    place, bit = data.draw(st.integers(0, len(parts) - 1)), data.draw(st.integers(0, 63))
    changed = [part ^ (1 << bit) if i == place else part for i, part in enumerate(parts)]
    assert 8 <= (mix(*parts) ^ mix(*changed)).bit_count() <= 56  # 32 ± 4 is usual; outside this by chance: 1e-9


def test_the_numbers_stay_what_they_are() -> None:
    """A resumed run must draw what it drew under an earlier release."""
    assert mix() == 0x9E3779B97F4A7C15
    assert mix(7, 0, 1) == 0x71602468932CAE4F
    assert draw(7, 0, 1) == 0.7200071993817141


# --- by hand: task, sample, draw ---


def test_draws_are_a_function_of_seed_epoch_and_index() -> None:
    keys = list(product((0, 1, 2**62), (0, 1, 2), (0, 1, 2, 10**12)))
    draws = {key: draw(*key) for key in keys}
    assert len(set(draws.values())) == len(keys)
    for key in reversed(keys):
        assert draw(*key) == draws[key]


def test_calls_within_a_sample_go_on_where_the_last_left_off() -> None:
    enter_task(1, 2)
    enter_sample(3)
    apart = [rng().random() for _ in range(5)]
    enter_sample(3)
    assert rng().random(5).tolist() == apart
    assert len(set(apart)) == 5


def test_an_index_given_is_that_samples_draw() -> None:
    enter_task(1, 2)
    enter_sample(99)
    given_index = [rng(index).random() for index in range(5)]
    assert given_index == [draw(1, 2, index) for index in range(5)]


def test_indices_taken_in_turns_go_on_each_for_itself() -> None:
    """A `__getitems__` that first crops all images, then flips all of them, must not draw the same again."""
    enter_task(1, 2)
    enter_sample(0)
    rounds = [[rng(index).random() for index in (5, 6, 7)] for _ in range(3)]
    enter_sample(0)
    assert [list(column) for column in zip(*rounds, strict=True)] == [rng(i).random(3).tolist() for i in (5, 6, 7)]


def test_what_one_sample_draws_is_nothing_to_the_next() -> None:
    enter_task(1, 2)
    enter_sample(3)
    rng(4).random(10)
    enter_sample(4)
    assert rng().random() == draw(1, 2, 4)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.intp])
def test_an_index_may_be_a_numpy_integer(kind: Callable[[int], Any]) -> None:
    enter_task(2**62 + 5, 2)
    assert rng(kind(7)).random() == draw(2**62 + 5, 2, 7)


def test_an_index_that_is_no_integer_is_refused() -> None:
    enter_task(1, 2)
    with pytest.raises(TypeError):
        rng("seven")  # type: ignore[arg-type]


def test_outside_a_loader_every_call_is_new() -> None:
    assert len({rng().random() for _ in range(10)}) == 10
    assert len({rng(3).random() for _ in range(10)}) == 10


def test_another_thread_is_outside() -> None:
    def work() -> None:
        drawn.append(rng().random())
        drawn.append(draw(1, 2, 3))

    drawn: list[float] = []
    enter_task(1, 2)
    enter_sample(3)
    mine = [rng().random()]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    mine += [rng().random(), rng().random()]
    enter_sample(3)
    assert rng().random(3).tolist() == mine
    assert drawn[0] not in mine
    assert drawn[1] == mine[0]


# --- through a loader ---


class Noisy:
    """Each sample: its index and what it drew."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, rng().random()


class NoisyAtOnce(Noisy):
    def __getitems__(self, indices: list[int]) -> list[tuple[int, float]]:
        return [(index, rng(index).random()) for index in indices]


def draws(dataset: Any, seed: int = 7, epoch: int = 0, **options: Any) -> list[tuple[int, float]]:
    loader = DataLoader(dataset, seed=seed, **options)
    loader.set_epoch(epoch)
    if options.get("batch_size", 1) is None:
        return list(loader)
    pairs = [zip(indices.tolist(), drawn.tolist(), strict=True) for indices, drawn in loader]
    return [pair for batch in pairs for pair in batch]


WRAPPED: dict[str, Any] = {
    "bare": Noisy(),
    "subset": Subset(Noisy(), [20, 3, 11, 4, 5]),
    "subset of a subset": Subset(Subset(Noisy(), range(23, -1, -1)), range(3, 17, 2)),
    "split": random_split(Noisy(), [0.5, 0.5], seed=3)[1],
    "all at once": NoisyAtOnce(),
    "subset, all at once": Subset(NoisyAtOnce(), [20, 3, 11, 4, 5]),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_samples_draw_is_the_same_for_any_batch_size_and_order(name: str) -> None:
    dataset = WRAPPED[name]
    reference = draws(dataset)
    assert len({drawn for _, drawn in reference}) == len(reference) == len(dataset)
    sizes: list[int | None] = [2, 5, 100]
    if name != "subset, all at once":  # its samples are read at once by the batch, and singly without batches
        sizes.append(None)
    for size in sizes:
        assert draws(dataset, batch_size=size) == reference
        assert sorted(draws(dataset, batch_size=size, shuffle=True)) == sorted(reference)


@pytest.mark.parametrize("name", WRAPPED)
def test_every_seed_and_epoch_draws_anew(name: str) -> None:
    runs = [draws(WRAPPED[name], seed=seed, epoch=epoch) for seed, epoch in product((7, 8), (0, 1))]
    every = [drawn for run in runs for _, drawn in run]
    assert len(set(every)) == len(every)


def test_reading_all_at_once_draws_what_reading_singly_draws() -> None:
    assert draws(NoisyAtOnce(), batch_size=5) == draws(Noisy(), batch_size=5)


@pytest.mark.parametrize(
    "sampler", [[3] * 8, RandomSampler(2, replacement=True, num_samples=9), RandomSampler(2, num_samples=9)], ids=named
)
def test_an_index_that_comes_again_draws_anew(sampler: Any) -> None:
    reference = draws(Noisy(), sampler=sampler)
    assert len({index for index, _ in reference}) <= 2
    assert len({drawn for _, drawn in reference}) == len(reference)
    for size in (None, 2, 5):
        assert draws(Noisy(), sampler=sampler, batch_size=size) == reference


def test_the_same_index_twice_in_one_batch_draws_anew() -> None:
    reference = draws(Noisy(), batch_sampler=[[3, 3], [3, 3, 3]])
    assert len({drawn for _, drawn in reference}) == 5


@settings(max_examples=few(30))
@given(st.integers(1, 10), st.integers(1, 10), st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_two_batch_sizes_never_differ(one: int, other: int, seed: int, epoch: int) -> None:
    assert draws(Noisy(), seed, epoch, batch_size=one) == draws(Noisy(), seed, epoch, batch_size=other)


def test_a_sample_that_loads_from_another_loader_goes_on_with_its_own_draws() -> None:
    class Loading(Noisy):
        def __getitem__(self, index: int) -> Any:
            first = rng().random()
            assert draws(Noisy(), batch_size=4) == inner
            return first, rng().random()

    class Plain(Noisy):
        def __getitem__(self, index: int) -> Any:
            return rng().random(), rng().random()

    inner = draws(Noisy())
    assert draws(Loading(), seed=8) == draws(Plain(), seed=8)
    assert rng().random() != rng().random()


@pytest.mark.parametrize("arrays", [np.arange(8), ArrayDataset(rows=np.arange(8))])
def test_so_does_one_that_loads_arrays(arrays: Any) -> None:
    """Of those nobody draws, so their loader enters no task of its own."""

    class Loading(Noisy):
        def __getitem__(self, index: int) -> Any:
            assert len(list(DataLoader(arrays, batch_size=4))) == 2
            return super().__getitem__(index)

    assert draws(Loading(), seed=8) == draws(Noisy(), seed=8)


def test_between_batches_and_after_an_error_the_loop_is_outside() -> None:
    class Failing(Noisy):
        def __getitem__(self, index: int) -> Any:
            if index == 3:
                raise LookupError("three")
            return super().__getitem__(index)

    batches = iter(DataLoader(Failing(), seed=7))
    outside = []
    for _ in range(3):
        next(batches)
        outside.append(rng().random())
    with pytest.raises(LookupError, match="three"):
        next(batches)
    outside += [rng().random(), rng().random()]
    batches.close()
    inside = [drawn for _, drawn in draws(Noisy())]
    assert len({*outside, *inside}) == len(outside) + len(inside)


@given(seed=st.integers(0, 2**63 - 1), epochs=st.sampled_from([1, 10, 100]), start=st.integers(0, 2**20))
@settings(max_examples=few(20))
def test_the_lower_half_of_a_tasks_seed_is_never_the_same_twice(seed: int, epochs: int, start: int) -> None:
    seqs = range(start, start + 20_000 // epochs)
    lower = {task_seed(seed, epoch, seq) & 0xFFFFFFFF for epoch in range(epochs) for seq in seqs}
    assert len(lower) == epochs * len(seqs)


@given(
    seed=st.integers(0, 2**64 - 1),
    epoch=st.one_of(st.integers(0, 1000), st.integers(0, 2**70)),
    start=st.one_of(st.integers(0, 600), st.integers(0, 2**62)),
)
@settings(max_examples=few(50))
def test_seeds_of_many_tasks_at_once_are_those_of_each(seed: int, epoch: int, start: int) -> None:
    for seq in range(start, start + 300, 7):
        assert task_seed(seed, epoch, seq) == rng_module._one_seed(seed, epoch, seq)


def test_the_seeds_of_tasks_are_those_of_earlier_versions() -> None:
    """Else a run that is repeated, or continued, with another version of feedline draws other numbers."""
    assert [task_seed(7, 3, seq) for seq in (0, 31, 32, 255, 256, 10**6)] == SEEDS


SEEDS = [
    17506506660810324156,
    13193400987064317762,
    15813548977575906001,
    12753514602639161142,
    13816521796896677700,
    274166747294072706,
]


def test_a_tasks_seed_follows_seed_epoch_and_number() -> None:
    assert len({task_seed(seed, epoch, seq) for seed in range(9) for epoch in range(9) for seq in range(9)}) == 9**3


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_fn_may_draw_for_a_batch_of_no_samples(workers: int) -> None:
    options: dict[str, Any] = {"batch_sampler": [[]], "collate_fn": lambda samples: rng().random(), "seed": 3}
    with DataLoader([1, 2], num_workers=workers, **options) as loader:
        assert list(loader) == list(DataLoader([1, 2], **options))
