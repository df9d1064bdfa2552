"""Generators that a dataset holds are the user's: workers leave them alone, and say so where they repeat themselves."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import FORK, SPAWN, THREADS, every_process, every_worker

from feedline import DataLoader, Dataset, IterableDataset, get_worker_info
from feedline.workers.held_generators import generators

REPEATED = " a random generator that samples draw from, and each worker process has a copy of it"
MAKERS: dict[str, Callable[[], Any]] = {
    "default_rng": lambda: np.random.default_rng(0),
    "RandomState": lambda: np.random.RandomState(0),
    "MT19937": lambda: np.random.Generator(np.random.MT19937(0)),
    "Random": lambda: random.Random(0),
}
every_generator = pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in MAKERS.items()])


class Noisy(Dataset[float]):
    """Draws for every sample, as an augmentation does."""

    def __init__(self, generator: Any, size: int = 16) -> None:
        self.rng, self.size = generator, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> float:
        return float(self.rng.random())


class Ordered(Dataset[int]):
    """Draws an order once, when its first sample is read; every worker must draw the same."""

    def __init__(self, generator: Any, size: int = 120) -> None:
        self.rng, self.size = generator, size
        self.order: list[int] | None = None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if self.order is None:
            self.order = list(range(self.size))
            self.rng.shuffle(self.order)
        return self.order[index]


class Files(IterableDataset[int]):
    """Shuffles the files in every epoch, then takes its worker's share: the usual idiom."""

    def __init__(self, generator: Any) -> None:
        self.rng = generator
        self.files = list(range(24))

    def __iter__(self) -> Iterator[int]:
        files = list(self.files)
        self.rng.shuffle(files)
        info = get_worker_info()
        return iter(files if info is None else files[info.id :: info.num_workers])


class Torn(Dataset[Any]):
    def __init__(self, held: list[Any]) -> None:
        self.held = held


def loaded(data: Any, **options: Any) -> list[Any]:
    return [value for batch in DataLoader(data, **{"batch_size": 4, **options}) for value in batch.tolist()]


@every_generator
@every_worker
def test_a_stream_that_shuffles_and_shares_out_gives_each_element_once_in_every_epoch(
    kind: dict[str, Any], make: Callable[[], Any]
) -> None:
    with DataLoader(Files(make()), batch_size=4, persistent_workers=True, **kind) as loader:
        epochs = [sorted(value for batch in loader for value in batch.tolist()) for _ in range(3)]
    assert epochs == [list(range(24))] * 3


class Late:
    """A worker_init_fn that holds back worker 1 until the consumer has left the first epoch."""

    def __init__(self) -> None:
        self.gone = multiprocessing.get_context("fork").Event()

    def __call__(self, worker: int) -> None:
        if worker == 1:
            assert self.gone.wait(600)


@pytest.mark.parametrize("kind", [FORK, THREADS], ids=["fork", "threads"])
def test_a_worker_that_comes_late_opens_an_epoch_that_was_left_early_as_the_others_have(kind: dict[str, Any]) -> None:
    late = Late()
    data = Files(np.random.default_rng(0))
    with DataLoader(data, batch_size=4, persistent_workers=True, worker_init_fn=late, **kind) as loader:
        next(iter(loader))
        second = iter(loader)
        late.gone.set()
        assert sorted(value for batch in second for value in batch.tolist()) == list(range(24))
        assert sorted(value for batch in loader for value in batch.tolist()) == list(range(24))


@every_worker
def test_a_stream_has_the_order_that_its_generator_gives_it(kind: dict[str, Any]) -> None:
    expected = list(range(24))
    np.random.default_rng(3).shuffle(expected)
    got = loaded(Files(np.random.default_rng(3)), batch_size=1, **{**kind, "num_workers": 1})
    assert got == expected
    both = loaded(Files(np.random.default_rng(3)), batch_size=1, **kind)
    assert both == expected  # worker 0 has the even places, worker 1 the odd ones


@every_generator
@pytest.mark.parametrize("kind", [FORK, SPAWN], ids=["fork", "spawn"])
def test_an_order_drawn_once_is_the_same_in_all_workers_and_no_reason_for_a_warning(
    kind: dict[str, Any], make: Callable[[], Any]
) -> None:
    with DataLoader(Ordered(make()), batch_size=4, **{**kind, "num_workers": 3, "persistent_workers": True}) as loader:
        for _ in range(2):
            assert sorted(value for batch in loader for value in batch.tolist()) == list(range(120))


