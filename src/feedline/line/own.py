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
    return _Owner(empty, copy_leaf).own(tree)


class _Owner:
    """One tree being copied. Not a closure: one that calls itself is a cycle, which would hold the copies."""

    def __init__(self, empty: Empty, copy_leaf: CopyLeaf | None) -> None:
        self._empty = empty
        self._further = copy_leaf
        self._copies: dict[int, tuple[Any, Any]] = {}  # the original is held too, so that its id stays its own

    def own(self, value: Any) -> Any:
        if id(value) in self._copies:  # one array in two places stays one array
            return self._copies[id(value)][1]
        mine = self._leaf(value)
        if mine is value:
            return self._container(value)
        self._copies[id(value)] = value, mine
        return mine

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._array(value)
        return value if self._further is None else self._further(value, self._empty)

    def _container(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is dict:
            return {key: self.own(value) for key, value in tree.items()}
        if kind is list:
            return [self.own(value) for value in tree]
        if kind is tuple:
            return tuple(self.own(value) for value in tree)
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            return kind(*(self.own(value) for value in tree))
        if isinstance(tree, Mapping):
            return like_mapping(tree, {key: self.own(value) for key, value in tree.items()})
        if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
            return self._dataclass(tree)
        if isinstance(tree, Sequence) and not isinstance(tree, _FLAT):
            return like_sequence(tree, [self.own(value) for value in tree])
        if kind is bytearray:
            return bytearray(tree)
        return tree.copy() if isinstance(tree, np.void) else tree  # a record of a structured array is a view too

    def _array(self, array: Array) -> Array:
        if type(array) not in (np.ndarray, np.memmap):
            copied: Array = array.copy()  # masked arrays and other subclasses know how
            return copied
        mine = self._empty(array.shape, array.dtype)
        if array.dtype == object:
            places = mine.reshape(-1)
            for i, value in enumerate(array.flat):
                places[i] = self.own(value)
        else:
            mine[...] = array
        return mine

    def _dataclass(self, tree: Any) -> Any:
        again = copy.copy(tree)
        names = {field.name for field in dataclasses.fields(tree)} | set(getattr(tree, "__dict__", ()))
        for name in names:
            if hasattr(tree, name):
                object.__setattr__(again, name, self.own(getattr(tree, name)))
        return again
