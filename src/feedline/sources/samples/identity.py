"""What a dataset is, as a short text: the same for the same data and the same code, in any process.

Takes: a dataset. Gives: `identity_of`, a digest of its attributes, its fingerprint, and the code of its classes and
functions.
Promises: nothing of the dataset is called but what pickling calls. Where it cannot be told what something is, that is
an error that names it, never a guess, in a global variable, too. Files of a FilesDataset, named by a `Path` or mapped
by NumPy count with their size and date.
Not its job: what an object consists of (made_of); files that only texts name, and what code reads from elsewhere: a
`fingerprint` of the dataset says that.
"""

from __future__ import annotations

import os
import random
import sys
from abc import ABC
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from feedline.errors import OptionTypeError
from feedline.errors.foreign import ask
from feedline.machine import loaded_torch
from feedline.sources.located import Located
from feedline.sources.places import Folder
from feedline.sources.samples.code_names import files_imported_in, globals_in, names_in, version_of
from feedline.sources.samples.made_of import (
    HOLDS,
    begin_of,
    beside,
    code_file,
    extension_of,
    is_of_files,
    module_of,
    reduced,
    whole,
    wrapped,
)

_PLAIN = (int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented))
_DEEPEST = 50
_MANY = 100
_SHOWN = {int, str, float, bool}
_OF_THE_CLASS = (
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    type(vars(ABC)["_abc_impl"]),
)
_MADE = 1 << 9
"""The flag of classes that are made while a program runs (Py_TPFLAGS_HEAPTYPE)."""
_DRAWING = (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)


def identity_of(dataset: Any) -> str:
    """A digest of the dataset and its code.

    >>> identity_of(["a", "b"]) == identity_of(["a", "b"]), identity_of(["a", "b"]) == identity_of(["a", "c"])
    (True, False)
    """
    looking = _Looking()
    looking.at(dataset, type(dataset).__name__, 0)
    looking.at_named()
    return looking.digest.hexdigest()


