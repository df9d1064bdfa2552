"""Workers under feedline.torch: seeds, threads, errors, order, time limits, and what lasts from epoch to epoch."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.utils.data as torchs
from kinds import FORK, FORKSERVER, INLINE, SPAWN, THREADS
from sameness import Trees, assert_same

import feedline
import feedline.torch as ours
from feedline.errors import WorkerError

kinds = pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])
seen: dict[str, Any] = {}


def remember(worker_id: int) -> None:
    """A worker_init_fn that takes down what it finds."""
    seen.update(id=worker_id, seed=torch.initial_seed(), python=random.random(), torch=torch.rand(1).item())


class Remembered(torchs.Dataset[Any]):
    """What this worker's worker_init_fn has found."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**seen, "threads": torch.get_num_threads(), "info": torchs.get_worker_info().seed}  # type: ignore[union-attr]


class RememberedByBoth(Remembered):
    """The first sample of each of two workers waits for the other's, or one might be quick enough to take all."""

    def __init__(self) -> None:
        self.both, self.met = multiprocessing.get_context("fork").Barrier(2), False

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not self.met:
            self.both.wait()
            self.met = True
        return super().__getitem__(index)


def by_worker(loader: Any) -> dict[int, dict[str, Any]]:
    return {sample["id"]: sample for sample in loader}


def test_worker_init_fn_finds_torchs_seeds_which_differ_and_follow_the_generator() -> None:
    def run(library: Any, seed: int) -> dict[int, dict[str, Any]]:
        generator = torch.Generator().manual_seed(seed)
        options = {"batch_size": None, "worker_init_fn": remember, "generator": generator, "num_workers": 2}
        return by_worker(library.DataLoader(RememberedByBoth(), **options))

    one, again, other = run(ours, 1), run(torchs, 1), run(ours, 2)
    assert one == again
    assert len({sample["seed"] for sample in [*one.values(), *other.values()]}) == 4
    assert all(sample["info"] == sample["seed"] for sample in one.values())


def test_seeds_follow_the_global_generator_when_there_is_no_other() -> None:
    found = []
    for library in (torchs, ours):
        torch.manual_seed(8)
        options = {"batch_size": None, "worker_init_fn": remember, "num_workers": 1}
        found.append(list(library.DataLoader(Remembered(), **options)))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", [FORK, SPAWN, FORKSERVER], ids=["fork", "spawn", "forkserver"])
def test_a_worker_process_uses_one_thread_and_works_under_any_start_method(kind: dict[str, Any]) -> None:
    before = torch.get_num_threads()
    samples = list(ours.DataLoader(Remembered(), batch_size=None, worker_init_fn=remember, **kind))
    assert [sample["threads"] for sample in samples] == [1] * 12
    assert torch.get_num_threads() == before


class Threads:
    """How many torch uses where the sample is read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return torch.get_num_threads()


@pytest.mark.parametrize("library", [feedline, ours])
def test_threads_that_read_in_a_worker_process_use_one_thread_each(library: Any) -> None:
    (batch,) = library.DataLoader(Threads(), batch_size=4, fetch_threads=2, **FORK)
    assert batch.tolist() == [1] * 4  # on a machine with one CPU that says nothing


class Augmented(torchs.Dataset[Any]):
    """Draws from everything there is to draw from."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return index, torch.rand(2), random.random(), np.random.rand(), torch.randn(1), ours.rng().random()


def epochs(kind: dict[str, Any], seed: int = 3) -> list[list[Any]]:
    torch.manual_seed(seed)
    loader = ours.DataLoader(Augmented(), batch_size=3, shuffle=True, **kind)
    found = [list(loader), list(loader)]
    loader.close()
    return found


@pytest.mark.parametrize(
    "kind",
    [{"num_workers": 1}, {"num_workers": 2}, SPAWN],
    ids=["one", "two", "spawn"],
)
def test_augmentation_is_the_same_for_any_number_and_kind_of_worker_processes(kind: dict[str, Any]) -> None:
    assert_same(epochs(kind), epochs(INLINE))


