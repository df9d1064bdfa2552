"""What reading samples leaves behind in a dataset, which threads would share.

Takes: a job, before and after samples were read. Gives: what tells against sharing it: something that reading has set.
Promises: looks without running the dataset's code (supervise.walking); what has another value than before counts,
whatever for: nobody can tell from outside whether two threads may set it at once. Looked at are attributes, slots,
containers, arrays and buffers, variables of closures, classes, and what the modules have that these are written in.
What is `threading.local` does not count, and neither do feedline's own datasets, which are made for threads.
Not its job: what a dataset held from the start (carried), what is put back before the batch is done, which cannot be
seen.
"""

from __future__ import annotations

import _thread
import array
import ctypes
import itertools
import random
import sys
import types
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from feedline.supervise.walking import class_attribute, is_a, module_of, own_attributes, own_slots, walk
from feedline.workers.carried import EACH, MOST
from feedline.workers.job import Job

Footprint = dict[str, dict[str, Any]]
"""What each thing holds, by its path. They are kept alive meanwhile, so that none is taken for another."""

MANY = 10_000
"""Of a larger container only its length and its ends are looked at: to hold on to 10,000 elements takes 50 µs."""
PLACES = 1_024
"""Of a larger array that many elements are looked at, spread over it: 20 µs."""
_FEW_MODULES = 32
_IN_A_MODULE = 100
_MISSING = object()
_METHODS = (types.MethodType, types.BuiltinMethodType)
_VALUES = frozenset({int, float, complex, str, bytes, bool})
_NOT_LOOKED_INTO = frozenset({types.ModuleType, types.FunctionType, type, *_VALUES})
_PLAIN = frozenset({type(None), tuple, list, dict, set, types.FunctionType, type, *_VALUES})
_BUFFERS: tuple[Any, ...] = (bytearray, array.array, ctypes.Array, ctypes.Structure, ctypes.Union, ctypes._SimpleCData)


class Digest(NamedTuple):
    """Stands for what can be changed in place."""

    size: int
    checksum: int


def footprint(job: Job) -> Footprint:
    """How it is now."""
    state: Footprint = {}

    def recognise(kind: type) -> Callable[[Any], dict[str, Any] | None] | None:
        if _is_the_users(kind):
            state[f"{module_of(kind)}.{kind.__qualname__}"] = _of_class(kind)
        return _contents_of(kind)

    def look(root: Any, name: str, most: int = MOST) -> None:
        found = walk(root, name, recognise, through=True, most=most, few=EACH)
        state.update((each.path, each.what) for each in found)

    look(job.dataset, "dataset")
    look(job.collate_fn, "collate_fn")
    for module in modules_of(job):
        names = {name: value for name, value in list(vars(module).items()) if not name.startswith("__")}
        state[module.__name__] = _marked((f".{name}", value) for name, value in names.items())
        for name, value in names.items():
            if type(value) not in _NOT_LOOKED_INTO:
                look(value, f"{module.__name__}.{name}", _IN_A_MODULE)
    return state


def changed(before: Footprint, after: Footprint) -> str:
    """What has another value than before, by its path; empty if nothing has.

    >>> changed({"dataset": {".file": None}}, {"dataset": {".file": 3}})
    'dataset.file'
    """
    for path, holds in after.items():
        if (held := before.get(path)) is None:
            continue
        for name in itertools.chain(holds, held):
            if not _is_same(held.get(name, _MISSING), holds.get(name, _MISSING)):
                return path + name
    return ""


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return type(one) is type(other) and (type(one) in _VALUES or type(one) is Digest) and bool(one == other)


def fetched_by_name(job: Job, of: str) -> str:
    """A function of `random` or `numpy.random` that a module of the dataset's has taken out of there; or nothing.

    In worker threads the modules' functions look which thread calls them. One that was fetched before
    (`from random import random`) does not.
    """
    hidden = random._inst if of == "random" else np.random.mtrand._rand
    for module in modules_of(job):
        for name, value in list(vars(module).items()):
            if type(value) in _METHODS and value.__self__ is hidden:
                return f"{module.__name__}.{name}"
    return ""


def modules_of(job: Job) -> list[types.ModuleType]:
    """Those that the classes (and functions) of the dataset and of collate_fn are written in, and those of the user's
    that these have something of; Python's own left out."""
    names: dict[str, None] = {}

    def note(kind: type) -> Callable[[Any], None] | None:
        names[module_of(kind)] = None
        return note_function if kind is types.FunctionType else None

    def note_function(function: Any) -> None:
        names[str(function.__module__)] = None

    for root in (job.dataset, job.collate_fn):
        walk(root, "", note)
    found: dict[str, types.ModuleType] = {}
    waiting = deque(names)
    while waiting and len(found) < _FEW_MODULES:
        name = waiting.popleft()
        module = sys.modules.get(name)
        if name not in found and not _is_foreign(name) and type(module) is types.ModuleType:
            found[name] = module
            waiting.extend(_named_in(module))
    return list(found.values())


