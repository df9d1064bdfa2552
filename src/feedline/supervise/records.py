"""The largest collection of Python objects in a dataset, by its attribute path.

Takes: a dataset. Gives: words like "dataset.records: list of 1,000,000", or None if there is nothing large.
Promises: runs no code of the user's (walking), not even that of a list or a record whose class overrides what is asked
of it; looks at so many objects at most.
Not its job: whether it does any harm (growth).
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
"""Parts of a collection that are looked into."""
MOST = 10_000
SOME = 16
"""Elements by which a collection's size is judged."""
_COLLECTIONS: tuple[Any, ...] = (list, tuple, dict, set, frozenset, deque)


class _Collection(NamedTuple):
    kind: str
    length: int
    some: list[Any]

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self.length * sum(map(_size_of_record, self.some)) // max(1, len(self.some))


def largest(dataset: Any) -> str | None:
    """The collection that holds the most.

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
