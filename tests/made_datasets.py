"""The plainest datasets there are, for files of tests that need any: element i is i.

Workers import this; it does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from feedline import DataLoader, Dataset, IterableDataset


class Numbers(Dataset[int]):
    def __init__(self, length: int = 10) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class Count(IterableDataset[int]):
    """Whoever reads it reads all of it."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


class Stretch(IterableDataset[int]):
    """Its bounds can be set, as torch's documentation shares a stream out."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))


def elements(loader: DataLoader) -> list[int]:
    """Of all batches of an epoch."""
    return [int(value) for batch in loader for value in batch]
