"""Streams as libraries make them, which know when every element has come once, and what was said meanwhile.

Hugging Face's keep a state that was loaded and begin there whenever they are opened in the same epoch, and leave their
shuffle buffer out of it; LitData's count their epochs and cannot be asked in a worker; many shuffle their files by a
generator that they hold.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

import feedline

SIZE = 40


class Stream(IterableDataset[Any]):
    """Every worker its share, in the same order each time. Kills its process once at an element, if it is told to."""

    deadly: Path | None = None

    def order(self) -> list[int]:
        return list(range(SIZE))

    def share(self) -> list[int]:
        info = get_worker_info()
        return self.order() if info is None else self.order()[info.id :: info.num_workers]

    def read(self, number: int) -> int:
        if self.deadly is not None:
            with contextlib.suppress(FileNotFoundError):  # another worker may remove it at this moment
                if self.deadly.read_text() == str(number):
                    self.deadly.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
        return number

    def __iter__(self) -> Iterator[Any]:
        yield from map(self.read, self.share())


class Keeping(Stream):
    """As Hugging Face's: a state that was loaded is kept."""

    at = start = 0

    def __iter__(self) -> Iterator[int]:
        self.at = self.start
        for number in self.share()[self.at :]:
            self.at += 1
            yield self.read(number)

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.start = state["at"]


class Around(Stream):
    """A dataset around such a one."""

    def __init__(self) -> None:
        self.inner = Keeping()
        self.inner.read = self.read  # type: ignore[method-assign]

    def __iter__(self) -> Iterator[int]:
        return iter(self.inner)

    def state_dict(self) -> Any:
        return self.inner.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state)


class Buffering(Keeping):
    """As Hugging Face's `shuffle(buffer_size=…)`: what is in the buffer is not in the state."""

    def __iter__(self) -> Iterator[int]:
        buffer: list[int] = []
        draws = random.Random(0)
        self.at = self.start
        for number in self.share()[self.at :]:
            self.at += 1
            buffer.append(number)
            if len(buffer) == 5:
                yield self.read(buffer.pop(draws.randrange(5)))
        yield from map(self.read, buffer)


class CountingEpochs(Stream):
    """As LitData's: the order is that of an epoch it counts by itself, and its state wants arguments."""

    epoch = 0

    def order(self) -> list[int]:
        self.epoch += 1
        return random.Random(self.epoch).sample(range(SIZE), SIZE)

    def state_dict(self, num_samples: int, workers: int) -> Any:
        raise AssertionError

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError


class Shuffling(Stream):
    """Shuffles anew in each epoch, by a generator that it holds."""

    def __init__(self) -> None:
        self.rng = random.Random(3)

    def order(self) -> list[int]:
        return self.rng.sample(range(SIZE), SIZE)


class Elements(Iterator[int]):
    """As torchdata's: the iterator says where it stands."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.numbers, self.at = stream, stream.share(), 0

    def __next__(self) -> int:
        if self.at == len(self.numbers):
            raise StopIteration
        self.at += 1
        return self.stream.read(self.numbers[self.at - 1])

    def state_dict(self) -> Any:
        return {"at": self.at, "numbers": self.numbers}

    def load_state_dict(self, state: Any) -> None:
        self.at, self.numbers = state["at"], state["numbers"]


class Torchdatas(Shuffling):
    def __iter__(self) -> Iterator[Any]:
        return Elements(self)


class Counting(Stream):
    """Its state is complete: the epoch and the place in it. At its end it is at the next epoch's beginning."""

    epoch = at = 0

    def order(self) -> list[int]:
        return random.Random(self.epoch).sample(range(SIZE), SIZE)

    def __iter__(self) -> Iterator[int]:
        numbers = self.share()
        while self.at < len(numbers):
            self.at += 1
            yield self.read(numbers[self.at - 1])
        self.at, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> Any:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: Any) -> None:
        self.at, self.epoch = state["at"], state["epoch"]


class Ours(Counting, feedline.IterableDataset[Any]):
    """The same, which promises it."""


class Thing:
    """Nothing that could be compared: whoever tries fails."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        raise AssertionError


class Things(Shuffling):
    def __iter__(self) -> Iterator[Any]:
        return map(Thing, super().__iter__())


def numbers_in(things: Any) -> Any:
    return torch.tensor([thing.number for thing in things])


class Told:
    """What has been said since it was last asked."""

    def __init__(self, caught: list[Any]) -> None:
        self._caught = caught

    def __call__(self) -> str:
        said = "\n".join(str(each.message) for each in self._caught if issubclass(each.category, UserWarning))
        self._caught.clear()
        return said


def numbers(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch]


def is_whole(found: list[int]) -> bool:
    return sorted(found) == list(range(SIZE))


def kill_at(stream: Any, path: Path, number: int) -> None:
    """The next worker that reads this element dies."""
    stream.deadly = path / "deadly"
    stream.deadly.write_text(str(number))