class _Looking:
    """Walks through a dataset, in a fixed order."""

    def __init__(self) -> None:
        self.digest = blake2b(digest_size=16)
        self._met: dict[int, int] = {}
        self._alive: list[Any] = []  # an id is unique only while its object exists
        self._named: list[tuple[str, Any, str]] = []
        self._of_modules: set[tuple[int, str]] = set()

    def _add(self, *parts: object) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode(errors="surrogatepass")
            self.digest.update(b"%d:" % len(data) + data)

    def at_named(self) -> None:
        """What code and classes name. A generator there counts with its type: its state is another one in each run."""
        for name, value, path in self._named:  # which grows meanwhile
            self._add(name)
            if isinstance(value, _DRAWING):
                self._add(type(value).__qualname__)
            elif isinstance(value, BuiltinFunctionType | MethodType) and isinstance(value.__self__, _DRAWING):
                self._add(type(value.__self__).__qualname__, value.__name__)
            else:
                self.at(value, path, 0)

    def at(self, thing: Any, path: str, depth: int) -> None:
        kind = type(thing)
        if kind in _PLAIN:
            self._add(kind.__name__, repr(thing) if kind is not bytes else thing)
            return
        if id(thing) in self._met:
            self._add("again", self._met[id(thing)])
            return
        self._met[id(thing)] = len(self._met)
        self._alive.append(thing)
        if depth > _DEEPEST:
            raise _untold(path, "it is nested too deeply")
        self._add(kind.__module__, kind.__qualname__)
        if kind in (tuple, list) and len(thing) > _MANY and {type(each) for each in thing} <= _SHOWN:
            self._add(repr(thing))
        elif kind in (tuple, list):
            self._each(enumerate(thing), len(thing), path, depth)
        elif kind is dict:
            self._each(thing.items(), len(thing), path, depth)
        elif isinstance(thing, set | frozenset):
            self._add(*sorted(identity_of(each) for each in thing))
            self._beside(thing, (set, frozenset), path, depth)
        elif isinstance(thing, np.ndarray):
            self._array(np.asarray(thing), thing, path)
            self._beside(thing, (np.ndarray, np.memmap), path, depth)
        elif isinstance(thing, np.generic):
            self._array(np.asarray(thing), thing, path)
        elif isinstance(thing, Path):
            self._file(thing)
        elif (data := loaded_torch.bytes_of(thing)) is not None:
            self._add(str(thing.dtype), tuple(thing.shape), data)
            self._beside(thing, (), path, depth)
        else:
            self._object(thing, path, depth)

    def _each(self, items: Any, count: int, path: str, depth: int) -> None:
        self._add(count)
        for name, value in items:
            self.at(name, path, depth + 1)
            self.at(value, f"{path}[{name!r:.40}]", depth + 1)

    def _beside(self, thing: Any, plain: tuple[type, ...], path: str, depth: int) -> None:
        """What an object of a subclass has besides the values that have been looked at."""
        if type(thing) not in plain:
            self.at(type(thing), path, depth + 1)
            self.at(beside(thing), path, depth + 1)

    def _array(self, array: Any, given: Any, path: str) -> None:
        self._add(repr(array.dtype), dict(array.dtype.metadata or {}), array.shape)
        if isinstance(given, np.memmap) and given.filename is not None and given.mode != "c":
            self._file(Path(given.filename))
            self._add(given.offset, begin_of(given) - begin_of(whole(given)), given.strides)
        elif array.dtype.hasobject:
            self._each(enumerate(array.ravel().tolist()), array.size, path, 0)
        else:
            self.digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")

    def _file(self, file: Path) -> None:
        self._add(file)
        try:
            about = os.stat(file)
        except OSError:
            return
        self._add(about.st_size if not os.path.isdir(file) else "folder", about.st_mtime_ns)

    def _object(self, thing: Any, path: str, depth: int) -> None:
        if isinstance(thing, FunctionType):
            self._function(thing, path, depth)
        elif isinstance(thing, MethodType):
            self.at(thing.__func__, path, depth + 1)
            self.at(thing.__self__, path, depth + 1)
        elif isinstance(thing, BuiltinFunctionType):
            self._builtin(thing, path, depth)
        elif isinstance(thing, ModuleType):
            self._module(thing, path)
        elif isinstance(thing, type):
            self._class(thing, path, depth)
        elif (parts := wrapped(thing)) is not None:
            self.at(type(thing), path, depth + 1)
            self.at(parts, path, depth + 1)
        elif type(thing) in HOLDS:
            self.at(_held(thing, path), path, depth + 1)
        else:
            self._instance(thing, path, depth)

    def _builtin(self, function: Any, path: str, depth: int) -> None:
        """A function of C; the method of an object is one without a module."""
        self._add(function.__name__)
        if function.__module__ is None:
            self.at(function.__self__, path, depth + 1)
        elif not self._library(function.__module__, function.__name__):
            self._of_c(function.__module__, path)

    def _of_c(self, module: str, path: str) -> None:
        """A user's own module, whose file says what it does."""
        self._add(module)
        if (file := code_file(module)) is None:
            raise _untold(path, f"the module {module} has no file")
        self._file(file)

    def _compiled(self, module: Any) -> None:
        if isinstance(module, str) and (file := extension_of(module)) is not None:
            self._file(file)

    def _module(self, module: ModuleType, path: str) -> None:
        """A module that is held, not named: of a user's own, all that is in its file may be meant."""
        if self._library(module.__name__, module.__name__):
            return
        self._add(module.__name__)
        file = code_file(module.__name__)
        if file is None or sys.modules.get(module.__name__) is not module:
            raise _untold(path, f"the module {module.__name__} has no file")
        with suppress(OSError):
            self._add(file.read_bytes())

    def _instance(self, thing: Any, path: str, depth: int) -> None:
        self.at(type(thing), path, depth + 1)
        if isinstance(said := ask(thing, "fingerprint"), str):
            self._add("fingerprint", said)
        if is_of_files(thing):
            for file in _files_of(thing, path):
                self._file(file)
        if isinstance(thing, Located) and isinstance(thing.place, Folder):
            self._file(Path(thing.url))
        try:
            parts = reduced(thing)
        except Exception as error:
            raise _untold(path, f"{type(thing).__name__} cannot be pickled: {error}") from error
        if isinstance(parts, str):
            self._global(thing, parts, path, depth)
            return
        make, given, state, items, pairs = (*parts, None, None, None)[:5]
        self.at(make, path, depth + 1)
        self.at(list(given), path, depth + 1)
        if isinstance(state, dict):
            for name in sorted(state, key=str):
                self._add(name)
                self.at(state[name], f"{path}.{name}", depth + 1)
        else:
            self.at(state, path, depth + 1)
        for many in (items, pairs):
            self.at(None if many is None else list(many), path, depth + 1)

    def _global(self, thing: Any, name: str, path: str, depth: int) -> None:
        """What is only a name for pickling: a function of `functools.cache`, a ufunc, one of its kind."""
        self._add(name)
        if (inner := ask(thing, "__wrapped__")) is not None:
            self.at(inner, path, depth + 1)
            return
        module = module_of(thing, name)
        if module is None:
            raise _untold(path, f"{type(thing).__name__} cannot be pickled: no module has it as {name}")
        if not self._library(module, name):
            self._add(module)
            self._compiled(module)
            self.at(beside(thing), path, depth + 1)

    def _class(self, kind: type, path: str, depth: int) -> None:
        if type(kind) is not type:
            self.at(type(kind), path, depth + 1)
        for owner in kind.__mro__:
            is_nowheres = owner.__module__ == "builtins" and owner.__flags__ & _MADE  # by `exec` without a __name__
            if is_nowheres or not self._library(owner.__module__, owner.__qualname__):
                self._compiled(owner.__module__)
                for name, value in sorted(vars(owner).items()):
                    is_special = name.startswith("__") and name.endswith("__")
                    if isinstance(value, FunctionType):
                        self._add(name)
                        self.at(value, f"{path}.{name}", depth + 1)
                    elif not isinstance(value, _OF_THE_CLASS) and (not is_special or _is_code(value)):
                        self._named.append((name, value, f"{path}.{name}"))

    def _function(self, function: FunctionType, path: str, depth: int) -> None:
        if self._library(function.__module__, function.__qualname__) and "<" not in function.__qualname__:
            return
        self._code(function.__code__)
        self.at(function.__defaults__, path, depth + 1)
        self.at(function.__kwdefaults__, path, depth + 1)
        for cell in function.__closure__ or ():
            self.at(ask(cell, "cell_contents"), f"{path} (closure)", depth + 1)
        for name, value in sorted(function.__dict__.items()):
            self._named.append((name, value, f"{path}.{name}"))
        self._names(function.__globals__, globals_in(function.__code__), names_in(function.__code__), path)
        package = str(function.__globals__.get("__package__") or "")
        for module, file in sorted(files_imported_in(function.__code__, package).items()):
            with suppress(OSError):
                self._add(module, Path(file).read_bytes())

    def _names(self, where: dict[str, Any], wanted: set[str], inner: set[str], path: str) -> None:
        """Variables of a module; of modules among them, the variables that the code may mean."""
        for name in sorted(wanted & where.keys()):
            value = where[name]
            if not isinstance(value, ModuleType):
                self._named.append((name, value, f"{path}: {name}"))
            elif not self._library(value.__name__, value.__name__):
                new = {each for each in inner if (id(value), each) not in self._of_modules}
                self._of_modules |= {(id(value), each) for each in new}
                self._names(vars(value), new, inner, f"{path}: {name}")

    def _code(self, code: CodeType) -> None:
        self._add(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._add(getattr(code, "co_exceptiontable", b""))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._code(constant)
            elif not isinstance(constant, frozenset):
                self._add(repr(constant))
            else:
                self._add(*sorted(map(repr, constant)))

    def _library(self, module: Any, name: str) -> bool:
        """Is it of an installed library? Then its name and the library's version say what it does."""
        package = module.partition(".")[0] if isinstance(module, str) else ""
        known = version_of(package)
        if known is None:
            return False
        self._add(module, name, known)
        return True


def _is_code(value: Any) -> bool:
    """Is it a method, though no function? A special method may be cached, or partial."""
    return callable(value) or wrapped(value) is not None


def _held(thing: Any, path: str) -> Any:
    try:
        return HOLDS[type(thing)](thing)
    except Exception as error:  # a memoryview that was released
        raise _untold(path, f"what the {type(thing).__name__} holds cannot be read: {error}") from error


def _files_of(dataset: Any, path: str) -> list[Path]:
    try:
        return [Path(each) for each in dataset.local_files()]
    except Exception as error:  # a subclass that has not called its base's __init__, say
        raise _untold(path, f"{type(dataset).__name__}.local_files() fails: {error!r}") from error


def _untold(path: str, why: str) -> OptionTypeError:
    return OptionTypeError(
        f"it cannot be told whether two datasets are the same, because of {path}: {why}. Pass key='…', a text that you "
        "change whenever the samples change"
    )