@every_process
def test_a_worker_draws_what_the_generator_gives_and_nobody_seeds_it(kind: dict[str, Any]) -> None:
    ours = np.random.default_rng(5)
    got = loaded(Noisy(np.random.default_rng(5)), seed=3, **{**kind, "num_workers": 1})
    assert got == [ours.random() for _ in range(16)]


def repeated(data: Any, epochs: int = 1, **options: Any) -> list[str]:
    """What is said of generators that repeat themselves."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with DataLoader(data, **{"batch_size": 2, "assignment": "in_turn", **options}) as loader:
            for _ in range(epochs):
                list(loader)
    return [str(each.message) for each in told if REPEATED in str(each.message)]


class Turns(Noisy):
    """Each worker reads its samples only when all have begun, so that none reads them all."""

    def __init__(self, generator: Any, barrier: Any) -> None:
        super().__init__(generator, 64)
        self.barrier = barrier

    def __getitem__(self, index: int) -> float:
        if index % 2 == 0:  # the first of a batch
            self.barrier.wait(100)
        return super().__getitem__(index)


@every_generator
def test_two_workers_that_draw_the_same_for_samples_are_warned_of_once(make: Callable[[], Any]) -> None:
    data = Turns(make(), multiprocessing.get_context("fork").Barrier(2))
    (told,) = repeated(data, epochs=2, **FORK)
    assert told.startswith("dataset.rng ")
    assert "feedline.rng()" in told
    assert "get_worker_info().seed" in told


def test_one_worker_that_is_started_anew_repeats_its_epoch_and_one_that_stays_does_not() -> None:
    one = {**FORK, "num_workers": 1}
    assert len(repeated(Noisy(np.random.default_rng(0)), epochs=2, **one)) == 1
    assert repeated(Noisy(np.random.default_rng(0)), epochs=2, persistent_workers=True, **one) == []


def own_generator(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.rng = np.random.default_rng(info.seed)


def test_a_generator_of_each_workers_own_is_no_reason_for_a_warning() -> None:
    data = Turns(np.random.default_rng(0), multiprocessing.get_context("fork").Barrier(2))
    assert repeated(data, worker_init_fn=own_generator, **FORK) == []


def test_a_generator_whose_state_cannot_be_read_is_left_alone() -> None:
    class Odd(random.Random):
        def getstate(self) -> Any:
            raise NotImplementedError("no")

    assert len(loaded(Noisy(Odd(1)), **FORK)) == 16


def test_without_workers_it_is_the_users_and_worker_processes_do_not_touch_it() -> None:
    ours, theirs = np.random.default_rng(5), np.random.default_rng(5)
    assert loaded(Noisy(theirs)) == [ours.random() for _ in range(16)]
    loaded(Noisy(theirs), **{**FORK, "num_workers": 1})
    assert theirs.random() == ours.random()


@every_generator
def test_threads_share_it_and_that_is_said_once(make: Callable[[], Any]) -> None:
    with pytest.warns(UserWarning, match=r"dataset\.rng is a random generator that all worker threads share") as told:
        loaded(Noisy(make()), **THREADS)
    assert len(told) == 1


def test_it_is_found_wherever_it_is_and_the_global_ones_are_not_meant() -> None:
    held = [
        {"a": np.random.default_rng(0)},
        random.Random(1),
        random.SystemRandom(),
        random._inst,
        np.random.mtrand._rand,
    ]
    job = type("Job", (), {"dataset": Torn(held), "collate_fn": Torn([np.random.PCG64(0)])})()
    assert {found.path for found in generators(job)} == {
        "dataset.held[0]['a']",
        "dataset.held[1]",
        "collate_fn.held[0]",
    }


class Pairs(Noisy):
    """Draws one normal number a sample, of which RandomState makes two at a time."""

    def __getitem__(self, index: int) -> float:
        return float(self.rng.randn())


def test_the_second_of_a_pair_of_normal_draws_is_a_draw() -> None:
    one = {**FORK, "num_workers": 1}
    assert len(repeated(Pairs(np.random.RandomState(0)), epochs=2, **{**one, "batch_size": 1})) == 1


class Augmented(Dataset[float]):
    """Each step of its pipeline holds a generator; one of them is drawn from only later."""

    def __init__(self) -> None:
        self.steps = [random.Random(0) for _ in range(5)]
        self.late = random.Random(0)

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> float:
        return sum(step.random() for step in self.steps) + (self.late.random() if index >= 12 else 0)


def test_all_steps_of_a_pipeline_are_named_in_one_warning() -> None:
    (told,) = repeated(Augmented(), epochs=2, **{**FORK, "num_workers": 1})
    assert told.startswith("dataset.steps[0], dataset.steps[1], dataset.steps[2] (and 2 more) are each a random gener")


class FailsFirst(Ordered):
    """Draws its order, and fails before it has kept it, as often as it is told to."""

    def __init__(self, failures: int) -> None:
        super().__init__(np.random.default_rng(0), 24)
        self.failures = failures

    def __getitem__(self, index: int) -> int:
        if self.order is None:
            order = list(range(self.size))
            self.rng.shuffle(order)
            self.failures -= 1
            if self.failures >= 0:
                raise ValueError("not yet")
            self.order = order
        return self.order[index]


def test_what_a_batch_has_drawn_that_failed_was_for_no_sample() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with DataLoader(FailsFirst(3), batch_size=2, **{**FORK, "num_workers": 1}) as loader:
            for _ in range(2):
                batches, failed = iter(loader), 0
                for _ in range(12):
                    try:
                        next(batches)
                    except ValueError:
                        failed += 1
                assert failed == 3
    # From Python 3.12 on it warns of forks itself, by a DeprecationWarning.
    assert [str(each.message) for each in told if issubclass(each.category, UserWarning)] == []


class Told(Files):
    """Has what cannot be copied, and an array by which all workers are told the epoch."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0))
        self.lock = threading.Lock()
        self.value = multiprocessing.Value("i", 0)
        self.epoch = np.zeros(1, int)

    def __iter__(self) -> Iterator[int]:
        with self.lock, self.value.get_lock():
            files = super().__iter__()
        return (int(self.epoch[0]) * 100 + file for file in files)


