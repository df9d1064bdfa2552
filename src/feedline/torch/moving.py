"""A batch with its tensors replaced, for moving it to a device.

Takes: a tree, and a function that returns another object for a tensor. Gives: the same tree with the replacements.
Promises: containers are rebuilt as in default collation; one tensor in two places stays one.
Not its job: what the function does (transfer).
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from feedline.collate.default import like_mapping, like_sequence

_FLAT = (str, bytes, bytearray, memoryview, range)
"""Sequences that hold no tensors."""


def moved(tree: Any, move: Callable[[Any], Any]) -> Any:
    """The tree with `move(leaf)` for each leaf; a leaf that `move` returns unchanged may be a container."""
    return _Mover(move).moved(tree)


class _Mover:
    """One tree being moved. Not a closure: a recursive closure is a reference cycle, and would keep the batch alive."""

    def __init__(self, move: Callable[[Any], Any]) -> None:
        self._move = move
        self._known: dict[int, tuple[Any, Any]] = {}  # the original is kept, so that no other object gets its id

    def moved(self, value: Any) -> Any:
        if id(value) in self._known:
            return self._known[id(value)][1]
        there = self._move(value)
        if there is value:
            return self._container(value)
        self._known[id(value)] = value, there
        return there

    def _container(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is dict:
            return {key: self.moved(value) for key, value in tree.items()}
        if kind is list:
            return [self.moved(value) for value in tree]
        if kind is tuple:
            return tuple(self.moved(value) for value in tree)
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            return kind(*(self.moved(value) for value in tree))
        if isinstance(tree, Mapping):
            return like_mapping(tree, {key: self.moved(value) for key, value in tree.items()})
        if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
            return self._dataclass(tree)
        if isinstance(tree, Sequence) and not isinstance(tree, _FLAT):
            return like_sequence(tree, [self.moved(value) for value in tree])
        return tree

    def _dataclass(self, tree: Any) -> Any:
        again = copy.copy(tree)
        names = {field.name for field in dataclasses.fields(tree)} | set(getattr(tree, "__dict__", ()))
        for name in names:
            if hasattr(tree, name):
                object.__setattr__(again, name, self.moved(getattr(tree, name)))
        return again
