"""Has `worker_init_fn` given its worker's copy of a stream bounds of its own? That is torch's documented way.

Takes: the dataset, while the function runs. Gives: whether any attribute was set. Setting one to what it was counts:
the first worker's share may well begin where the whole does.
Not its job: what follows from it (line.stream).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def watch_attributes(dataset: Any) -> Iterator[list[str]]:
    """The names of the attributes set so far, while this lasts."""
    kind = type(dataset)
    names: list[str] = []

    def note(self: Any, name: str, value: Any) -> None:
        if getattr(self, name, None) is not None:  # else something is opened there, not a bound moved
            names.append(name)
        super(watched, self).__setattr__(name, value)

    watched: Any = None
    try:
        watched = type(kind.__name__, (kind,), {"__setattr__": note, "__slots__": ()})
        dataset.__class__ = watched
    except TypeError:  # a class written in C, say: then nobody sets its attributes either
        watched = None
    try:
        yield names
    finally:
        if watched is not None:
            object.__setattr__(dataset, "__class__", kind)
