"""What a dataset is, as a short text: the same for the same data and the same code, in any process.

Takes: a dataset. Gives: `identity_of`, a digest of its attributes, its fingerprint, and the code of its classes and
functions.
Promises: nothing of the dataset is called but what pickling calls. Where it cannot be told what something is, that is
an error that names it, never a guess. Files of a FilesDataset, named by a `Path` or mapped by NumPy count with their
size and date.
Not its job: files that only texts name, and what code reads from elsewhere: a `fingerprint` of the dataset says that.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from functools import cached_property, partial, partialmethod
from hashlib import blake2b
from pathlib import Path
from types import (
    BuiltinFunctionType,
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

_PLAIN = (int, float, complex, bool, str, bytes, type(None))
_DEEPEST = 50
_MANY = 100
_SHOWN = {int, str, float, bool}
_BY_SLOTS = (GetSetDescriptorType, MemberDescriptorType)
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
        """What code and classes name. What cannot be pickled there counts with its type: it is seldom data."""
        for name, value, path in self._named:  # which grows meanwhile
            self._add(name)
            if isinstance(value, _DRAWING):
                self._add(type(value).__qualname__)
            else:
                with suppress(OptionTypeError):
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
        elif kind in (set, frozenset):
            self._add(*sorted(identity_of(each) for each in thing))
        elif isinstance(thing, np.ndarray | np.generic):
            self._array(np.asarray(thing), thing, path)
        elif isinstance(thing, Path):
            self._file(thing)
        elif (data := loaded_torch.bytes_of(thing)) is not None:
            self._add(str(thing.dtype), tuple(thing.shape), data)
        else:
            self._object(thing, path, depth)

    def _each(self, items: Any, count: int, path: str, depth: int) -> None:
        self._add(count)
        for name, value in items:
            self.at(name, path, depth + 1)
            self.at(value, f"{path}[{name!r:.40}]", depth + 1)

    def _array(self, array: Any, given: Any, path: str) -> None:
        self._add(array.dtype.str if not array.dtype.names else array.dtype.descr, array.shape)
        if isinstance(given, np.memmap) and given.filename is not None:
            self._file(Path(given.filename))
            self._add(given.offset, _begin(given) - _begin(_whole(given)), given.strides)
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
        elif isinstance(thing, partial):
            self.at([thing.func, thing.args, thing.keywords], path, depth + 1)
        elif isinstance(thing, BuiltinFunctionType | ModuleType):
            self._library(getattr(thing, "__module__", None) or thing.__name__, thing.__name__)
        elif isinstance(thing, property):
            self.at([thing.fget, thing.fset], path, depth + 1)
        elif isinstance(thing, partialmethod):
            self.at([thing.func, thing.args, thing.keywords], path, depth + 1)
        elif isinstance(thing, cached_property):
            self.at(thing.func, path, depth + 1)
        elif isinstance(thing, staticmethod | classmethod):
            self.at(thing.__func__, path, depth + 1)
        elif isinstance(thing, type):
            self._class(thing, path, depth)
        else:
            self._instance(thing, path, depth)

    def _instance(self, thing: Any, path: str, depth: int) -> None:
        self._class(type(thing), path, depth)
        if isinstance(said := ask(thing, "fingerprint"), str):
            self._add("fingerprint", said)
        if callable(files := ask(thing, "local_files")) and type(thing).__module__.startswith("feedline."):
            for file in files():
                self._file(Path(file))
        if isinstance(thing, Located) and isinstance(thing.place, Folder):
            self._file(Path(thing.url))
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception as error:
            raise _untold(path, f"{type(thing).__name__} cannot be pickled: {error}") from error
        if isinstance(reduced, str):
            self._add(reduced)
            self.at(ask(thing, "__wrapped__"), path, depth + 1)  # functools.cache
            return
        make, given, state, items, pairs = (*reduced, None, None, None)[:5]
        self._add(getattr(make, "__qualname__", repr(type(make))))
        self.at([each for each in given if each is not type(thing)], path, depth + 1)
        if isinstance(state, dict):
            for name in sorted(state, key=str):
                self._add(name)
                self.at(state[name], f"{path}.{name}", depth + 1)
        else:
            self.at(state, path, depth + 1)
        for many in (items, pairs):
            self.at(None if many is None else list(many), path, depth + 1)

    def _class(self, kind: type, path: str, depth: int) -> None:
        for owner in kind.__mro__:
            if not self._library(owner.__module__, owner.__qualname__):
                for name, value in sorted(vars(owner).items()):
                    is_special = name.startswith("__") and name.endswith("__")
                    if isinstance(value, FunctionType):
                        self._add(name)
                        self.at(value, f"{path}.{name}", depth + 1)
                    elif not isinstance(value, _BY_SLOTS) and (not is_special or _is_code(value)):
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

    def _library(self, module: str | None, name: str) -> bool:
        """Is it of an installed library? Then its name and the library's version say what it does."""
        package = (module or "").partition(".")[0]
        known = version_of(package)
        if known is None:
            return False
        self._add(module, name, known)
        return True


def _is_code(value: Any) -> bool:
    """Is it a method, though no function? A special method may be cached, or partial."""
    return isinstance(value, staticmethod | classmethod | partialmethod) or ask(value, "__wrapped__") is not None


def _whole(mapped: Any) -> Any:
    """The array of all that is mapped, of which this one may be a part."""
    while isinstance(mapped.base, np.ndarray):
        mapped = mapped.base
    return mapped


def _begin(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _untold(path: str, why: str) -> OptionTypeError:
    return OptionTypeError(
        f"it cannot be told whether two datasets are the same, because of {path}: {why}. Pass key='…', a text that you "
        "change whenever the samples change"
    )
