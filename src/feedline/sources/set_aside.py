"""The objects of a batch, read at the same time; if one fails, the others need not be read again one by one.

Takes: a place and names. Gives: their bytes, one after the other; and then single ones, which this thread has perhaps
just read.
Promises: a loader that goes on without a bad sample reads the batch again sample by sample, and so asks the place only
for the objects that failed. An object is given again once at most, and only until the thread reads the next batch.
Not its job: which sample fails (reading.salvage), a cache (cached).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from weakref import ref

from feedline.sources.places import FilePlace

_here = threading.local()


def read_aside(place: FilePlace, names: Sequence[str]) -> list[bytes | Exception]:
    """Read objects, and keep those that could be read for `read_alone`; the errors of others are in their places."""
    _here.place, _here.objects = ref(place), {}
    each = getattr(place, "read_each", place.read_many)
    found: list[bytes | Exception] = list(each(names))
    _here.objects.update((name, data) for name, data in zip(names, found, strict=True) if isinstance(data, bytes))
    return found


def read_together(place: FilePlace, names: Sequence[str]) -> Iterator[bytes]:
    """The objects in order. An error comes when it is the turn of its object.

    >>> from feedline.sources.places import place_of
    >>> list(read_together(place_of("."), []))
    []
    """
    found = read_aside(place, names)
    objects = _here.objects
    for name, data in zip(names, found, strict=True):
        if isinstance(data, Exception):
            try:
                raise data
            finally:
                del data, found  # otherwise the error would refer to itself
        objects.pop(name, None)  # whoever fails now is not to get the same bytes again: they may be damaged
        yield data
        objects[name] = data
    _here.objects = {}


def read_alone(place: FilePlace, name: str) -> bytes:
    """An object: what this thread has set aside, or else from the place."""
    if getattr(_here, "place", ref(read_alone))() is place and name in _here.objects:
        data: bytes = _here.objects.pop(name)
        return data
    return place.read(name)
