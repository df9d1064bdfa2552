"""A tree whose arrays belong to nobody else.

Takes: what a custom `collate_fn` returned, or a sample that is delivered unbatched. Gives: the same tree if nobody else
has any of it (unshared), else a tree with each array copied once into memory from `empty`.
Promises: writing into a delivered array never changes the dataset. Every object keeps its class and content, and an
object that was in two places still is one object. Plain lists, tuples and dicts are rebuilt; an object of any other
class is rebuilt from its parts, as pickle would do it, if it holds an array, and passed on unchanged otherwise. What
cannot be copied in this way (a generator, a lock, an object with `__del__`, a class written in C that does not pickle)
is passed on too, with the arrays it holds.
Not its job: stacking (default); another process's copy (arena.packing does this by pickling).
"""

from __future__ import annotations

import array
import copy
import gc
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from feedline.collate.unshared import IMMUTABLE, IsUnshared, is_unshared
from feedline.datasets import Array, Empty

CopyLeaf = Callable[[Any, Empty], Any]
"""Returns a copy of a leaf, or the same object if it is to be shared."""

_ATOMS = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    types.GeneratorType,
    weakref.ref,
    property,
)
"""copy.deepcopy does not copy these either (or cannot)."""
_ARRAYS = (np.ndarray, np.void)


def own_held(
    held: list[Any],
    empty: Empty,
    keep: Any = None,
    copy_leaf: CopyLeaf | None = None,
    leaves: tuple[type, ...] = (),
    is_unshared_leaf: IsUnshared | None = None,
) -> Any:
    """The same as `own` of the tree that the list holds. If nobody else holds any of it, nothing has to be copied.

    >>> held = [np.zeros(3)]
    >>> own_held(held, np.empty) is held[0]
    True
    """
    if is_unshared(held, 0, is_unshared_leaf):
        return held[0]
    return own(held[0], empty, keep, copy_leaf, leaves)


def own(
    tree: Any, empty: Empty, keep: Any = None, copy_leaf: CopyLeaf | None = None, leaves: tuple[type, ...] = ()
) -> Any:
    """Copy the arrays of a tree, wherever they are.

    `keep` is never copied: a batch that refers to its dataset must not bring a copy of the whole dataset.
    A framework passes `copy_leaf` for `leaves` of its own types; NumPy's arrays are known here.

    >>> data = np.zeros(3)
    >>> mine = own({"x": data}, np.empty)
    >>> mine["x"][0] = 1
    >>> data
    array([0., 0., 0.])
    """
    if type(tree) is list and IMMUTABLE.issuperset(map(type, tree)):
        return tree.copy()  # texts or numbers only: the code below would take longer than collating them
    owner = _Owner(empty, copy_leaf, leaves)
    if type(tree) in leaves:
        return owner.leaf(tree)  # it holds nothing else, so there is nothing to remember
    if not isinstance(keep, (list, dict, tuple, *owner.leaves)):
        owner.keep(keep)
    try:
        return owner.own(tree)
    except RecursionError:  # hundreds of nested lists
        return tree


