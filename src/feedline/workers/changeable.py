"""Finds what a dataset shares with the main process, through which its workers could be changed between two epochs.

Takes: a job. Gives: the path of the first such object: a multiprocessing value, event, queue or proxy, shared memory, a
tensor or an array in it, a writable mapping.
Promises: it runs no code of the dataset (walking). It also looks at the closures and defaults of its methods, and at
the globals they name, in their own module or another.
Not its job: what is outside both processes (a file, a database): a worker that reads from there is not noticed.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from feedline.machine import loaded_torch
from feedline.supervise.walking import attributes_of, is_a, methods_of, module_of, names_of, plain_attribute, walk
from feedline.workers.job import Job

_CONTEXTS = "multiprocessing.context"
_CTYPES: tuple[Any, ...] = (ctypes.Array, ctypes.Structure, ctypes.Union, ctypes._SimpleCData, ctypes._Pointer)
"""The only visible types of multiprocessing's RawValue and RawArray."""
MOST_NAMED = 200
"""At most this many globals are searched, because each takes microseconds."""

_LIBRARIES = sys.stdlib_module_names | {
    "feedline",
    "numpy",
    "torch",
    "torchvision",
    "torchaudio",
    "PIL",
    "cv2",
    "scipy",
    "pandas",
    "sklearn",
    "tqdm",
}
"""Functions of these libraries hold nothing through which a user could tell a worker something."""

Check = Callable[[Any], "bool | None"]


def changeable(job: Job) -> str | None:
    """The path of an object in the job that this process can change for its workers; None if there is none."""
    roots = [("dataset", job.dataset), ("collate_fn", job.collate_fn), ("worker_init_fn", job.worker_init_fn)]
    seen = _Seen()
    for name, root in roots:
        found = walk(root, name, seen.recognise)
        if found:
            return found[0].path
    for name, value in seen.named():
        found = walk(value, name, seen.recognise)
        if found:
            return found[0].path
    return None


class _Seen:
    """Recognises shared objects, and remembers the functions it has seen."""

    def __init__(self) -> None:
        self._functions: list[types.FunctionType] = []
        self._mapped: list[tuple[int, int]] | None = None

    def recognise(self, kind: type) -> Check | None:
        if kind is types.FunctionType:
            return self._note
        self._functions += methods_of(kind)
        check = _recognise(kind)
        return self._tensor if check is _shared_tensor else check

    def _note(self, function: types.FunctionType) -> None:
        self._functions.append(function)

    def _tensor(self, value: Any) -> bool | None:
        return _shared_tensor(value) or self._is_mapped(value)

    def _is_mapped(self, value: Any) -> bool | None:
        """torch does not say that a tensor on foreign memory (`torch.from_numpy`) is shared: ask the system."""
        if self._mapped is None:
            self._mapped = _shared_ranges()
        address = loaded_torch.module().Tensor.data_ptr(value)
        return True if any(start <= address < end for start, end in self._mapped) else None

    def named(self) -> Iterator[tuple[str, Any]]:
        """What those functions hold and name. Searching the results may find more functions."""
        done: set[tuple[int, str]] = set()
        looked_at: set[int] = set()
        for function in self._functions:
            if id(function) in looked_at or _is_library(function.__globals__):
                continue
            looked_at.add(id(function))
            yield from _defined_with(function)
            for name, value, where in self._called(function):
                if len(done) == MOST_NAMED:
                    return
                if (where, name) not in done:
                    done.add((where, name))
                    yield name, value

    def _called(self, function: types.FunctionType) -> Iterator[tuple[str, Any, int]]:
        """What a function names in its module, and in modules and classes it names: name, object, namespace id."""
        names = list(dict.fromkeys(_names_in(function.__code__)))
        imported = [(name, sys.modules[name]) for name in names if name in sys.modules]  # maybe imported inside it
        spaces = {id(function.__globals__): ("", function.__globals__)}
        spaces |= {id(module): (f"{name}.", _space_of(module)) for name, module in imported}
        waiting = deque(spaces.items())
        while waiting:
            where, (prefix, space) = waiting.popleft()
            for name in names if prefix == "" or not _is_library(space) else ():
                if name not in space:
                    continue
                value = space[name]
                if (inner := _space_of(value)) and id(value) not in spaces:
                    spaces[id(value)] = f"{prefix}{name}.", inner
                    waiting.append((id(value), spaces[id(value)]))
                    if is_a(type(value), type) and not _is_library(inner):
                        self._functions += methods_of(value)
                yield prefix + name, value, where


def _space_of(value: Any) -> dict[str, Any]:
    """The namespace of a module or a class; empty for any other object."""
    if is_a(type(value), types.ModuleType):
        found: dict[str, Any] = types.ModuleType.__getattribute__(value, "__dict__")  # that of a lazy module may import
        return found
    return attributes_of(value) if is_a(type(value), type) else {}


def _is_library(space: dict[str, Any]) -> bool:
    """Is it the namespace of a module in `_LIBRARIES`, or of a class from one?"""
    module = space["__name__"] if "__name__" in space else space.get("__module__")
    return str(module).partition(".")[0] in _LIBRARIES


def _defined_with(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """A function's default arguments and closure variables."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # never set
            yield f"{function.__qualname__}'s variable {name}", cell.cell_contents
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {function.__qualname__}", value


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _recognise(kind: type) -> Check | None:
    names = names_of(kind)
    if any(module == "multiprocessing" for module, _ in names) and module_of(kind) != _CONTEXTS:
        return _always
    if is_a(kind, *_CTYPES):
        return _always
    if ("torch", "Tensor") in names or ("torch", "UntypedStorage") in names:
        return _shared_tensor
    if is_a(kind, np.ndarray):
        return _shared_array
    if is_a(kind, mmap.mmap):
        return _can_be_written
    return _shared_view if kind is memoryview else None


def _always(value: Any) -> bool:
    return True


def _shared_tensor(value: Any) -> bool | None:
    torch = loaded_torch.module()
    kind: Any = torch.Tensor if is_a(type(value), torch.Tensor) else torch.UntypedStorage
    return True if kind.is_shared(value) else None


def _shared_ranges() -> list[tuple[int, int]]:
    """Address ranges of this process that other processes may change; empty if the system does not say."""
    ranges = []
    with contextlib.suppress(OSError), open("/proc/self/maps") as lines:
        for line in lines:
            addresses, may, *_ = line.split(None, 2)
            if may[1] == "w" and may[3] == "s":
                start, _, end = addresses.partition("-")
                ranges.append((int(start, 16), int(end, 16)))
    return ranges


def _can_be_written(value: Any) -> bool | None:
    with memoryview(value) as view:
        return None if view.readonly else True


def _shared_array(value: Any) -> bool | None:
    """A read-only array may lie on memory that is written through another array, so its memory is what counts."""
    if is_a(type(value), np.memmap) and plain_attribute(value, "mode") == "c":
        return None  # copy-on-write: other processes do not see what one writes
    return _shared_base(np.ndarray.base.__get__(value))


def _shared_view(value: memoryview) -> bool | None:
    return _shared_base(value.obj)


def _shared_base(base: Any) -> bool | None:
    check = _recognise(type(base))
    return None if check is None else check(base)
