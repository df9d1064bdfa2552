"""A tree whose arrays belong to nobody else.

Takes: what a custom `collate_fn` returned, or a sample that is delivered unbatched. Gives: the same tree, each array
copied once into memory of `empty`. Containers are rebuilt; other objects are passed on as they are.
Promises: writing into a delivered array never changes the dataset.
Not its job: stacking (collate); another process's copy (arena.packing does this by pickling).
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np

from feedline.messages import Array, Empty


def own(tree: Any, empty: Empty) -> Any:
    """Copy the tree's arrays, wherever in dicts, lists, tuples and dataclasses they are.

    >>> data = np.zeros(3)
    >>> mine = own({"x": data}, np.empty)
    >>> mine["x"][0] = 1
    >>> data
    array([0., 0., 0.])
    """
    kind = type(tree)
    if isinstance(tree, np.ndarray):
        return _own_array(tree, empty)
    if kind is dict:
        return {key: own(value, empty) for key, value in tree.items()}
    if kind is list:
        return [own(value, empty) for value in tree]
    if kind is tuple:
        return tuple(own(value, empty) for value in tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind(*(own(value, empty) for value in tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return _own_dataclass(tree, empty)
    if isinstance(tree, dict):  # a subclass: a copy keeps what else it holds
        again = copy.copy(tree)
        for key, value in tree.items():
            again[key] = own(value, empty)
        return again
    return tree


def _own_array(array: Array, empty: Empty) -> Array:
    if type(array) not in (np.ndarray, np.memmap):
        copied: Array = array.copy()  # masked arrays and other subclasses know how
        return copied
    mine = empty(array.shape, array.dtype)
    mine[...] = array
    return mine


def _own_dataclass(tree: Any, empty: Empty) -> Any:
    again = copy.copy(tree)
    for field in dataclasses.fields(tree):
        if hasattr(tree, field.name):
            object.__setattr__(again, field.name, own(getattr(tree, field.name), empty))
    return again
