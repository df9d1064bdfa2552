"""Locks, queues, values and pipes: objects that a process can be given only while it is being started.

Takes: such objects, as the pickler meets them in a job. Gives: a number in the pickle for each, and a list of them. The
list is an argument of the process, and Python knows how to pass it there.
Promises: one lock in two places stays one lock; an object that cannot be passed is found before anything is started.
Not its job: the rest of the job (shipping).
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import Any

_ROOTS = {
    "multiprocessing.synchronize": ("SemLock", "Condition", "Event", "Barrier"),
    "multiprocessing.queues": ("Queue", "SimpleQueue"),
    "multiprocessing.sharedctypes": ("SynchronizedBase",),
}
_SENT_IN_PARCEL = ("builtins", "functools", "torch")
"""Modules whose types ForkingPickler knows too, but which are sent in the parcel."""

_given: list[Any] = []


class Inherited:
    """The objects met so far."""

    def __init__(self) -> None:
        self.things: list[Any] = []
        self._places: dict[int, int] = {}

    def reducers(self) -> dict[type, Callable[[Any], Any]]:
        """Reducers for a pickler's dispatch table."""
        return dict.fromkeys(kinds(), self._reduce)

    def check_pickling(self) -> None:
        """Raise the error that starting a process with these objects would raise."""
        if self.things:
            with _as_if_starting():
                ForkingPickler(io.BytesIO(), 5).dump(self.things)

    def _reduce(self, thing: Any) -> Any:
        place = self._places.get(id(thing))
        if place is None:
            place = self._places[id(thing)] = len(self.things)
            self.things.append(thing)
        return _take, (place,)


def _take(place: int) -> Any:
    return _given[place]


@contextlib.contextmanager
def unpacking_with(things: list[Any]) -> Iterator[None]:
    """Used in a worker while it opens the parcel."""
    global _given
    _given = things
    try:
        yield
    finally:
        _given = []


def kinds() -> set[type]:
    """The types of such objects."""
    found: set[type] = set()
    for module, names in _ROOTS.items():
        if module in sys.modules:  # else no such object exists
            for name in names:
                found |= _with_subclasses(getattr(sys.modules[module], name))
    registered: dict[type, Any] = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    return found | {kind for kind in registered if kind.__module__.partition(".")[0] not in _SENT_IN_PARCEL}


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, kind.__subclasses__()))


class _NoProcess:
    """Stands in for a process that is being started."""

    @staticmethod
    def duplicate_for_child(fd: int) -> int:
        return fd

    @staticmethod
    def DupFd(fd: int) -> int:
        return fd


@contextlib.contextmanager
def _as_if_starting() -> Iterator[None]:
    module: Any = context
    before = module.get_spawning_popen()
    module.set_spawning_popen(_NoProcess)
    try:
        yield
    finally:
        module.set_spawning_popen(before)
