"""What an object consists of: what pickling says, and for some types that pickling refuses, what they hold.

Takes: any object. Gives: what `__reduce_ex__` gives, or one part; where a global thing is.
Promises: what pickling would refuse, and is not known here, is an error. What has no data (a lock) has no parts.
Not its job: walking through the parts (identity).
"""

from __future__ import annotations

import copyreg
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from functools import cached_property, partialmethod
from importlib.machinery import EXTENSION_SUFFIXES
from operator import attrgetter
from pathlib import Path
from struct import Struct
from types import MappingProxyType, MemberDescriptorType
from typing import Any

import numpy as np

from feedline.errors.foreign import ask


def _nothing(_: Any) -> None:
    return None


def _referred(reference: Any) -> Any:
    return reference()


HOLDS: dict[type, Callable[[Any], Any]] = {
    MappingProxyType: lambda proxy: proxy.copy(),
    memoryview: lambda view: (view.format, view.shape, view.tobytes()),
    Struct: attrgetter("format"),
    threading.local: lambda own: dict(vars(own)),
    type(threading.Lock()): _nothing,
    type(threading.RLock()): _nothing,
    weakref.ReferenceType: _referred,
    weakref.KeyedRef: _referred,
}
"""Types that cannot be pickled, though they are ordinary in global variables, and what such an object holds."""


def reduced(thing: Any) -> Any:
    """What `pickle` makes of it: the name of something global, or how to make it anew, and of what."""
    by_type = copyreg.dispatch_table.get(type(thing))
    return thing.__reduce_ex__(4) if by_type is None else by_type(thing)


def module_of(thing: Any, name: str) -> str | None:
    """The module that has it under that name, which is all that `pickle` writes of it; None if there is none."""
    module = pickle.whichmodule(thing, name)  # type: ignore[attr-defined]
    found = sys.modules.get(module)
    for part in name.split("."):
        found = ask(found, part)
    return module if found is thing else None


def beside(thing: Any) -> dict[str, Any]:
    """The attributes of an object of a user's subclass, which may be none of those that its base pickles."""
    slots = {
        name: ask(thing, name)
        for owner in type(thing).__mro__
        for name, value in sorted(vars(owner).items())
        if isinstance(value, MemberDescriptorType)
    }
    return {**slots, **(ask(thing, "__dict__") or {})}


def code_file(module: str) -> Path | None:
    """The file of a module whose functions have no code that could be looked at."""
    file = ask(sys.modules.get(module), "__file__")
    return Path(file) if isinstance(file, str) else None


def extension_of(module: str) -> Path | None:
    """The file of a module that was compiled: its classes have no code that could be looked at, either."""
    file = code_file(module)
    return file if file is not None and file.name.endswith(tuple(EXTENSION_SUFFIXES)) else None


def is_of_files(thing: Any) -> bool:
    """Is it a dataset of feedline's, or of a user's class that inherits from one, which says its files?"""
    return any(
        "local_files" in vars(owner) and owner.__module__.startswith("feedline.") for owner in type(thing).__mro__
    )


def wrapped(thing: Any) -> list[Any] | None:
    """What a decorator holds that pickling refuses; None if it is something else."""
    if isinstance(thing, property):
        return [thing.fget, thing.fset]
    if isinstance(thing, partialmethod):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, cached_property):
        return [thing.func]
    return [thing.__func__] if isinstance(thing, staticmethod | classmethod) else None


def whole(mapped: Any) -> Any:
    """The array of all that is mapped, of which this one may be a part."""
    while isinstance(mapped.base, np.ndarray):
        mapped = mapped.base
    return mapped


def begin_of(array: Any) -> int:
    """Where in memory its first value is."""
    return int(array.__array_interface__["data"][0])
