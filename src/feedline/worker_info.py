"""Which worker is this? — for dataset code that wants to know.

Takes: what the worker's body sets. Gives: `get_worker_info()`, and a call when somebody asks (a stream that asks shards
itself). Not its job: starting workers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker knows of itself: torch's four fields."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Current(threading.local):
    info: WorkerInfo | None = None
    when_asked: Callable[[], None] | None = None
    questions: int = 0


_current = _Current()


def get_worker_info() -> WorkerInfo | None:
    """The worker this code runs in, or None in the main process: the same as torch's function of that name.

    An `IterableDataset` whose `__iter__` asks is taken to read its own share of the data.

    >>> get_worker_info() is None
    True
    """
    _current.questions += 1
    if _current.when_asked is not None:
        _current.when_asked()
    return _current.info


def set_worker_info(info: WorkerInfo | None) -> None:
    """From now on this thread is that worker."""
    _current.info = info


def watch_for_question(when_asked: Callable[[], None] | None) -> None:
    """Have a function called whenever this thread calls `get_worker_info`; None to stop."""
    _current.when_asked = when_asked


def questions() -> int:
    """How often this thread has called `get_worker_info`."""
    return _current.questions


def is_one_of_many() -> bool:
    """Is this thread one of several workers? Asking so is no question of the dataset's."""
    return _current.info is not None and _current.info.num_workers > 1
