"""Finds what an object holds, by attribute path, without running user code.

Takes: an object, and a function that recognises what to find. Gives: each result with its path (`dataset.db._conn`).
Promises: no property, `__getattr__`, `__iter__` or `__eq__` is called; nothing is visited twice; it never fails. At
most `most` objects are visited, nearest first, and only the first few elements of a container. This also limits the
time: a clock would make the results depend on the machine's load.
Not its job: what the results mean (records, and in workers carried and held_generators).
"""

from __future__ import annotations

import _io
import _thread
import contextlib
import itertools
import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

T = TypeVar("T")
Check = Callable[[Any], "T | None"]
Recognise = Callable[[type], "Check[T] | None"]
Opener = Callable[[Any], Iterator[tuple[str, Any]]]

MOST = 500
FEW = 8
_DEEPEST = 12

_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_namespace: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_C_ATTRIBUTES = (types.GetSetDescriptorType, types.MemberDescriptorType)

# Types whose objects hold nothing that matters.
_LEAVES: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type, np.dtype}
    | {property, classmethod, staticmethod, types.ModuleType, types.BuiltinFunctionType, *_C_ATTRIBUTES}
    | {types.WrapperDescriptorType, types.MethodDescriptorType, types.MappingProxyType, types.GenericAlias}
)
# Modules whose objects are not searched: they are shared between processes on purpose, or hold locks by design.
_CLOSED = ("logging", "multiprocessing", "threading", "asyncio", "concurrent", "numpy", "pandas", "pyarrow", "polars")
_SEQUENCES: tuple[Any, ...] = (list, tuple, deque, set, frozenset)
_METHODS = _LEAVES | {types.FunctionType}
_MEMBERS: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__self__", "__func__"),
    partial: ("func", "args", "keywords"),
    _io.TextIOWrapper: ("buffer",),
    _io.BufferedReader: ("raw",),
    _io.BufferedWriter: ("raw",),
    _io.BufferedRandom: ("raw",),
}
"""Classes written in C, and their attributes that can be read without running user code."""


@dataclass(frozen=True)
class Found(Generic[T]):
    """A result of the search."""

    path: str
    holder: str
    """The path of the object that holds it."""
    what: T


def walk(
    root: Any, name: str, recognise: Recognise[T], through: bool = False, most: int = MOST, few: int = FEW
) -> list[Found[T]]:
    """Everything in `root` that `recognise` knows; the search goes on inside a result only if `through`.

    `recognise` is called once for each class, and returns a check for its instances, or None. (Most objects in an
    ordinary dataset are of a few classes.)
    """
    found: list[Found[T]] = []
    seen: dict[int, Any] = {}  # also keeps them alive, so that no id is reused
    known: dict[type, tuple[Check[T] | None, list[Opener]]] = {}
    waiting = deque([(root, name, "", 0)])
    while waiting and len(seen) < most:
        value, path, holder, depth = waiting.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        kind, what = type(value), None
        # An object may be half-made, or changed by another thread: what cannot be read is skipped.
        try:
            if kind not in known:
                known[kind] = recognise(kind), _openers(kind, few)
                if _is_open(kind):
                    waiting.extend((part, path + step, path, depth + 1) for step, part in _of_class(kind))
            check, openers = known[kind]
            if check is not None:
                what = _answer(check, value)
            if what is not None:
                found.append(Found(path, holder, what))
            if (what is None or through) and depth < _DEEPEST:
                for opener in openers:
                    for step, part in opener(value):
                        if type(part) not in _LEAVES:
                            waiting.append((part, path + step, path, depth + 1))
        except Exception:
            continue
    return found


def _answer(check: Check[T], value: Any) -> T | None:
    try:
        return check(value)
    except Exception:  # its class is misleading
        return None


def class_attribute(kind: type, name: str) -> Any:
    """The attribute of that name in a class or its nearest base; None if there is none."""
    for each in _mro(kind):
        found = _namespace(each).get(name)
        if found is not None:
            return found
    return None


def names_of(kind: type) -> list[tuple[str, str]]:
    """The top-level module and the name of a class and of each of its bases."""
    return [(module_of(each).partition(".")[0], _name(each)) for each in _mro(kind)]


def module_of(kind: type) -> str:
    """A class's `__module__`; empty if that is not a string."""
    module = type.__getattribute__(kind, "__module__")
    return module if type(module) is str else ""


def is_a(kind: type, *others: type) -> bool:
    """`issubclass` by inheritance alone. (`isinstance` would trust a proxy's `__class__`, and run code to get it.)"""
    return not set(_mro(kind)).isdisjoint(others)


