"""What a dataset shares with the process that made it, and so can be told between two epochs.

Takes: a job. Gives: the path of the first such thing: a value, event, queue or proxy of multiprocessing, shared memory,
a tensor or an array in it, a mapping that can be written.
Promises: looks without running the dataset's code (walking). Also where its methods name something of their module.
Not its job: what is outside both processes (a file, a database): a worker that looks there is not found out.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from feedline.supervise.walking import is_a, methods_of, module_of, names_of, plain_attribute, walk
from feedline.workers.body import Job

_CONTEXTS = "multiprocessing.context"
_CTYPES: tuple[Any, ...] = (ctypes.Array, ctypes.Structure, ctypes.Union, ctypes._SimpleCData, ctypes._Pointer)
"""Of multiprocessing's RawValue and RawArray nothing else can be seen."""
MOST_NAMED = 200
"""Things of modules that are looked into; each takes microseconds, and a class of 200 globals has others to fear."""

_LIBRARIES = sys.stdlib_module_names | {
    "feedline",
    "numpy",
    "torch",
    "torchvision",
    "torchaudio",
    "PIL",
    "cv2",
    "scipy",
}
"""Whose functions hold nothing that a user could tell a worker by."""

Check = Callable[[Any], "bool | None"]


def changeable(job: Job) -> str | None:
    """Where, in what workers are given, something lies that this process can change for them; None if nowhere."""
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
    """Knows what is looked for, and remembers the functions it came by."""

    def __init__(self) -> None:
        self._functions: list[types.FunctionType] = []

    def recognise(self, kind: type) -> Check | None:
        if kind is types.FunctionType:
            return self._note
        self._functions += methods_of(kind)
        return _recognise(kind)

    def _note(self, function: types.FunctionType) -> None:
        self._functions.append(function)

    def named(self) -> Iterator[tuple[str, Any]]:
        """What those functions name in their modules; while it is looked through, more may be found."""
        done: set[tuple[int, str]] = set()
        for function in self._functions:
            space: dict[str, Any] = function.__globals__
            if str(space.get("__name__")).partition(".")[0] in _LIBRARIES:
                continue
            for name in _names_in(function.__code__):
                if name in space and (id(space), name) not in done and len(done) < MOST_NAMED:
                    done.add((id(space), name))
                    yield name, space[name]


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
    torch = sys.modules["torch"]
    kind: Any = torch.Tensor if is_a(type(value), torch.Tensor) else torch.UntypedStorage
    return True if kind.is_shared(value) else None


def _can_be_written(value: Any) -> bool | None:
    with memoryview(value) as view:
        return None if view.readonly else True


def _shared_array(value: Any) -> bool | None:
    """Who cannot write through this array may through another one, so it is its memory that counts."""
    if is_a(type(value), np.memmap) and plain_attribute(value, "mode") == "c":
        return None  # what is written stays in the process that writes it
    return _shared_base(np.ndarray.base.__get__(value))


def _shared_view(value: memoryview) -> bool | None:
    return _shared_base(value.obj)


def _shared_base(base: Any) -> bool | None:
    check = _recognise(type(base))
    return None if check is None else check(base)
