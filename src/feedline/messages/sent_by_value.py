"""Classes and functions that worker processes were sent by value: either side knows them again by a number.

Takes: what went along so, in the same order on both sides (workers.shipping sends it). Gives: pickles in which each of
them is a number, and the thing of one's own side where such a pickle is read.
Promises: what travels out travels back. A batch or an exception of a class that was typed into a notebook, or defined
in a function, arrives in the main process as one of that very class; by its name no process would find it, and a copy
by value would be another class. Nothing changes where nothing was sent by value.
Not its job: sending them in the first place (workers.shipping), where pickles lie (arena.packing).
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
"""What this process was sent, if it is a worker."""


class SentByValue:
    """What went to the workers of one loader. It pickles as its name; the worker adds its own side of it."""

    def __init__(self, name: str = "") -> None:
        self.name = name or f"{os.getpid()}-{next(_counter)}"
        self.things: list[Any] = []
        self.in_use = False
        """May anything go by value? Else all was found by name."""
        self.went = 0
        """How many went with the job, to every worker."""
        self._numbers: dict[int, int] = {}
        self._late: dict[int, Any] = {}
        _tables[self.name] = self

    def __reduce__(self) -> Any:
        return SentByValue, (self.name,)

    def add(self, thing: Any) -> int:
        """One more, which has the next number; or the number that it has."""
        number = self._numbers.setdefault(id(thing), len(self.things))
        if number == len(self.things):
            self.things.append(thing)
        return number

    def arrive(self, things: list[Any], in_use: bool) -> None:
        """In a worker: these are what the parent's are here, one for one."""
        global _here
        for thing in things:
            self.add(thing)
        self.in_use, _here = in_use, self if in_use else None

    def arrive_late(self, things: list[tuple[int, Any]]) -> None:
        """In a worker: more of them, which came with a task. They come again with others, and may be others then."""
        for number, thing in things:
            self._late[id(thing)] = thing  # kept, or its number would be another's
            self._numbers[id(thing)] = number

    def reduced(self, thing: Any) -> Any:
        """For a pickler: a thing by its number, or NotImplemented if it was not sent."""
        number = self._numbers.get(id(thing))
        return NotImplemented if number is None else (_known_as, (self.name, number))

    def dumps(self, value: Any) -> bytes:
        """In the parent: a pickle for any worker, in which what did not go with the job goes by value, each time."""
        import cloudpickle  # it is loaded: else nothing would go by value

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
    """In a worker that was sent things by value."""

    def reducer_override(self, thing: Any) -> Any:
        assert _here is not None
        return _here.reduced(thing)


def pickler(stream: Any, out_of_band: Callable[[pickle.PickleBuffer], Any] | None = None) -> pickle.Pickler:
    """A pickler for the main process; an ordinary one if all it was sent can be found by name."""
    make = pickle.Pickler if _here is None else _ByNumber
    return make(stream, protocol=5, buffer_callback=out_of_band)


def dumps(value: Any) -> bytes:
    """A pickle for the main process."""
    stream = io.BytesIO()
    pickler(stream).dump(value)
    return stream.getvalue()


def loads(data: Any) -> Any:
    """In a worker: what `SentByValue.dumps` made in the parent, or an ordinary pickle."""
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