class _Owner:
    """One tree being copied. Not a closure: a recursive one is a reference cycle, and would keep the copies alive."""

    def __init__(self, empty: Empty, copy_leaf: CopyLeaf | None, leaves: tuple[type, ...]) -> None:
        self._empty = empty
        self._copy_leaf = copy_leaf
        self.leaves = (*_ARRAYS, *leaves)
        # By id, as in copy.deepcopy, so the originals are kept too: otherwise another object might get the same id.
        self._copies: dict[int, Any] = {}
        self._originals: list[Any] = []

    def keep(self, value: Any) -> None:
        self._remember(value, value)

    def own(self, value: Any) -> Any:
        kind = type(value)
        if kind in IMMUTABLE:
            return value
        known = self._copies.get(id(value))
        if known is not None:
            return known
        if isinstance(value, self.leaves):
            return self._remember(value, self.leaf(value))
        if kind is list:
            return self._list(value)
        if kind is dict:
            return self._dict(value)
        if kind is tuple:
            return self._tuple(value)
        if kind in (bytearray, array.array):
            return self._remember(value, value[:])
        if isinstance(value, (np.generic, *_ATOMS)):
            return value
        return self._object(value)

    def _remember(self, original: Any, mine: Any) -> Any:
        self._originals.append(original)
        self._copies[id(original)] = mine
        return mine

    def leaf(self, value: Any) -> Any:
        """A copy of one array."""
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, np.void):
            return value.copy()  # a record of a structured array is a view, too
        return value if self._copy_leaf is None else self._copy_leaf(value, self._empty)

    def _array(self, array: Array) -> Array:
        if type(array) not in (np.ndarray, np.memmap):
            copied: Array = array.copy()  # masked arrays and other subclasses know how to copy themselves
            return copied
        mine = self._empty(array.shape, array.dtype)
        if array.dtype == object:
            self._remember(array, mine)
            places = mine.reshape(-1)
            for i, value in enumerate(array.flat):
                places[i] = self.own(value)
        else:
            mine[...] = array
        return mine

    # Lists and dicts are remembered before they are filled: they may contain themselves.

    def _list(self, value: list[Any]) -> list[Any]:
        if IMMUTABLE.issuperset(map(type, value)):
            return self._remember(value, value.copy())  # type: ignore[no-any-return]
        mine: list[Any] = self._remember(value, [])
        mine.extend(map(self.own, value))
        return mine

    def _dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        mine: dict[Any, Any] = self._remember(value, {})
        for key, inner in value.items():
            mine[key] = self.own(inner)
        return mine

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        mine = tuple(map(self.own, value))
        if id(value) in self._copies:  # it contains itself, and was copied further down
            return self._copies[id(value)]  # type: ignore[no-any-return]
        same = all(a is b for a, b in zip(mine, value, strict=True))
        return self._remember(value, value if same else mine)  # type: ignore[no-any-return]

    def _object(self, value: Any) -> Any:
        if next(self._arrays_in(value), None) is None:
            return self._remember(value, value)
        try:
            mine = self._rebuilt(value)
        except Exception:  # its class does not allow copies, or cannot be copied
            mine = value
        return self._remember(value, mine)

    def _arrays_in(self, value: Any) -> Iterator[Any]:
        """The arrays and the already copied objects inside a value, found without running code of its class."""
        seen = {id(value)}
        level: list[Any] = [value]
        while level:
            met = [each for each in gc.get_referents(*level) if type(each) not in IMMUTABLE]
            level = []
            for each in met:
                known = self._copies.get(id(each))
                if id(each) in seen or known is each or isinstance(each, _ATOMS):
                    continue
                seen.add(id(each))
                if known is not None or isinstance(each, self.leaves):
                    yield each
                else:
                    level.append(each)

    def _rebuilt(self, value: Any) -> Any:
        kind = type(value)
        if kind is types.MappingProxyType:
            return kind(self.own(dict(value)))
        if hasattr(kind, "__deepcopy__"):
            for leaf in list(self._arrays_in(value)):
                self.own(leaf)
            return copy.deepcopy(value, self._copies)
        if isinstance(value, tuple):  # not by the class's __new__, which may take other arguments
            again = tuple.__new__(kind, map(self.own, tuple.__iter__(value)))
            if hasattr(value, "__dict__"):
                vars(again).update(self.own(dict(vars(value))))
            return again
        if hasattr(kind, "__del__"):  # the copy's __del__ would release what the original still needs
            return value
        return self._from_parts(value, value.__reduce_ex__(4))

    def _from_parts(self, value: Any, parts: Any) -> Any:
        """Copies like copy.deepcopy, but adds items by list's or dict's own methods, not by those of the class."""
        if isinstance(parts, str):
            return value  # the name of a global object: there is only one
        make, arguments, state, listed, keyed, *further = (*parts, None, None, None)[: max(5, len(parts))]
        if any(further):
            return value
        again = make(*map(self.own, arguments))
        self._remember(value, again)
        if state is value:  # a dict that is its own __dict__
            again.__dict__ = again
        elif state is not None:
            self._set_state(again, self.own(state))
        if listed is not None:
            _append_all(again, map(self.own, _listed(value, listed)))
        if keyed is not None:
            for key, item in _keyed(value, keyed):
                _base(again, (OrderedDict, dict)).__setitem__(again, key, self.own(item))
        return again

    def _set_state(self, again: Any, state: Any) -> None:
        if hasattr(type(again), "__setstate__"):
            again.__setstate__(state)
            return
        slots: dict[str, Any] | None = None
        if isinstance(state, tuple) and len(state) == 2:
            state, slots = state
        if state:
            again.__dict__.update(state)
        for name, inner in (slots or {}).items():
            object.__setattr__(again, name, inner)  # works for frozen classes, too


def _base(value: Any, bases: tuple[type, ...]) -> Any:
    return next((base for base in bases if isinstance(value, base)), type(value))


def _listed(value: Any, listed: Iterator[Any]) -> Iterator[Any]:
    return list.__iter__(value) if isinstance(value, list) else listed


def _keyed(value: Any, keyed: Iterator[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
    return _base(value, (OrderedDict, dict)).items(value) if isinstance(value, dict) else keyed


def _append_all(again: Any, items: Iterable[Any]) -> None:
    append = _base(again, (list, deque)).append
    for item in items:
        append(again, item)
