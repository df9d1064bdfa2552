"""One iterator is for one thread at a time: who comes second is told so, and the first goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kinds import FORK, THREADS

from feedline import DataLoader, Dataset, IterableDataset


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


def test_an_interrupted_next_takes_nothing_with_it() -> None:
    iterator = iter(DataLoader(list(range(8)), 4))
    iterator._inside[0] = object()  # type: ignore[attr-defined]  # and there Ctrl-C came
    assert len(list(iterator)) == 2
