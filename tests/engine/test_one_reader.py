"""One iterator is for one thread at a time: who comes second is told so, and the first goes on."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kinds import FORK, THREADS

from feedline import DataLoader, Dataset, IterableDataset
from feedline.engine import loop
from feedline.engine.loop import State
from feedline.engine.one_reader import is_used_elsewhere
from feedline.engine.worker_set import WorkerSet
from feedline.errors import WorkerError
from feedline.machine.finalizers import by_hand
from feedline.messages.task import Task
from feedline.workers.crew import Crew

LONG = 600
"""Seconds; only something that is broken takes so long."""


class Waiting(Dataset[int]):
    """Its first sample waits for others to try, in this process."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.begun.set()
        self.go_on.wait()
        return index


@pytest.mark.parametrize("kind", [{}, THREADS])
def test_who_comes_second_is_told_and_the_first_goes_on(kind: dict[str, Any]) -> None:
    dataset = Waiting()
    iterator = iter(DataLoader(dataset, 4, **kind))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(iterator), name="the first")
    thread.start()
    dataset.begun.wait()
    try:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"read by another thread \(the first\).*queue\.Queue"):
                next(iterator)
    finally:
        dataset.go_on.set()
        thread.join()
    assert [batch.tolist() for batch in found] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_many_threads_at_once_stand_still_no_more() -> None:
    iterator = iter(DataLoader(list(range(400)), 4, **FORK))
    found: list[Any] = []
    refused: list[str] = []

    def consume() -> None:
        while True:
            try:
                found.append(next(iterator))
            except StopIteration:
                return
            except RuntimeError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for batch in found for number in batch.tolist()) == list(range(400))
    assert all("another thread" in each for each in refused)


