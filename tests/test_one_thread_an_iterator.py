"""One iterator is for one thread at a time: who comes second is told so, and the first goes on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kinds import FORK, THREADS

from feedline import DataLoader, Dataset, IterableDataset
from feedline.engine.loop import State
from feedline.errors import WorkerError

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


def test_an_interrupted_next_takes_nothing_with_it() -> None:
    iterator = iter(DataLoader(list(range(8)), 4))
    iterator._inside[0] = object()  # type: ignore[attr-defined]  # and there Ctrl-C came
    assert len(list(iterator)) == 2
