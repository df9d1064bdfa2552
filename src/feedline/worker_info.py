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

    def __getattribute__(self, name: str) -> Any:
        if name == "num_workers":
            count_was_asked()
        return super().__getattribute__(name)


class _Current(threading.local):
    info: WorkerInfo | None = None
    when_asked: Callable[[], None] | None = None
    when_counted: Callable[[], None] | None = None


_current = _Current()


def get_worker_info() -> WorkerInfo | None:
    """The worker this code runs in, or None in the main process: the same as torch's function of that name.

    An `IterableDataset` whose `__iter__` asks is taken to read its own share of the data.

    >>> get_worker_info() is None
    True
    """
    if _current.when_asked is not None:
        _current.when_asked()
    return _current.info


def set_worker_info(info: WorkerInfo | None) -> None:
    """From now on this thread is that worker."""
    _current.info = info


def watch_for_question(when_asked: Callable[[], None] | None) -> None:
    """Have a function called whenever this thread calls `get_worker_info`; None to stop."""
    _current.when_asked = when_asked


def count_was_asked() -> None:
    """Someone looks at how many workers there are: nobody needs that but to take a share."""
    if _current.when_counted is not None:
        _current.when_counted()


def watch_for_count(when_counted: Callable[[], None] | None) -> None:
    """Have a function called whenever this thread looks at a `WorkerInfo`'s `num_workers`; None to stop."""
    _current.when_counted = when_counted
