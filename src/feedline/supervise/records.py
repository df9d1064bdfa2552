"""The largest collection of Python objects in a dataset, by its attribute path.

Takes: a dataset. Gives: words like "dataset.records: list of 1,000,000", or None if there is nothing large.
Promises: it runs no user code (walking), not even if a list's or a record's class overrides `__len__` or `__iter__`; it
looks at a limited number of objects.
Not its job: whether the collection is a problem (growth).
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from feedline.supervise.walking import class_attribute, is_a, names_of, walk

LARGE = 1 << 23
"""Bytes, estimated from a few elements; a smaller collection does not matter."""
FEW = 64
"""How many elements of a collection are searched."""
MOST = 10_000
SOME = 16
"""A collection's size is estimated from this many elements."""
_COLLECTIONS: tuple[Any, ...] = (list, tuple, dict, set, frozenset, deque)


class _Collection(NamedTuple):
    kind: str
    length: int
    some: list[Any]

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return self.length * sum(map(_size_of_record, self.some)) // max(1, len(self.some))


def largest(dataset: Any) -> str | None:
    """The collection with the most bytes.

    >>> largest({"train": [str(i) for i in range(300_000)], "test": ["0"]})
    "dataset['train']: list of 300,000"
    """
    found = walk(dataset, "dataset", _recognise, through=True, most=MOST, few=FEW)
    size, words = max(
        ((each.what.size, f"{each.path}: {each.what.kind} of {each.what.length:,}") for each in found),
        default=(0, ""),
        key=lambda pair: pair[0],
    )
    return words if size > LARGE else None


def _recognise(kind: type) -> Callable[[Any], _Collection | None] | None:
    if kind is np.ndarray:
        return _of_array
    for base in _COLLECTIONS:
        if is_a(kind, base):
            return partial(_of_collection, base)
    return None


def _of_collection(base: Any, value: Any) -> _Collection:
    elements = dict.items(value) if base is dict else base.__iter__(value)
    return _Collection(names_of(type(value))[0][1], base.__len__(value), list(islice(elements, SOME)))


def _of_array(value: Any) -> _Collection | None:
    if value.dtype != object or not value.ndim:
        return None
    some = value.flat[:: max(1, value.size // SOME)][:SOME].tolist()
    return _Collection("array", len(value), some)


def _size_of_record(record: Any) -> int:
    size = _size_of(record)
    for base in (dict, list, tuple):
        if is_a(type(record), base):
            parts = [*dict.keys(record), *dict.values(record)] if base is dict else base.__iter__(record)
            size += sum(map(_size_of, islice(parts, FEW)))
    return size


def _size_of(thing: Any) -> int:
    own = class_attribute(type(thing), "__sizeof__")
    return sys.getsizeof(thing, 64) if type(own) is types.MethodDescriptorType else 64
