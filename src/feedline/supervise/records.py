"""The largest collection of Python objects in a dataset, by its attribute path.

Takes: a dataset. Gives: words like "dataset.records: list of 1,000,000", or None if there is nothing large.
Promises: looks at attributes only (no property, no user code), at so many of them at most.
Not its job: whether it does any harm (growth).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

LARGE = 1 << 23
"""Bytes, estimated from a few elements; a smaller collection does not matter."""
FEW = 64
"""A collection of so many parts is looked into; of a larger one, its elements are taken to be records."""
MOST = 10_000
_COLLECTIONS = (list, tuple, dict, set, frozenset, deque)


def largest(dataset: Any) -> str | None:
    """The collection that holds the most.

    >>> class Paths:
    ...     def __init__(self):
    ...         self.split = {"train": [str(i) for i in range(300_000)]}
    >>> largest(Paths())
    "dataset.split['train']: list of 300,000"
    """
    best, most = None, LARGE
    for path, value in _walk(dataset):
        size = _size(value)
        if size > most:
            best, most = f"{path}: {_kind(value)} of {len(value):,}", size
    return best


def _walk(dataset: Any) -> Iterator[tuple[str, Any]]:
    waiting, seen = deque([("dataset", dataset)]), {id(dataset)}
    while waiting and len(seen) < MOST:
        path, value = waiting.popleft()
        if isinstance(value, _COLLECTIONS) or _is_object_array(value):
            yield path, value
        for step, part in _parts(value):
            if id(part) not in seen and not isinstance(part, (str, bytes, int, float, type, ModuleType, FunctionType)):
                seen.add(id(part))
                waiting.append((path + step, part))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        if len(value) <= FEW:
            yield from ((f"[{key!r}]", part) for key, part in list(value.items()))
    elif isinstance(value, (list, tuple, deque)) and len(value) <= FEW:
        yield from ((f"[{number}]", part) for number, part in enumerate(list(value)))
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield from ((f".{name}", part) for name, part in list(attributes.items()))


def _size(value: Any) -> int:
    if isinstance(value, np.ndarray):
        some = value.ravel()[:: max(1, value.size // 16)][:16].tolist()
    else:
        some = list(islice(value.items() if isinstance(value, dict) else value, 16))
    return len(value) * sum(map(_size_of_record, some)) // max(1, len(some))


def _size_of_record(record: Any) -> int:
    size = sys.getsizeof(record, 64)
    if isinstance(record, np.ndarray):
        return size
    parts = [*record.keys(), *record.values()] if isinstance(record, dict) else record
    if isinstance(parts, (list, tuple)):
        size += sum(sys.getsizeof(part, 64) for part in islice(parts, FEW))
    return size


def _is_object_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object and value.ndim > 0


def _kind(value: Any) -> str:
    return "array" if isinstance(value, np.ndarray) else type(value).__name__
