"""Datasets whose samples are read on a Ray cluster."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import feedline


class Drawing:
    """Draws from every generator there is."""

    def __init__(self, size: int, width: int = 4) -> None:
        self.size = size
        self.width = width

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = feedline.rng()
        drawn = [random.random(), np.random.random(), rng.random()]
        return {"i": index, "drawn": np.array(drawn), "x": np.full((self.width,), index, np.float32)}


class Slow(Drawing):
    """Each sample takes a while."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(0.02)
        return super().__getitem__(index)


class Deadly(Drawing):
    """One sample ends the process that reads it, every time or once."""

    def __init__(self, size: int, index: int, folder: Path | None = None, how: int = signal.SIGKILL) -> None:
        super().__init__(size)
        self.index = index
        self.folder = folder
        self.how = how

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.index and (self.folder is None or not (self.folder / "died").exists()):
            if self.folder is not None:
                (self.folder / "died").touch()
            os.kill(os.getpid(), self.how)
        return super().__getitem__(index)


class Stuck(Drawing):
    """One sample waits, the first time."""

    def __init__(self, size: int, index: int, folder: Path) -> None:
        super().__init__(size)
        self.index = index
        self.folder = folder

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.index and not (self.folder / "waited").exists():
            (self.folder / "waited").touch()
            self.wait_for_ever()
        return super().__getitem__(index)

    def wait_for_ever(self) -> None:
        while True:
            time.sleep(0.01)


class Bad(Drawing):
    """Every seventh sample cannot be read."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index % 7 == 3:
            raise OSError(f"truncated {index}")
        return super().__getitem__(index)


class Stream(feedline.IterableDataset):
    """Shared by its readers, and can be stopped."""

    def __init__(self, size: int, folder: Path | None = None) -> None:
        self.size = size
        self.folder = folder

    def __iter__(self) -> Any:
        info = feedline.get_worker_info()
        number, count = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(number, self.size, count):
            if index == 37 and self.folder is not None and not (self.folder / "died").exists():
                (self.folder / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield {"i": index, "drawn": feedline.rng().random()}


class Writing(Drawing):
    """Counts in an array of its own, and says what it finds there."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.counts = np.zeros(100_000, np.int64)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.counts[index] += 1
        return {"count": self.counts[index]}


class Needy(Drawing):
    """Needs a package where it is rebuilt."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        import wave

        self.module = wave.__name__
        self.__dict__.update(state)


class Environment(Drawing):
    """Says what the runtime environment has."""

    def __getitem__(self, index: int) -> Any:
        return os.environ["FLAVOUR"]