def own_attributes(value: Any) -> dict[str, Any]:
    """The instance's own dictionary; empty if it has none."""
    descriptor = class_attribute(type(value), "__dict__")
    found = descriptor.__get__(value) if type(descriptor) in _C_ATTRIBUTES else None
    return found if type(found) is dict else {}


def own_slots(value: Any) -> dict[str, Any]:
    """The values of the instance's `__slots__` that are set."""
    return {step.removeprefix("."): part for step, part in _slots(_members_of(type(value)), value)}


def plain_attribute(value: Any, name: str) -> Any:
    """An attribute that is stored (in the instance, a slot, or by C code); None if it is missing or computed."""
    descriptor = class_attribute(type(value), name)
    return descriptor.__get__(value) if type(descriptor) in _C_ATTRIBUTES else own_attributes(value).get(name)


def methods_of(kind: type) -> Iterator[types.FunctionType]:
    """The functions of a class and its bases that are written in Python."""
    for each in _mro(kind):
        for part in list(_namespace(each).values()):
            inner = part.__func__ if type(part) in (staticmethod, classmethod) else part
            inner = inner.fget if type(inner) is property else inner
            if type(inner) is types.FunctionType:
                yield inner


def attributes_of(kind: type) -> dict[str, Any]:
    """All attributes of a class and its bases, by name, as they are stored."""
    return {name: part for each in reversed(_mro(kind)) for name, part in list(_namespace(each).items())}


def _openers(kind: type, few: int) -> list[Opener]:
    """Functions that give the parts of that class's instances."""
    openers: list[Opener] = []
    if is_a(kind, dict):
        openers.append(partial(_items, few))
    for sequence in _SEQUENCES:
        if is_a(kind, sequence):
            openers.append(partial(_elements, sequence, few))
    if kind is types.FunctionType:
        openers.append(_closure)
    elif kind in _MEMBERS:
        openers.append(partial(_members, _MEMBERS[kind]))
    elif kind is _thread._local:
        openers.append(_thread_local)
    elif _is_open(kind):
        dictionary = class_attribute(kind, "__dict__")
        if type(dictionary) in _C_ATTRIBUTES:
            openers.append(partial(_attributes, dictionary))
        if members := _members_of(kind):
            openers.append(partial(_slots, members))
    return openers


def _is_open(kind: type) -> bool:
    module = module_of(kind)
    if module.startswith("feedline."):
        return module.startswith(("feedline.datasets.", "feedline.diagnose.doctor."))  # they hold user objects
    return (
        module.partition(".")[0] not in _CLOSED
        and not is_a(kind, np.ndarray, type, types.ModuleType, _thread._local)
        and ("torch", "Tensor") not in names_of(kind)
    )


def _items(few: int, value: Any) -> Iterator[tuple[str, Any]]:
    for key, part in itertools.islice(dict.items(value), few):
        yield f"[{key!r}]" if type(key) in _LEAVES else "[…]", part


def _elements(sequence: Any, few: int, value: Any) -> Iterator[tuple[str, Any]]:
    for place, part in enumerate(itertools.islice(sequence.__iter__(value), few)):
        yield f"[{place}]", part


def _closure(value: Any) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        yield f"'s variable {name}", cell.cell_contents


def _members(names: tuple[str, ...], value: Any) -> Iterator[tuple[str, Any]]:
    for name in names:
        yield f".{name}", getattr(value, name)


def _attributes(dictionary: Any, value: Any) -> Iterator[tuple[str, Any]]:
    for name, part in list(dict.items(dictionary.__get__(value))):
        yield f".{name}", part


def _thread_local(value: Any) -> Iterator[tuple[str, Any]]:
    # Only for exactly that class: the first access to a subclass's instance in this thread calls its __init__.
    for name, part in list(vars(value).items()):
        yield f".{name}", part


def _members_of(kind: type) -> list[tuple[str, Any]]:
    slots = [item for each in _mro(kind) if "__slots__" in _namespace(each) for item in _namespace(each).items()]
    return [(name, slot) for name, slot in slots if type(slot) is types.MemberDescriptorType]


def _slots(members: list[tuple[str, Any]], value: Any) -> Iterator[tuple[str, Any]]:
    for name, slot in members:
        with contextlib.suppress(AttributeError):  # never set
            yield f".{name}", slot.__get__(value)


def _of_class(kind: type) -> Iterator[tuple[str, Any]]:
    for each in _mro(kind):
        if "__module__" in _namespace(each):  # written in Python
            for name, part in list(_namespace(each).items()):
                if type(part) not in _METHODS and not name.startswith("__"):
                    yield f".{name}", part
