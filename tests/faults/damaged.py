"""Datasets of which some samples cannot be read. Workers import this; it does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import feedline
from feedline import Dataset, IterableDataset


class Damaged(Dataset[Any]):
    """Samples of which some raise; read one by one."""

    def __init__(self, size: int, bad: Any) -> None:
        self.size = size
        self.bad = frozenset(bad)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise ValueError(f"truncated: {index}")
        return index

    def describe(self, index: int) -> str:
        return f"photos/{index}.jpg"


class ManyDamaged(Damaged):
    """Read many at once, which fails as a whole."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        if self.bad.intersection(indices):
            raise OSError("somewhere in there")
        return [self[index] for index in indices]


class OnlyMany(Dataset[Any]):
    """It has no other way to be read."""

    def __init__(self, size: int, bad: Any) -> None:
        self.size = size
        self.bad = frozenset(bad)

    def __len__(self) -> int:
        return self.size

    def __getitems__(self, indices: list[int]) -> list[Any]:
        if self.bad.intersection(indices):
            raise OSError("somewhere in there")
        return list(indices)


class BatchDamaged(Damaged):
    """Gathers whole batches, which fails as a whole."""

    def __getbatch__(self, indices: Any, empty: Any) -> Any:
        if self.bad.intersection(indices.tolist()):
            raise OSError("somewhere in there")
        return np.array(indices)


class Drawing(Damaged):
    def __getitem__(self, index: int) -> Any:
        return np.array([super().__getitem__(index), feedline.rng().random(), np.random.random()])


class Keyed(Dataset[Any]):
    """Its indices are names, and it has no length."""

    def __getitem__(self, name: str) -> Any:
        return {"a": 1, "b": 2, "c": 3}[name]


def too_few(samples: list[Any]) -> Any:
    if len(samples) < 3:
        raise ValueError(f"{len(samples)} are too few")
    return samples


class Leaky(IterableDataset[Any]):
    """A stream that goes on after an element that failed."""

    def __init__(self, size: int, bad: Any) -> None:
        self.size = size
        self.bad = frozenset(bad)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Any]:
        return Elements(range(self.size), self.bad)


class Elements(Iterator[Any]):
    def __init__(self, numbers: range, bad: frozenset[int]) -> None:
        self.numbers = iter(numbers)
        self.bad = bad

    def __next__(self) -> Any:
        number = next(self.numbers)
        if number in self.bad:
            raise ValueError(f"torn record {number}")
        return number


class Sharded(Leaky):
    """Each worker reads its own part."""

    start, step = 0, 1

    def shard(self, index: int, count: int) -> Sharded:
        part = Sharded(self.size, self.bad)
        part.start, part.step = index, count
        return part

    def __iter__(self) -> Iterator[Any]:
        return Elements(range(self.start, self.size, self.step), self.bad)


class Generated(Leaky):
    """A generator ends at its first error."""

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()


class Hopeless(Leaky):
    """Every element fails, and there is no end to them."""

    def __iter__(self) -> Iterator[Any]:
        return Failing()


class Failing(Iterator[Any]):
    def __next__(self) -> Any:
        raise ValueError("gone")


class AsksLate(Leaky):
    def __iter__(self) -> Iterator[Any]:
        return Asking(range(self.size), self.bad)


class Asking(Elements):
    def __next__(self) -> Any:
        number = super().__next__()
        if number:
            info = feedline.get_worker_info()
            assert info is not None
            assert info.num_workers
        return number