def test_threads_have_their_own_generators_and_share_what_tells_them_the_epoch() -> None:
    data = Told()
    with DataLoader(data, batch_size=4, persistent_workers=True, **THREADS) as loader:
        for epoch in range(3):
            data.epoch[0] = epoch
            found = sorted(value for batch in loader for value in batch.tolist())
            assert found == [epoch * 100 + file for file in range(24)]


class NotCopied(Files):
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("there is one of me")

    def __copy__(self) -> Any:
        return self


def test_a_stream_that_cannot_be_copied_is_warned_of_before_its_threads_draw_from_one_generator() -> None:
    with pytest.warns(UserWarning, match=r"dataset\.rng is a random generator that all worker threads share"):
        loaded(NotCopied(np.random.default_rng(0)), **THREADS)


# Which is said, too, if both workers happen to have made two batches.
@pytest.mark.filterwarnings("ignore:dataset.rng is a random generator that samples draw from")
@pytest.mark.parametrize("kind", [{}, FORK])
def test_whoever_goes_on_in_an_epoch_is_told_that_no_state_holds_it(kind: dict[str, Any]) -> None:
    def loader() -> DataLoader[Any, Any]:
        return DataLoader(Noisy(np.random.default_rng([0, os.getpid()])), batch_size=4, **kind)

    first = loader()
    iterator = iter(first)
    next(iterator)
    state = first.state_dict()
    del iterator
    again = loader()
    again.load_state_dict(state)
    with pytest.warns(UserWarning, match=r"continues with batch 1, but a loader's state .*: dataset\.rng\. Samples"):
        iterator = iter(again)
    assert len(list(iterator)) == 3


class Deadly(Noisy):
    """Its worker dies once, at the file's sample."""

    def __init__(self, path: Path) -> None:
        super().__init__(None, 64)
        self.path = path

    def __getitem__(self, index: int) -> float:
        if index == 40 and self.path.exists():
            self.path.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_worker_in_a_dead_ones_place_is_no_second_copy(tmp_path: Path) -> None:
    (tmp_path / "once").touch()
    loader = DataLoader(
        Deadly(tmp_path / "once"), batch_size=4, worker_init_fn=own_generator, assignment="in_turn", **FORK
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(list(loader)) == 16
    (told,) = (str(each.message) for each in caught if issubclass(each.category, UserWarning))
    assert "killed by SIGKILL" in told
    assert "a generator made there) begins again" in told
