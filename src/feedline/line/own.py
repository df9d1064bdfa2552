"""A tree whose arrays belong to nobody else.

Takes: what a custom `collate_fn` returned, or a sample that is delivered unbatched. Gives: the same tree, each array
copied once into memory of `empty`. Containers are rebuilt as collate does it; other objects are passed on as they are.
Promises: writing into a delivered array never changes the dataset.
Not its job: stacking (collate); another process's copy (arena.packing does this by pickling).
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from feedline.line.collate import like_mapping, like_sequence
from feedline.messages import Array, Empty

_FLAT = (str, bytes, bytearray, memoryview, range)
"""Sequences that hold no arrays."""


CopyLeaf = Callable[[Any, Empty], Any]
"""A copy of a leaf, or the very same object where there is nothing to copy."""


def own(tree: Any, empty: Empty, copy_leaf: CopyLeaf | None = None) -> Any:
    """Copy the tree's arrays, wherever in mappings, sequences and dataclasses they are.

    A framework passes `copy_leaf` for leaves of its own; arrays are known.

    >>> data = np.zeros(3)
    >>> mine = own({"x": data}, np.empty)
    >>> mine["x"][0] = 1
    >>> data
    array([0., 0., 0.])
    """
    copies: dict[int, tuple[Any, Any]] = {}  # the original is held too, so that its id stays its own

    def inner(value: Any) -> Any:
        if id(value) in copies:  # one array in two places stays one array
            return copies[id(value)][1]
        mine = _copy_leaf(value, empty, copy_leaf, inner)
        if mine is value:
            return _rebuilt(value, inner)
        copies[id(value)] = value, mine
        return mine

    return inner(tree)


def _copy_leaf(value: Any, empty: Empty, further: CopyLeaf | None, inner: Callable[[Any], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return _own_array(value, empty, inner)
    return value if further is None else further(value, empty)


def _rebuilt(tree: Any, inner: Callable[[Any], Any]) -> Any:
    kind = type(tree)
    if kind is dict:
        return {key: inner(value) for key, value in tree.items()}
    if kind is list:
        return [inner(value) for value in tree]
    if kind is tuple:
        return tuple(inner(value) for value in tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind(*(inner(value) for value in tree))
    if isinstance(tree, Mapping):
        return like_mapping(tree, {key: inner(value) for key, value in tree.items()})
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return _own_dataclass(tree, inner)
    if isinstance(tree, Sequence) and not isinstance(tree, _FLAT):
        return like_sequence(tree, [inner(value) for value in tree])
    if kind is bytearray:
        return bytearray(tree)
    return tree.copy() if isinstance(tree, np.void) else tree  # a record of a structured array is a view too


def _own_array(array: Array, empty: Empty, inner: Callable[[Any], Any]) -> Array:
    if type(array) not in (np.ndarray, np.memmap):
        copied: Array = array.copy()  # masked arrays and other subclasses know how
        return copied
    mine = empty(array.shape, array.dtype)
    if array.dtype == object:
        places = mine.reshape(-1)
        for i, value in enumerate(array.flat):
            places[i] = inner(value)
    else:
        mine[...] = array
    return mine


def _own_dataclass(tree: Any, inner: Callable[[Any], Any]) -> Any:
    again = copy.copy(tree)
    names = {field.name for field in dataclasses.fields(tree)} | set(getattr(tree, "__dict__", ()))
    for name in names:
        if hasattr(tree, name):
            object.__setattr__(again, name, inner(getattr(tree, name)))
    return again
