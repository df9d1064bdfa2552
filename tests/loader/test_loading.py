"""What comes out of a loader: the right samples, in the right batches, from every kind of worker."""

from __future__ import annotations

import _ctypes
import ctypes
import multiprocessing
import os
import pickle
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import FORK, THREADS, every_kind, every_process, every_worker, quick_kinds
from made_datasets import Numbers
from openblas import Blas, paths_of_openblas

import feedline
from feedline import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    Subset,
    get_worker_info,
    threads_per_worker,
)
from feedline.workers import one_thread


class Squares(Dataset[int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        assert type(index) is int
        if index >= self.length:
            raise IndexError(index)
        return index * index


def values(loader: DataLoader) -> list[list[int]]:
    return [np.asarray(batch).tolist() for batch in loader]


@every_kind
def test_each_sample_once_and_in_order(kind: dict[str, Any]) -> None:
    loader = DataLoader(Squares(10), batch_size=4, **kind)
    assert values(loader) == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]
    assert len(loader) == len(iter(loader)) == 3
    loader.close()


@given(length=st.integers(0, 40), batch_size=st.integers(1, 9), drop_last=st.booleans(), shuffle=st.booleans())
def test_the_number_of_batches_is_right(length: int, batch_size: int, drop_last: bool, shuffle: bool) -> None:
    loader = DataLoader(Squares(length), batch_size, shuffle, drop_last=drop_last)
    batches = values(loader)
    assert len(batches) == len(loader) == (length // batch_size if drop_last else -(-length // batch_size))
    expected = [i * i for i in range(length)]
    found = sorted(value for batch in batches for value in batch)
    assert set(found) <= set(expected)
    assert drop_last or found == expected


@every_kind
@pytest.mark.parametrize("shuffle", [False, True])
def test_an_empty_dataset_gives_no_batches(kind: dict[str, Any], shuffle: bool) -> None:
    loader = DataLoader(Squares(0), batch_size=4, shuffle=shuffle, **kind)
    assert values(loader) == []
    assert len(loader) == 0


@every_kind
def test_without_batching_samples_come_one_by_one(kind: dict[str, Any]) -> None:
    assert list(DataLoader(Squares(4), batch_size=None, **kind)) == [0, 1, 4, 9]


@every_kind
def test_arrays_in_memory(kind: dict[str, Any]) -> None:
    x, y = np.arange(400_000, dtype="f4").reshape(100, -1), np.arange(100)
    loader = DataLoader(ArrayDataset(x, y), batch_size=32, shuffle=True, seed=0, **kind)
    seen = []
    for rows, labels in loader:
        assert (rows == x[labels]).all()
        seen += labels.tolist()
    assert sorted(seen) == list(range(100))
    assert seen != sorted(seen)


@quick_kinds
def test_a_bare_array_is_a_dataset_of_its_rows(kind: dict[str, Any]) -> None:
    x = np.arange(20).reshape(10, 2)
    assert (np.concatenate(list(DataLoader(x, batch_size=3, **kind))) == x).all()


@every_kind
def test_a_custom_collate_function_may_return_anything(kind: dict[str, Any]) -> None:
    def collate(samples: list[int]) -> Any:
        return {"sum": sum(samples), "of": samples, "large": np.full((400, 400), samples[0]).T, "what": Odd(samples)}

    batches = list(DataLoader(Squares(6), batch_size=3, collate_fn=collate, **kind))
    assert [batch["sum"] for batch in batches] == [5, 50]
    assert [batch["of"] for batch in batches] == [[0, 1, 4], [9, 16, 25]]
    assert [batch["what"].inner for batch in batches] == [[0, 1, 4], [9, 16, 25]]
    assert (batches[1]["large"] == 9).all()


@dataclass
class Odd:
    inner: list[int]


@every_kind
def test_any_iterable_is_a_sampler_or_batch_sampler(kind: dict[str, Any]) -> None:
    assert values(DataLoader(Squares(9), sampler=[3, 1, 3], batch_size=2, **kind)) == [[9, 1], [9]]
    assert values(DataLoader(Squares(9), batch_sampler=[[8], [1, 2, 3]], **kind)) == [[64], [1, 4, 9]]
    ours = BatchSampler(RandomSampler(9, seed=3), 4, False)
    assert sorted(chain(*values(DataLoader(Squares(9), batch_sampler=ours, **kind)))) == [i * i for i in range(9)]


class Named(Dataset[str]):
    def __getitem__(self, key: str) -> str:
        return key.upper()


@quick_kinds
def test_indices_may_be_anything_the_dataset_understands(kind: dict[str, Any]) -> None:
    assert list(DataLoader(Named(), sampler=["a", "b", "c"], batch_size=2, **kind)) == [["A", "B"], ["C"]]


class Many(Dataset[int]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        raise AssertionError("__getitems__ should have been used")

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [-i for i in indices]


@quick_kinds
def test_getitems_is_used_where_there_is_one(kind: dict[str, Any]) -> None:
    assert values(DataLoader(Many(), batch_size=5, **kind))[1] == [-5, -6, -7, -8, -9]
    assert values(DataLoader(Subset(Many(), [7, 3]), batch_size=5, **kind)) == [[-7, -3]]


@every_worker
def test_a_very_large_task_travels_too(kind: dict[str, Any]) -> None:
    """A batch's indices may be more than any pipe holds."""
    (batch,) = DataLoader(ArrayDataset(np.arange(300_000)), batch_size=300_000, **kind)
    assert (batch[0] == np.arange(300_000)).all()


class Reporting(Dataset[Any]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        assert info.dataset is self
        return info.id, info.num_workers, info.seed, os.getpid(), threading.get_ident()


@every_worker
def test_a_worker_knows_who_it_is(kind: dict[str, Any]) -> None:
    assert get_worker_info() is None
    rows = [row for batch in DataLoader(Reporting(), batch_size=1, seed=1, **kind) for row in zip(*batch, strict=True)]
    assert {int(row[0]) for row in rows} <= {0, 1}
    assert {int(row[1]) for row in rows} == {2}
    assert len({(int(row[0]), int(row[2])) for row in rows}) == len({int(row[0]) for row in rows})
    assert get_worker_info() is None


@pytest.mark.parametrize("again", [False, True], ids=["new workers", "persistent"])
def test_a_new_worker_has_a_seed_that_no_other_epochs_had(again: bool) -> None:
    # Or a generator that is seeded by it, as advised, would draw the same in every epoch.
    def seeds(**more: Any) -> list[set[int]]:
        with DataLoader(Reporting(), seed=1, num_workers=1, workers="thread", **more) as loader:
            return [{int(batch[2][0]) for batch in loader} for _ in range(3)]

    found = seeds(persistent_workers=again)
    assert all(len(epoch) == 1 for epoch in found)
    assert len(set.union(*found)) == (1 if again else 3)
    assert found == seeds(persistent_workers=again)


def set_mark(worker: int) -> None:
    os.environ[f"FEEDLINE_TEST_MARK_{threading.get_ident()}"] = str(worker + 100)


class Marked(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return int(os.environ[f"FEEDLINE_TEST_MARK_{threading.get_ident()}"])


@every_worker
def test_worker_init_fn_runs_in_each_worker_first(kind: dict[str, Any]) -> None:
    found = {value for batch in values(DataLoader(Marked(), worker_init_fn=set_mark, **kind)) for value in batch}
    assert found <= {100, 101}
    for name in [name for name in os.environ if name.startswith("FEEDLINE_TEST_MARK_")]:
        del os.environ[name]


class Pid(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return os.getpid()


@every_process
def test_persistent_workers_are_the_same_in_every_epoch_and_others_are_not(kind: dict[str, Any]) -> None:
    def pids(loader: DataLoader) -> set[int]:
        return {value for batch in values(loader) for value in batch}

    with DataLoader(Pid(), persistent_workers=True, **kind) as loader:
        assert len(pids(loader) | pids(loader) | pids(loader)) <= 2
    with DataLoader(Pid(), **kind) as loader:
        assert not pids(loader) & pids(loader)
    assert os.getpid() not in pids(DataLoader(Pid(), **kind))


class Ahead(Dataset[int]):
    """Counts, in memory shared with the workers, how many samples have been begun."""

    def __init__(self, begun: Any) -> None:
        self.begun = begun

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        with self.begun.get_lock():
            self.begun.value += 1
        return index


@pytest.mark.parametrize("kind", [THREADS, FORK])
@pytest.mark.parametrize("prefetch", [1, 3])
def test_never_more_than_prefetch_times_workers_are_out(kind: dict[str, Any], prefetch: int) -> None:
    begun = multiprocessing.get_context("fork").Value("i", 0)
    for delivered, _ in enumerate(DataLoader(Ahead(begun), prefetch_factor=prefetch, **kind), start=1):
        assert begun.value <= delivered + prefetch * 2
    assert begun.value == 50


class Gate(Dataset[int]):
    """Sample 0 waits until all others have been read."""

    def __init__(self, others: Any) -> None:
        self.others = others

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 0:
            for _ in range(3):
                assert self.others.acquire(timeout=600)
        else:
            self.others.release()
        return index


@pytest.mark.parametrize("kind", [THREADS, FORK])
@pytest.mark.parametrize("in_order", [True, False])
def test_in_order_or_as_they_come(kind: dict[str, Any], in_order: bool) -> None:
    """A free worker takes the tasks behind a slow one: otherwise sample 0 would wait for ever."""
    others = multiprocessing.get_context("fork").Semaphore(0)
    loader = DataLoader(Gate(others), in_order=in_order, prefetch_factor=2, timeout=600, **kind)
    came = [value for batch in values(loader) for value in batch]
    assert sorted(came) == [0, 1, 2, 3]
    assert came[:2] == ([0, 1] if in_order else [1, 2])  # 3 lets 0 go before it is done itself


@every_worker
def test_a_new_iteration_on_persistent_workers_begins_afresh(kind: dict[str, Any]) -> None:
    with DataLoader(Squares(40), batch_size=2, persistent_workers=True, **kind) as loader:
        first = iter(loader)
        assert next(first).tolist() == [0, 1]
        assert values(loader)[:2] == [[0, 1], [4, 9]]
        with pytest.raises(RuntimeError, match="given up when iter"):
            next(first)


@quick_kinds
def test_two_iterations_at_once_do_not_disturb_each_other(kind: dict[str, Any]) -> None:
    loader = DataLoader(Squares(6), batch_size=2, **kind)
    assert [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)] == [
        ([0, 1], [0, 1]),
        ([4, 9], [4, 9]),
        ([16, 25], [16, 25]),
    ]


@quick_kinds
def test_epochs_are_numbered_and_can_be_set(kind: dict[str, Any]) -> None:
    with DataLoader(Squares(30), batch_size=30, shuffle=True, seed=5, **kind) as loader:
        epochs = [values(loader) for _ in range(3)]
        assert loader.epoch == 3
        assert epochs[0] != epochs[1] != epochs[2]
        loader.set_epoch(1)
        assert values(loader) == epochs[1]
        with pytest.raises(ValueError, match="epoch must be"):
            loader.set_epoch(-1)


@every_kind
def test_numpy_results_and_one_thread_for_linear_algebra(kind: dict[str, Any]) -> None:
    (batch,) = DataLoader(Blas(), batch_size=2, **kind)
    assert isinstance(batch, np.ndarray)
    if kind.get("multiprocessing_context"):
        assert batch.tolist() == [1, 1]


@every_process
def test_a_worker_process_is_one_thread_for_the_system(kind: dict[str, Any]) -> None:
    """OpenBLAS would start its own when told to use one only, and they spin."""
    if kind["multiprocessing_context"] == "fork" and not any(shows_its_number(path) for path in paths_of_openblas()):
        pytest.skip("this NumPy's OpenBLAS (2.5 and later) can only be told to use one thread, and then starts others")
    for told in (None, threads_per_worker(1)):
        (batch,) = DataLoader(Blas(), batch_size=2, **kind, collate_fn=tasks_of_this_process, worker_init_fn=told)
        assert batch == 1


def test_the_main_process_keeps_its_threads_for_linear_algebra(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in one_thread.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    before = Blas()[0], dict(os.environ)
    (batch,) = DataLoader(Blas(), 2, num_workers=1, multiprocessing_context="fork")
    assert batch.tolist() == [1, 1]
    assert (Blas()[0], dict(os.environ)) == before


def test_where_openblas_does_not_show_its_number_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_thread, "_NUMBER", "no_such_variable")  # inherited by the forked worker
    (batch,) = DataLoader(Blas(), 2, num_workers=1, multiprocessing_context="fork")
    assert batch.tolist() == [1, 1]


class Environment(Dataset[str]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> str:
        return " ".join(f"{name[7:]}={value}" for name, value in sorted(os.environ.items()) if "FOREST_" in name)


@every_process
def test_a_worker_has_the_environment_as_it_is_now(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is forked from a server that was started with another."""
    for change, then in (("OAK=1 ELM=1", "ELM=1 OAK=1"), ("OAK=2 ASH=1", "ASH=1 OAK=2"), ("", "")):
        with monkeypatch.context() as environment:
            for each in change.split():
                environment.setenv("FOREST_" + each.split("=")[0], each.split("=")[1])
            assert [*DataLoader(Environment(), **kind)] == [[then]]


def test_forked_workers_do_not_look_for_libraries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one_thread.look_for_libraries()
    monkeypatch.setattr(one_thread, "_searched", lambda: iter([]))  # inherited: nothing would be told to use one thread
    (batch,) = DataLoader(Blas(), 2, num_workers=1, multiprocessing_context="fork")
    assert batch.tolist() == [1, 1]


def test_a_library_that_is_loaded_later_is_found(tmp_path: Path) -> None:
    before = one_thread.look_for_libraries()
    later = str(shutil.copy(_ctypes.__file__, tmp_path / "libgomp-of-another-package.so"))
    ctypes.CDLL(later)
    found = {library._name for library, _ in one_thread.look_for_libraries()}
    assert found == {later, *(library._name for library, _ in before)}


def shows_its_number(path: str) -> bool:
    return hasattr(ctypes.CDLL(path), "blas_cpu_number")


def tasks_of_this_process(samples: Any) -> int:
    return len(os.listdir("/proc/self/task"))


def test_importing_feedline_imports_no_framework() -> None:
    import subprocess
    import sys

    code = "import sys, feedline; print([m for m in ('torch', 'jax', 'PIL', 'cloudpickle') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_everything_public_has_a_docstring() -> None:
    assert [name for name in feedline.__all__ if not getattr(feedline, name).__doc__] == []


def strings() -> Iterator[str]:
    yield from ("a", "b", "c")


def test_a_generator_may_be_the_dataset() -> None:
    assert list(DataLoader(strings(), batch_size=2)) == [["a", "b"], ["c"]]


def test_a_loader_can_be_pickled_and_shows_its_options() -> None:
    loader = DataLoader(Numbers(), batch_size=3, num_workers=2, seed=4)
    again = pickle.loads(pickle.dumps(loader))
    assert (again.batch_size, again.num_workers, again.seed, again.dataset.length) == (3, 2, 4, 10)
    with pytest.raises(AttributeError, match="colour"):
        again.colour
