"""Streams that workers and ranks share, and several ranks one after the other in this process.

A rank is what a launcher's variables say, so a test that is rank 0, 1 and 2 in turn sees what three processes would.
In tests/torch/two_ranks.py there are two.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import feedline
from feedline import IterableDataset, get_worker_info

EXPECTED = r"the IterableDataset neither asks|to continue with batch|rank \d of \d got no element"
"""Warnings that are right, and of no interest where elements are counted."""


@contextmanager
def as_rank(rank: int, ranks: int) -> Iterator[None]:
    with mock.patch.dict(os.environ, {"RANK": str(rank), "WORLD_SIZE": str(ranks)}):
        yield


READS: list[int] = []
"""The numbers of all elements that were read in this process."""


def element(number: int) -> Any:
    """A number and all that may be drawn for it."""
    READS.append(number)
    return number, feedline.rng().random(), np.random.rand(), random.random()


class Stream(IterableDataset[Any]):
    """Read whole by everybody, and read again to be continued."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        return map(element, range(self.length))


class Reordered(Stream):
    """In an order that is drawn when it is opened."""

    def __iter__(self) -> Iterator[Any]:
        for number in np.random.permutation(self.length).tolist():
            yield element(number)


class Iterating:
    def __init__(self, numbers: range) -> None:
        self.numbers = numbers
        self.at = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.at == len(self.numbers):
            raise StopIteration
        self.at += 1
        return element(self.numbers[self.at - 1])

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Keeping(Stream):
    """Read whole by everybody, and continued where it stood."""

    def __iter__(self) -> Iterator[Any]:
        return Iterating(range(self.length))


class Shardable(Stream):
    def shard(self, index: int, count: int) -> Iterator[Any]:
        assert 0 <= index < count
        return map(element, range(index, self.length, count))


class Asking(Stream):
    """Shares itself out over workers, as one does for torch, and knows nothing of ranks."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return Iterating(range(first, self.length, step))


class KeepingItself(Stream):
    """Keeps its place in itself: two parts must not be read through one object."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.at = 0

    def share(self) -> tuple[int, int]:
        return 0, 1

    def __iter__(self) -> Iterator[Any]:
        first, step = self.share()
        while first + step * self.at < self.length:
            self.at += 1
            yield element(first + step * (self.at - 1))
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class AskingItself(KeepingItself):
    def share(self) -> tuple[int, int]:
        info = get_worker_info()
        return (0, 1) if info is None else (info.id, info.num_workers)


class Bounded(Stream):
    """Given its share by worker_init_fn."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.first, self.step = 0, 1

    def __iter__(self) -> Iterator[Any]:
        return map(element, range(self.first, self.length, self.step))


def give_share(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == worker
    info.dataset.first, info.dataset.step = worker, info.num_workers


WHOLE: list[Any] = [Stream, Reordered, Keeping, KeepingItself]
SHARING: list[Any] = [Shardable, Asking, AskingItself]


def plain(batches: Any) -> list[Any]:
    return [[np.asarray(leaf).tolist() for leaf in batch] for batch in batches]


def part(loader: Any, rank: int, ranks: int, state: Any = None, stop: int | None = None) -> tuple[list[Any], Any]:
    """Up to `stop` of a rank's batches, from a state on, and the state then."""
    with as_rank(rank, ranks), loader, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=EXPECTED)
        if state is not None:
            loader.load_state_dict(state)
        got = plain(itertools.islice(iter(loader), stop))
        return got, json.loads(json.dumps(loader.state_dict()))


def share(batches: list[Any], ranks: int, rank: int, uneven: str, size: int | None = None) -> list[Any]:
    """What a rank has to get of a stream's batches: with a size, of those that are full."""
    batches = [batch for batch in batches if size is None or len(batch[0]) == size]
    steps = [batches[start : start + ranks] for start in range(0, len(batches), ranks)]
    if uneven == "exact":
        return [step[rank] for step in steps if rank < len(step)]
    if uneven == "drop":
        return [step[rank] for step in steps if len(step) == ranks]
    return [step[rank] if rank < len(step) else step[0] for step in steps]


def threads(number: int) -> dict[str, Any]:
    return {"num_workers": number, "workers": "thread"} if number else {}


def numbers(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in np.atleast_1d(batch[0])]