def test_augmentation_differs_between_samples_epochs_and_seeds() -> None:
    drawn = [batch[1] for seed in (3, 4) for epoch in epochs(FORK, seed) for batch in epoch]
    assert len(set(torch.cat(drawn)[:, 0].tolist())) == 2 * 2 * 12


@pytest.mark.parametrize("lasting", [False, True])
def test_workers_that_last_augment_differently_every_epoch(lasting: bool) -> None:
    one, two = epochs({"num_workers": 2, "persistent_workers": lasting})
    assert not set(torch.cat([b[1] for b in one])[:, 0].tolist()) & set(torch.cat([b[1] for b in two])[:, 0].tolist())


@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
def test_what_a_dataset_draws_leaves_the_users_generators_alone(kind: dict[str, Any]) -> None:
    def after(dataset: Any) -> tuple[Any, ...]:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        list(ours.DataLoader(dataset, batch_size=3, **kind))
        return torch.rand(1).item(), random.random(), np.random.rand()

    assert after(Augmented()) == after(range(12))


# Errors


class Trouble(ValueError):
    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Troubled(torchs.Dataset[int]):
    def __init__(self, bad: dict[int, Any]) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index in self.bad:
            raise self.bad[index]
        return index


def everything(iterator: Iterator[Any]) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found.append(next(iterator).tolist())
        except StopIteration:
            return found
        except Exception as error:
            found.append((type(error), error.args))
            notes = "".join(getattr(error, "__notes__", ()))
            assert "dataset[" in notes
            assert "making batch" in notes


@kinds
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_exception_keeps_its_type_says_which_sample_and_iteration_goes_on(
    kind: dict[str, Any], wrapped: bool
) -> None:
    dataset: Any = Troubled({2: Trouble(2), 5: KeyError("5"), 7: torch.OutOfMemoryError("7")})
    if wrapped:
        dataset = torchs.Subset(dataset, range(8))
    found = everything(iter(ours.DataLoader(dataset, batch_size=2, **kind)))
    assert found == [[0, 1], (Trouble, (2,)), (KeyError, ("5",)), (torch.OutOfMemoryError, ("7",))]


@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
def test_a_samplers_exception_comes_after_the_batches_before_it(kind: dict[str, Any]) -> None:
    def sampler() -> Iterator[int]:
        yield from (3, 1, 2)
        raise Trouble(9)

    iterator = iter(ours.DataLoader(range(8), sampler=sampler(), batch_size=1, **kind))
    assert [next(iterator).item() for _ in range(3)] == [3, 1, 2]
    with pytest.raises(Trouble):
        next(iterator)


def test_worker_init_fns_exception_reaches_the_user() -> None:
    def fail(worker_id: int) -> None:
        raise Trouble(worker_id)

    with pytest.raises(Trouble):
        next(iter(ours.DataLoader(range(4), worker_init_fn=fail, num_workers=1)))


# Order and time


class Gated(torchs.Dataset[int]):
    """Sample 0 waits until it is let go."""

    def __init__(self) -> None:
        self.gate = multiprocessing.get_context("fork").Event()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        if index == 0:
            assert self.gate.wait(300)
        return index


def test_without_order_a_slow_batch_holds_up_no_other() -> None:
    dataset = Gated()
    iterator = iter(ours.DataLoader(dataset, batch_size=None, in_order=False, **FORK))
    first = [next(iterator) for _ in range(5)]  # would never come in order
    dataset.gate.set()
    assert sorted(first) == [1, 2, 3, 4, 5]
    assert list(iterator) == [0]


def test_a_time_limit_that_is_passed_is_a_runtime_error_as_in_torch() -> None:
    dataset = Gated()
    with pytest.raises(RuntimeError, match="timeout") as caught:
        next(iter(ours.DataLoader(dataset, timeout=0.2, **FORK)))
    assert isinstance(caught.value, WorkerError)
    dataset.gate.set()
    assert torch.cat(list(ours.DataLoader(dataset, timeout=300, **FORK))).tolist() == list(range(6))


