"""Which worker is this? — for dataset code that wants to know.

Takes: what the worker's body sets. Gives: `get_worker_info()`, and a call when somebody looks at the number of workers:
a stream that does reads a share of its own, and a `worker_init_fn` that does shares the data out. Nobody can share
without knowing how many there are; to ask which worker it is, for a log line say, is no sharing.
Promises: in a worker process all threads get the same answer, those of the dataset's own too; a worker thread has its
own. Not its job: starting workers.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

TELLING = ("num_workers", "__dict__")
"""Who looks at these knows how many workers there are."""


@dataclass(frozen=True, repr=False)
class WorkerInfo:
    """What a worker knows of itself: torch's four fields."""

    id: int
    num_workers: int
    seed: int
    dataset: Any

    def __getattribute__(self, name: str) -> Any:
        if name in TELLING:
            note_counting()
        elif name == "id":
            note_naming()
        return super().__getattribute__(name)

    def __repr__(self) -> str:  # printing it is no looking
        number = object.__getattribute__(self, "id")
        return f"WorkerInfo(id={number}, num_workers={count_of(self)}, seed={self.seed}, dataset={self.dataset!r})"


class _Place:
    """A worker: the whole process, or one thread of it."""

    def __init__(self, info: WorkerInfo | None = None) -> None:
        self.info = info
        self.when_counted: Callable[[], None] | None = None
        self.counted = 0
        self.named = 0


class _Own(threading.local):
    place: _Place | None = None


_process = _Place()
_own = _Own()


def _here() -> _Place:
    return _own.place or _process


def get_worker_info() -> WorkerInfo | None:
    """The worker this code runs in, or None in the main process: the same as torch's function of that name.

    An `IterableDataset` whose `__iter__` looks at its `num_workers` is taken to read its own share of the data.

    >>> get_worker_info() is None
    True
    """
    return _here().info


def of_this_thread() -> WorkerInfo | None:
    """The worker that this thread alone is; asking so is no question of the dataset's."""
    return None if _own.place is None else _own.place.info


def in_worker() -> bool:
    """Is this a worker, the process or this thread of it? Asking so is no question of the dataset's."""
    return _here().info is not None


def note_counting() -> None:
    """Somebody has looked at how many workers there are."""
    here = _here()
    here.counted += 1
    if here.when_counted is not None:
        here.when_counted()


def note_naming() -> None:
    """Somebody has looked at which of the workers this is."""
    _here().named += 1


def set_worker_info(info: WorkerInfo | None, own_process: bool) -> None:
    """From now on this process, or else this thread, is that worker."""
    global _process
    if own_process:
        _process = _Place(info)
    else:
        _own.place = None if info is None else _Place(info)


def place_of_thread() -> Any:
    """What makes this thread the worker it is, for `work_for`."""
    return _own.place


def work_for(place: Any) -> None:
    """From now on this thread is one of those by which that worker reads."""
    _own.place = place


def _be_nobody() -> None:
    _own.place = None


if hasattr(os, "register_at_fork"):  # a process that a worker thread has forked is not that thread
    os.register_at_fork(after_in_child=_be_nobody)


@contextlib.contextmanager
def watch_for_counting(when_counted: Callable[[], None] | None) -> Iterator[None]:
    """While this lasts, have a function called whenever this worker's code looks at the number of workers."""
    here = _here()
    before, here.when_counted = here.when_counted, when_counted
    try:
        yield
    finally:
        here.when_counted = before


@contextlib.contextmanager
def acting_as(info: WorkerInfo) -> Iterator[None]:
    """While this lasts, be that worker: a stream's part may be read by whoever is there.

    >>> with acting_as(WorkerInfo(2, 3, 0, None)):
    ...     print(get_worker_info())
    WorkerInfo(id=2, num_workers=3, seed=0, dataset=None)
    >>> get_worker_info() is None
    True
    """
    here = _here()
    if here.info is None:  # the main process: its other threads are no workers meanwhile
        here = _own.place = _Place()
    before, here.info = here.info, info
    try:
        yield
    finally:
        here.info = before
        if before is None:
            _own.place = None


def countings() -> int:
    """How often this worker's code has looked at the number of workers."""
    return _here().counted


def namings() -> int:
    """How often this worker's code has looked at which worker it is."""
    return _here().named


def is_one_of_many() -> bool:
    """Is this thread one of several workers? Asking so is no question of the dataset's."""
    info = _here().info
    return info is not None and count_of(info) > 1


def count_of(info: WorkerInfo) -> int:
    """Its number of workers, without having looked at it."""
    count: int = object.__getattribute__(info, "num_workers")
    return count
