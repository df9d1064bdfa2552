"""Classes and functions that were sent to worker processes by value: both sides refer to each by a number.

Takes: these objects, in the same order on both sides (workers.shipping sends them). Gives: pickles in which each is a
number; reading such a pickle gives the object of the reading side.
Promises: what can be sent out can be sent back. A batch or an exception of a class that was defined in a notebook or in
a function arrives in the main process as an instance of that same class. (No process could find the class by name, and
a copy by value would be a different class.) Nothing changes if nothing was sent by value.
Not its job: sending them in the first place (workers.shipping), where pickles are stored (arena.packing).
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

_tables: WeakValueDictionary[str, SentByValue] = WeakValueDictionary()
_counter = itertools.count()
_here: SentByValue | None = None
"""What was sent to this process, if it is a worker."""


class SentByValue:
    """What was sent to the workers of one loader. It is pickled as its name; a worker adds its own objects."""

    def __init__(self, name: str = "") -> None:
        self.name = name or f"{os.getpid()}-{next(_counter)}"
        self.things: list[Any] = []
        self.in_use = False
        """May objects be sent by value? Otherwise all were found by name."""
        self.went = 0
        """How many objects were sent with the job, to every worker."""
        self._numbers: dict[int, int] = {}
        self._late: dict[int, Any] = {}
        _tables[self.name] = self

    def __reduce__(self) -> Any:
        return SentByValue, (self.name,)

    def add(self, thing: Any) -> int:
        """Add an object and return its new number, or the number that it already has."""
        number = self._numbers.setdefault(id(thing), len(self.things))
        if number == len(self.things):
            self.things.append(thing)
        return number

    def arrive(self, things: list[Any], in_use: bool) -> None:
        """Called in a worker: these objects correspond to the parent's, one by one."""
        global _here
        for thing in things:
            self.add(thing)
        self.in_use, _here = in_use, self if in_use else None

    def arrive_late(self, things: list[tuple[int, Any]]) -> None:
        """Called in a worker: more objects, which came with a task. Each task may bring new copies of them."""
        for number, thing in things:
            self._late[id(thing)] = thing  # kept alive, else its id could be reused
            self._numbers[id(thing)] = number

    def reduced(self, thing: Any) -> Any:
        """For a pickler: an object as its number, or NotImplemented if it was not sent."""
        number = self._numbers.get(id(thing))
        return NotImplemented if number is None else (_known_as, (self.name, number))

    def dumps(self, value: Any) -> bytes:
        """Called in the parent: a pickle for any worker. Objects not sent with the job go by value each time."""
        import cloudpickle  # already loaded: else nothing would be sent by value

        late: list[tuple[int, Any]] = []

        def by_number(pickler: Any, thing: Any) -> Any:
            if self._numbers.get(id(thing), self.went) < self.went:
                return self.reduced(thing)
            reduced = cloudpickle.Pickler.reducer_override(pickler, thing)
            if reduced is not NotImplemented:
                late.append((self.add(thing), thing))
            return reduced

        stream = io.BytesIO()
        pickler = type("Pickler", (cloudpickle.Pickler,), {"reducer_override": by_number})(stream, protocol=5)
        pickler.dump(value)
        pickler.dump(late)
        return stream.getvalue()


class _ByNumber(pickle.Pickler):
    """The pickler of a worker to which objects were sent by value."""

    def reducer_override(self, thing: Any) -> Any:
        assert _here is not None
        return _here.reduced(thing)


def pickler(stream: Any, out_of_band: Callable[[pickle.PickleBuffer], Any] | None = None) -> pickle.Pickler:
    """A pickler for data to the main process; an ordinary one if nothing was sent to this worker by value."""
    make = pickle.Pickler if _here is None else _ByNumber
    return make(stream, protocol=5, buffer_callback=out_of_band)


def dumps(value: Any) -> bytes:
    """A pickle for data to the main process."""
    stream = io.BytesIO()
    pickler(stream).dump(value)
    return stream.getvalue()


def loads(data: Any) -> Any:
    """Called in a worker: read what `SentByValue.dumps` made in the parent, or an ordinary pickle."""
    if _here is None:
        return pickle.loads(data)
    stream = io.BytesIO(data)
    reader = pickle.Unpickler(stream)
    value = reader.load()
    if stream.tell() < len(data):
        _here.arrive_late(reader.load())
    return value


def _known_as(name: str, number: int) -> Any:
    return _tables[name].things[number]
