"""Is a batch held by nobody but us? Then the user can have it as it is, and nothing has to be copied.

Takes: a list or dict that holds a tree, and the key. Gives: whether nobody else can reach the tree or its memory.
Promises: true only if that is certain: Python counts every reference, so whoever keeps the batch, a part of it or a
view of an array has a reference that is counted; and only if a copy would be no better: arrays can be written to, each
element has its own place, and there is no memory beside them. Else the answer is no, and the batch is copied
(ownership). Large arrays that need no copy are counted as memory that the user gets: too little is a `MemoryShortage`.
Not its job: copying (ownership), a framework's arrays (its front says when their memory is theirs alone).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from feedline.arena.ordinary import note
from feedline.datasets import SMALL_LEAF

IsUnshared = Callable[[Any], bool]
"""Has this array, which only one container holds, its memory to itself? Called for types that NumPy does not know."""

IMMUTABLE: frozenset[type] = frozenset((int, float, str, bool, complex, bytes, type(None), range, np.dtype))
"""They hold nothing else, and cannot be changed: it does not matter who has them, too."""

references: Callable[[Any], int] = getattr(sys, "getrefcount", lambda value: -1)


def _references_of_one_container() -> int:
    held = [object()]
    return references(held[0])


ALONE = _references_of_one_container()
"""What `references(held[key])` is if only `held` has the object. Never asked of a local variable: how many references
those have depends on the version of Python."""


def is_unshared(held: Any, key: Any, is_unshared_leaf: IsUnshared | None = None, deepest: int = 8) -> bool:
    """Has nobody but `held` the tree at that key, nor any memory of its arrays?

    >>> held, mine = [np.zeros(3), (np.zeros(3), {"n": 1})], np.zeros(3)
    >>> is_unshared(held, 0), is_unshared(held, 1)
    (True, True)
    >>> view, kept = held[0][:1], held[1]
    >>> is_unshared(held, 0), is_unshared(held, 1), is_unshared([mine], 0)
    (False, False, False)
    """
    kind = type(held[key])
    if kind in IMMUTABLE or (kind is tuple and IMMUTABLE.issuperset(map(type, held[key]))):
        return True
    if references(held[key]) != ALONE or not deepest:
        return False
    if kind is np.ndarray:
        return _owns_its_memory(held[key])
    if kind is tuple or kind is list:
        inner = held[key]
        if IMMUTABLE.issuperset(map(type, inner)):
            return True
        return _are_unshared(inner, range(len(inner)), is_unshared_leaf, deepest - 1)
    if kind is dict:
        inner = held[key]
        if not IMMUTABLE.issuperset(map(type, inner)):
            return False
        return _are_unshared(inner, inner, is_unshared_leaf, deepest - 1)
    return is_unshared_leaf is not None and is_unshared_leaf(held[key])


def _are_unshared(inner: Any, keys: Iterable[Any], is_unshared_leaf: IsUnshared | None, deepest: int) -> bool:
    for key in keys:  # noqa: SIM110  # a generator would take as long again
        if not is_unshared(inner, key, is_unshared_leaf, deepest):
            return False
    return True


def _owns_its_memory(array: Any) -> bool:
    flags, size = array.flags, array.nbytes
    if weakref.getweakrefcount(array) or array.dtype.hasobject or not flags.writeable or not flags.forc:
        return False
    if not (flags.owndata if array.base is None else _is_all_of_its_base(array)):
        return False
    if size >= SMALL_LEAF:
        note(size)
    return True


def _is_all_of_its_base(view: Any) -> bool:
    """Is it all of an array that nobody else has, such as a stack that was reshaped?"""
    is_array = type(view.base) is np.ndarray and view.base.base is None and view.base.flags.owndata
    is_alone = is_array and references(view.base) == ALONE and not weakref.getweakrefcount(view.base)
    return is_alone and view.nbytes == view.base.nbytes