def test_a_dataset_that_reads_from_its_own_iterator() -> None:
    class Own(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield next(iterator)

    iterator = iter(DataLoader(Own(), 4))
    with pytest.raises(RuntimeError, match="by its own dataset"):
        next(iterator)


class UntilClosed(Dataset[int]):
    """Its second batch is made when the loader is being closed, if it is made here; in a process never."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_closing = threading.Event()
        self.home = os.getpid()

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> int:
        if index >= 4:
            (self.folder / "reached").touch()
            self.is_closing.wait(None if os.getpid() == self.home else LONG)
        return index


@pytest.mark.parametrize("kind", [{}, THREADS, FORK], ids=["inline", "threads", "fork"])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_that_another_thread_closes_is_not_at_its_end(
    kind: dict[str, Any], persistent: bool, tmp_path: Path
) -> None:
    dataset, ended = UntilClosed(tmp_path), list[Any]()
    keep = {"persistent_workers": True} if persistent and kind else {}
    loader = DataLoader(dataset, 4, on_epoch_end=ended.append, **kind, **keep)
    iterator: Any = iter(loader)

    def close() -> None:
        while not (tmp_path / "reached").exists() or not iterator._inside:
            threading.Event().wait(0.001)
        closing = threading.Thread(target=loader.close)
        closing.start()
        while iterator._state is State.RUNNING:
            threading.Event().wait(0.001)
        dataset.is_closing.set()
        closing.join()

    assert next(iterator).tolist() == [0, 1, 2, 3]
    thread = threading.Thread(target=close)
    thread.start()
    with pytest.raises(WorkerError, match="closed by another thread"):
        next(iterator)
    thread.join()
    assert ended == []
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (0, 1)


def test_workers_that_are_no_more_are_no_riddle() -> None:
    loader = DataLoader(list(range(80)), 4, **FORK)
    iterator: Any = iter(loader)
    next(iterator)
    fill = iterator._dispatch.fill

    def closed_meanwhile() -> None:
        loader.close()  # as if by another thread, in this very moment
        fill()

    iterator._dispatch.fill = closed_meanwhile
    with pytest.raises(WorkerError, match="closed by another thread"):
        next(iterator)


class UntilBegun(Dataset[int]):
    """From its second batch on, samples of the first epoch wait until another has begun."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index >= 4:
            (self.folder / "reached").touch()
            while not (self.folder / "go on").exists():
                time.sleep(0.001)
        return index


class Deaf:
    """A selector that nothing wakes up, waited at while another thread closes the loader."""

    def __init__(self, selector: Any, loader: DataLoader) -> None:
        self.close = selector.close
        self._loader = loader

    def select(self, timeout: float | None) -> list[Any]:
        self._loader.close()
        self.waited = timeout
        return []


def test_whoever_waits_when_all_is_closed_need_not_be_woken_up(tmp_path: Path) -> None:
    """Workers' ends wake it up only if it is quicker than who closes them."""
    loader = DataLoader(UntilBegun(tmp_path), 4, stall_warning=0, **FORK)
    iterator: Any = iter(loader)
    next(iterator)
    crew = iterator._crew.workers._crew
    crew.selector = deaf = Deaf(crew.selector, loader)
    with pytest.raises(WorkerError, match="closed by another thread"):
        next(iterator)
    assert deaf.waited is not None


def test_whoever_comes_to_worker_threads_that_are_no_more_does_not_wait_for_them() -> None:
    loader = DataLoader(list(range(80)), 4, stall_warning=0, **THREADS)
    iterator: Any = iter(loader)
    next(iterator)
    workers = iterator._crew.workers
    loader.close()
    with pytest.raises(WorkerError, match="closed by another thread"):
        workers.receive(LONG)


@pytest.mark.parametrize("kind", [THREADS, FORK], ids=["threads", "fork"])
def test_an_epoch_that_another_thread_begins_on_the_same_workers_has_all_its_batches(
    kind: dict[str, Any], tmp_path: Path
) -> None:
    loader = DataLoader(UntilBegun(tmp_path), 4, persistent_workers=True, stall_warning=0, **kind)
    iterator: Any = iter(loader)
    assert next(iterator).tolist() == [0, 1, 2, 3]
    waiting = iterator._waiting
    told: list[Exception] = []

    def wait() -> None:
        try:
            next(iterator)
        except Exception as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not (tmp_path / "reached").exists() or not is_used_elsewhere(waiting, waiting.__module__):
        time.sleep(0.001)
    releasing = threading.Thread(target=release, args=(iterator, tmp_path / "go on"))
    releasing.start()
    second = iter(loader)
    releasing.join()
    thread.join(LONG)
    assert isinstance(told[0], WorkerError)
    assert "the new iteration" in str(told[0])
    assert [batch.tolist() for batch in second] == [list(range(first, first + 4)) for first in range(0, 40, 4)]
    with pytest.raises(RuntimeError, match="given up when iter"):
        next(iterator)
    assert len(list(loader)) == 10
    loader.close()


def release(iterator: Any, file: Path) -> None:
    """A thread that reads a sample can only be waited for."""
    while iterator._state is State.RUNNING:
        time.sleep(0.001)
    file.touch()


def test_who_notices_late_does_not_end_the_workers_of_the_epoch_that_was_begun() -> None:
    loader = DataLoader(list(range(80)), 4, persistent_workers=True, **FORK)
    iterator: Any = iter(loader)
    is_waiting, begun = threading.Event(), threading.Event()

    def notices_late(seq: int) -> Any:
        is_waiting.set()
        begun.wait()
        raise WorkerError("they are no more")

    iterator._waiting.receive = notices_late
    iterator._dispatch.fill = lambda: iterator._ledger.queue or iterator._ledger.add(Task(0, 0, 0, [0]))

    def wait() -> None:
        with pytest.raises(WorkerError):
            next(iterator)

    thread = threading.Thread(target=wait)
    thread.start()
    is_waiting.wait()
    second = iter(loader)
    begun.set()
    thread.join()
    assert len(list(second)) == 20
    loader.close()


def test_an_epoch_is_given_up_before_its_batches_go_or_that_would_be_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with DataLoader(list(range(80)), 4, persistent_workers=True, **FORK) as loader:
        iterator: Any = iter(loader)
        was: list[Any] = []
        monkeypatch.setattr(loop, "by_hand", lambda end: (was.append(iterator._state), by_hand(end)))
        iter(loader)
    assert was[0] is State.GIVEN_UP


def test_the_end_of_an_epoch_in_one_thread_does_not_end_what_another_has_begun() -> None:
    loader = DataLoader(list(range(80)), 4, persistent_workers=True, **FORK)
    iterator: Any = iter(loader)
    for _ in range(20):
        next(iterator)
    begun: list[Any] = []
    end = iterator._ledger.end

    def begun_meanwhile() -> None:
        iterator._ledger.end = end
        thread = threading.Thread(target=lambda: begun.append(iter(loader)))
        thread.start()
        thread.join()
        next(begun[0])
        end()

    iterator._ledger.end = begun_meanwhile
    with pytest.raises(StopIteration):
        next(iterator)
    assert len(list(begun[0])) == 19
    loader.close()


@pytest.mark.parametrize("kind", [FORK, THREADS], ids=["fork", "threads"])
@pytest.mark.parametrize("used", [False, True])
def test_of_two_threads_that_begin_at_once_one_has_all_batches(
    kind: dict[str, Any], used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_first, begin = threading.Event(), WorkerSet.begin

    def slowly(workers: WorkerSet, in_order: bool) -> None:
        begin(workers, in_order)
        if not is_first.is_set():
            is_first.set()
            time.sleep(0.2)  # the other comes meanwhile; should it not, this shows nothing

    def read() -> None:
        iterator = iter(loader)
        both.wait(LONG)
        try:
            found.append([int(each) for batch in iterator for each in batch])
        except (RuntimeError, WorkerError) as error:
            found.append(error)

    found: list[Any] = []
    both = threading.Barrier(2)
    with DataLoader(list(range(80)), 4, persistent_workers=True, **kind) as loader:
        if used:
            list(loader)
        monkeypatch.setattr(WorkerSet, "begin", slowly)
        threads = [threading.Thread(target=read) for _ in range(2)]
        threads[0].start()
        assert is_first.wait(LONG)
        threads[1].start()
        for thread in threads:
            thread.join()
    assert [each for each in found if isinstance(each, list)] == [[*range(80)]]


def is_in(thread: threading.Thread, function: Any) -> bool:
    """Does the thread wait in that very function?"""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is function.__code__


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_are_not_ended_while_they_are_started(persistent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(list(range(80)), 4, persistent_workers=persistent, **FORK)
    hire, threads, made = Crew._start_one, [threading.Thread(target=loader.close)], []

    def slowly(crew: Crew, number: int, *rest: Any) -> None:
        if not made:
            made.append(crew)
            if not persistent:
                threads[0] = threading.Thread(target=crew.end)  # as when another thread closes the iterator
            threads[0].start()
            while not is_in(threads[0], Crew.end):  # it waits there until all are started
                time.sleep(0.001)
        hire(crew, number, *rest)

    monkeypatch.setattr(Crew, "_start_one", slowly)
    with pytest.raises(WorkerError, match="closed by another thread"):
        list(loader)
    threads[0].join()
    assert not made[0].members
    loader.close()


def test_an_interrupted_next_takes_nothing_with_it() -> None:
    iterator = iter(DataLoader(list(range(8)), 4))
    iterator._inside[0] = object()  # type: ignore[attr-defined]  # and there Ctrl-C came
    assert len(list(iterator)) == 2