# What lasts


class Counting(torchs.Dataset[Any]):
    """Counts its reads in its own process."""

    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        self.reads += 1
        return index, os.getpid(), self.reads


def test_persistent_workers_and_their_datasets_last() -> None:
    with ours.DataLoader(Counting(), batch_size=None, num_workers=1, persistent_workers=True) as loader:
        one, two = list(loader), list(loader)
    assert {pid for _, pid, _ in one} == {pid for _, pid, _ in two}
    assert [reads for _, _, reads in one + two] == list(range(1, 17))


def test_other_workers_are_made_anew_every_epoch() -> None:
    loader = ours.DataLoader(Counting(), batch_size=None, num_workers=1)
    one, two = list(loader), list(loader)
    # Not by their numbers: one may be given again. Whoever had lasted would have counted on.
    assert [reads for _, _, reads in one] == [reads for _, _, reads in two] == list(range(1, 9))


@pytest.mark.parametrize("library", [torchs, ours])
def test_beginning_again_resets_a_loader_with_persistent_workers(library: Any) -> None:
    loader = library.DataLoader(range(20), batch_size=2, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert [batch.tolist() for batch in loader] == [[n, n + 1] for n in range(0, 20, 2)]
    loader._iterator = None


@pytest.mark.parametrize("kind", [THREADS, FORK], ids=["threads", "fork"])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_loop_left_early_leaves_nothing_behind(kind: dict[str, Any], lasting: bool) -> None:
    loader = ours.DataLoader(Trees(50, lambda n: torch.full((30_000,), n)), persistent_workers=lasting, **kind)
    for _ in range(3):
        for batch in loader:
            assert (batch == 0).all()
            break


class Registering(torchs.Dataset[int]):
    """Does not like to be subclassed twice under one name."""

    names: ClassVar[set[str]] = set()

    def __init_subclass__(cls) -> None:
        assert cls.__name__ not in Registering.names, "a class of that name is there already"
        Registering.names.add(cls.__name__)


class Registered(Registering):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("kind", [FORK, THREADS], ids=["fork", "threads"])
def test_watching_worker_init_fn_does_nothing_to_the_dataset(kind: dict[str, Any]) -> None:
    dataset, kinds = Registered(), []
    barrier = threading.Barrier(2, timeout=300)

    def look(worker_id: int) -> None:
        kinds.append(type(dataset))
        assert type(dataset) is Registered
        if kind is THREADS:
            barrier.wait()

    loader = ours.DataLoader(dataset, batch_size=2, worker_init_fn=look, **kind)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    assert type(dataset) is Registered
    assert kinds == ([Registered] * 2 if kind is THREADS else [])
    pickle.dumps(dataset)


class Interrupting(torchs.Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 1:
            raise KeyboardInterrupt
        return index


@pytest.mark.parametrize("kind", [FORK, THREADS], ids=["fork", "threads"])
def test_an_interrupt_raised_by_a_dataset_in_a_worker_does_not_look_like_ctrl_c(kind: dict[str, Any]) -> None:
    batches = iter(ours.DataLoader(Interrupting(), **kind))
    assert next(batches).item() == 0
    with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
        next(batches)
    assert [batch.item() for batch in batches] == [2, 3]


class HoldsALock(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class Locked(torchs.Dataset[int]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        raise HoldsALock("boom")


def test_an_exception_that_does_not_pickle_keeps_its_type_as_under_torch() -> None:
    for library in (torchs, ours):
        with pytest.raises(HoldsALock, match="boom"):
            list(library.DataLoader(Locked(), num_workers=1))


def test_torch_is_told_whose_part_of_a_stream_is_being_read() -> None:
    from feedline.machine.worker_info import WorkerInfo
    from feedline.torch.worker import acting

    with acting(WorkerInfo(2, 3, 7, "data")):
        info = torch.utils.data.get_worker_info()
        assert info is not None
        assert (info.id, info.num_workers, info.seed, info.dataset) == (2, 3, 7, "data")
    assert torch.utils.data.get_worker_info() is None
