"""The objects of a batch, read at the same time; if one fails, the others need not be read again one by one.

Takes: a place and names. Gives: their bytes, one after the other; and then single ones, which this task has perhaps
just read.
Promises: a loader that goes on without a bad sample reads the batch again sample by sample, and so asks the place only
for the objects that failed. An object is given again once at most, and only within its task: whoever corrects an object
after an error, and reads it, gets what is there now.
Not its job: which sample fails (reading.salvage), a cache (cached).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from feedline.randomness.rng import thread_place
from feedline.sources.places import FilePlace

Aside = tuple[FilePlace, dict[str, bytes]]


def read_aside(place: FilePlace, names: Sequence[str]) -> tuple[list[bytes | Exception], dict[str, bytes]]:
    """Read objects, with the errors of others in their places; and those that `read_alone` may have again."""
    task, objects = thread_place(), dict[str, bytes]()
    task.aside = None
    each = getattr(place, "read_each", place.read_many)
    found: list[bytes | Exception] = list(each(names))
    if task.task is not None:  # outside a loader, nobody reads a batch again
        objects.update((name, data) for name, data in zip(names, found, strict=True) if isinstance(data, bytes))
        task.aside = (place, objects)
    return found, objects


def read_together(place: FilePlace, names: Sequence[str]) -> Iterator[bytes]:
    """The objects in order. An error comes when it is the turn of its object.

    >>> from feedline.sources.places import place_of
    >>> list(read_together(place_of("."), []))
    []
    """
    found, objects = read_aside(place, names)
    for name, data in zip(names, found, strict=True):
        if isinstance(data, Exception):
            try:
                raise data
            finally:
                del data, found  # otherwise the error would refer to itself
        objects.pop(name, None)  # whoever fails now is not to get the same bytes again: they may be damaged
        yield data
        objects[name] = data
    objects.clear()


def read_alone(place: FilePlace, name: str) -> bytes:
    """An object: what this task has set aside, or else from the place."""
    whose, objects = cast("Aside", thread_place().aside or (None, {}))
    return objects.pop(name) if whose is place and name in objects else place.read(name)
