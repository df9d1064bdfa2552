"""Datasets with a fault in them, for the scripts of the fault suite."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import feedline

SIZE, BAD = 40, 13


class Injected(feedline.Dataset[Any]):
    """Sample `BAD` does `how`: always, or (with a `once` path) only the first time in whatever process."""

    stuck = frozenset([BAD])
    """Whoever is not back from one of these is stuck."""

    def __init__(self, how: str, once: str | None = None) -> None:
        self.how = how
        self.once = once

    def __len__(self) -> int:
        return SIZE

    def describe(self, index: int) -> str:
        return f"photos/{index}.jpg"

    def __getitem__(self, index: int) -> Any:
        if index == BAD:
            self.fault()
        return np.full((130, 130), index, np.float32), index

    def fault(self) -> None:
        if self.once is not None:
            try:
                Path(self.once).touch(exist_ok=False)
            except FileExistsError:
                return
        getattr(self, self.how)()

    def loop(self) -> None:
        while True:
            pass

    def sleep(self) -> None:
        time.sleep(600)

    def pipe(self) -> None:
        os.read(os.pipe()[0], 1)

    def c_code(self) -> None:
        """Holds the GIL for longer than anyone lives."""
        re.match("(a+)+$", "a" * 60 + "b")

    def until_told(self) -> None:
        """Stuck, but comes back when somebody has made the file."""
        while not os.path.exists(os.environ["RELEASE"]):
            time.sleep(0.01)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def crash(self) -> None:
        ctypes.string_at(0)

    def abort(self) -> None:
        os.abort()

    def leave(self) -> None:
        os._exit(3)

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def memory(self) -> None:
        """What the system does to a process that has taken too much."""
        self.kept = np.ones(30_000_000)
        threading.Event().wait(0.1)
        os.kill(os.getpid(), signal.SIGKILL)


class Locked(Injected):
    """Whoever reads BAD - 8 takes a lock and never gives it back; whoever reads BAD waits for it."""

    stuck = frozenset([BAD - 8, BAD])

    def __init__(self, how: str, once: str | None = None) -> None:
        super().__init__(how, once)
        self.lock = multiprocessing.Lock()
        self.held = multiprocessing.Event()

    def __getitem__(self, index: int) -> Any:
        if index == BAD - 8:
            self.lock.acquire()
            self.held.set()
            time.sleep(600)
        if index == BAD:
            self.held.wait()
            self.lock.acquire()
        return np.full((130, 130), index, np.float32), index


class Mute(Injected):
    """The disk that holds up its sample holds up what it says of it too."""

    def describe(self, index: int) -> str:
        time.sleep(600)
        return ""


class Builtin(Injected):
    """Its `__getitem__` is written in C, and takes as many seconds as the index says."""

    stuck = frozenset([600])
    __getitem__ = time.sleep  # type: ignore[assignment]


class AtOnce(Injected):
    """Reads many samples in one call, so that nobody sees from outside which one it was."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Stream(feedline.IterableDataset[Any]):
    """Elements 0…SIZE in shards; the element `BAD` does `how`."""

    stuck = Injected.stuck

    def __init__(self, how: str, once: str | None = None) -> None:
        self.inner = Injected(how, once)

    def shard(self, index: int, count: int) -> Iterator[Any]:
        for element in range(index, SIZE, count):
            yield self.inner[element]

    def __iter__(self) -> Iterator[Any]:
        return self.shard(0, 1)


def torch_stream(how: str, once: str | None = None) -> Any:
    """The same as torch's users have it."""
    import torch.utils.data

    kind = type("Stream", (torch.utils.data.IterableDataset,), dict(vars(Stream)))
    return kind(how, once)


DATASETS = {kind.__name__: kind for kind in (Injected, Locked, Mute, Builtin, AtOnce, Stream)}
