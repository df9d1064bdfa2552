"""Tells dataset code which worker it runs in.

Takes: what the worker's body sets. Gives: `get_worker_info()`, and a call when user code reads the number of workers: a
stream that reads it picks its own share, and a `worker_init_fn` that reads it divides the data. Data cannot be divided
without that number; reading only the worker's id, for a log line, does not count.
Promises: in a worker process all threads get the same answer, including the dataset's own; a worker thread has its own.
Not its job: starting workers.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

TELLING = ("num_workers", "__dict__")
"""Attributes that show how many workers there are."""


@dataclass(frozen=True, repr=False)
class WorkerInfo:
    """What a worker knows about itself: torch's four fields.

    >>> WorkerInfo(id=1, num_workers=4, seed=7, dataset=None).num_workers
    4
    """

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

    def __repr__(self) -> str:  # printing does not count as reading the number
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
    """The worker this code runs in, or None in the main process, like torch's function of that name.

    An `IterableDataset` whose `__iter__` reads `num_workers` is assumed to pick its own share of the data.

    >>> get_worker_info() is None
    True
    """
    return _here().info


def of_this_thread() -> WorkerInfo | None:
    """The worker info of this thread alone. This call does not count as a question of the dataset."""
    return None if _own.place is None else _own.place.info


def in_worker() -> bool:
    """Is this process or this thread a worker? This call does not count as a question of the dataset."""
    return _here().info is not None


def note_counting() -> None:
    """User code has read the number of workers."""
    here = _here()
    here.counted += 1
    if here.when_counted is not None:
        here.when_counted()


def note_naming() -> None:
    """User code has read which worker this is."""
    _here().named += 1


def set_worker_info(info: WorkerInfo | None, own_process: bool) -> None:
    """From now on this process (if `own_process`) or this thread is that worker."""
    global _process
    if own_process:
        _process = _Place(info)
    else:
        _own.place = None if info is None else _Place(info)


def place_of_thread() -> Any:
    """This thread's worker, for `work_for` in another thread."""
    return _own.place


def work_for(place: Any) -> None:
    """From now on this thread reads samples for that worker."""
    _own.place = place


def _forget_worker() -> None:
    _own.place = None


if hasattr(os, "register_at_fork"):  # a process that a worker thread forks is not a worker
    os.register_at_fork(after_in_child=_forget_worker)


@contextlib.contextmanager
def watch_for_counting(when_counted: Callable[[], None] | None) -> Iterator[None]:
    """Within this context, call a function whenever this worker's code reads the number of workers."""
    here = _here()
    before, here.when_counted = here.when_counted, when_counted
    try:
        yield
    finally:
        here.when_counted = before


@contextlib.contextmanager
def acting_as(info: WorkerInfo) -> Iterator[None]:
    """Within this context, be that worker, because any worker may read any part of a stream.

    >>> with acting_as(WorkerInfo(2, 3, 0, None)):
    ...     print(get_worker_info())
    WorkerInfo(id=2, num_workers=3, seed=0, dataset=None)
    >>> get_worker_info() is None
    True
    """
    here = _here()
    if here.info is None:  # the main process: its other threads must not appear as workers
        here = _own.place = _Place()
    before, here.info = here.info, info
    try:
        yield
    finally:
        here.info = before
        if before is None:
            _own.place = None


def count_reads() -> int:
    """How often this worker's code has read the number of workers."""
    return _here().counted


def id_reads() -> int:
    """How often this worker's code has read which worker it is."""
    return _here().named


def is_one_of_many() -> bool:
    """Is this thread one of several workers? This call does not count as a question of the dataset."""
    info = _here().info
    return info is not None and count_of(info) > 1


def count_of(info: WorkerInfo) -> int:
    """The number of workers, read without being counted as a question of the dataset."""
    count: int = object.__getattribute__(info, "num_workers")
    return count