def _named_in(module: types.ModuleType) -> Iterator[str]:
    """The user's modules whose functions and classes it has. A library's are too many, and change when first used."""
    if _is_installed(module):
        return
    for value in list(vars(module).values()):
        if type(value) is types.ModuleType:
            other: types.ModuleType | None = value
        elif type(value) in (types.FunctionType, type):
            other = sys.modules.get(str(value.__module__))
        else:
            continue
        if type(other) is types.ModuleType and not _is_installed(other):
            yield other.__name__


def _is_installed(module: types.ModuleType) -> bool:
    file = str(vars(module).get("__file__") or "")
    return "site-packages" in file or "dist-packages" in file


_NOT_THE_USERS = frozenset({"", "feedline", "numpy", "torch", *sys.stdlib_module_names})


def _is_foreign(module: str) -> bool:
    return module.partition(".")[0] in _NOT_THE_USERS


def _is_the_users(kind: type) -> bool:
    return not is_a(kind, _thread._local, type) and not _is_foreign(module_of(kind))


def _of_class(kind: type) -> dict[str, Any]:
    """What can be set in a class, and in those of the user's that it is made from."""
    bases = [base for base in type.__dict__["__mro__"].__get__(kind) if not _is_foreign(module_of(base))]
    spaces = [type.__dict__["__dict__"].__get__(base) for base in reversed(bases)]
    return _marked((f".{name}", value) for space in spaces for name, value in list(space.items()) if name[:2] != "__")


def _contents_of(kind: type) -> Callable[[Any], dict[str, Any] | None] | None:
    if is_a(kind, dict):
        return lambda value: _held(kind, _some(dict, value, dict.items(value), _by_key), value)
    for sequence in (list, deque, set):
        if is_a(kind, sequence):
            return lambda value, of=sequence: _held(kind, _some(of, value, of.__iter__(value), enumerate), value)  # type: ignore[misc]
    if kind is types.FunctionType:
        return _of_function
    return _of_object if _is_the_users(kind) else None


def _held(kind: type, parts: dict[str, Any], value: Any) -> dict[str, Any]:
    return {**_of_object(value), **parts} if _is_the_users(kind) else parts


def _of_object(value: Any) -> dict[str, Any]:
    return _marked((f".{name}", part) for name, part in {**own_attributes(value), **own_slots(value)}.items())


def _of_function(function: types.FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    held = ((f"'s variable {name}", cell.cell_contents) for name, cell in cells)
    return _marked((*held, *((f".{name}", part) for name, part in list(vars(function).items()))))


def _by_key(items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    for place, (key, part) in enumerate(items):
        yield (repr(key) if type(key) in _VALUES else f"…{place}"), part


def _some(
    of: Any, value: Any, parts: Iterable[Any], named: Callable[[Iterable[Any]], Iterable[tuple[Any, Any]]]
) -> dict[str, Any]:
    """What a container holds. Of a large one only the beginning, since even to count a reference writes memory."""
    size = of.__len__(value)
    whole = parts if size <= MANY else itertools.islice(parts, 8)
    return {"": size, **_marked((f"[{name}]", part) for name, part in named(whole))}


def _marked(parts: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: _mark(part) for name, part in parts}


def _mark(value: Any) -> Any:
    """The value, or what stands for it if it can be written into."""
    if type(value) in _PLAIN:  # most are, and to ask more takes 10 µs
        return value
    if type(value) is np.ndarray:
        return _digest_of_array(value) if value.flags.writeable else value
    if is_a(type(value), *_BUFFERS):
        with memoryview(value) as view:
            return Digest(view.nbytes, zlib.crc32(view))
    tensor = class_attribute(type(value), "_version") if _is_tensor(type(value)) else None
    return value if tensor is None else Digest(id(value), tensor.__get__(value))  # counts what is done to it in place


def _is_tensor(kind: type) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and is_a(kind, torch.Tensor)


def _digest_of_array(value: Any) -> Digest:
    step = max(1, value.size // PLACES)
    some = value.reshape(-1)[::step] if value.flags.c_contiguous else value[tuple(slice(None, 8) for _ in value.shape)]
    return Digest(value.size, zlib.crc32(some.tobytes()))
