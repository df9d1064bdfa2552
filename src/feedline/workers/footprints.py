"""What reading samples leaves behind in a dataset, which threads would share.

Takes: a job, before and after samples were read. Gives: what tells against sharing it: an attribute that reading has
set, a function of a global generator that was fetched by name.
Promises: looks without running the dataset's code (supervise.walking); an attribute that has another value than before
counts, whatever for: nobody can tell from outside whether two threads may set it at once. What is `threading.local`
does not count, and neither do feedline's own datasets, which are made for threads.
Not its job: what is written into an array in place, which cannot be seen; what a dataset held from the start (carried).
"""

from __future__ import annotations

import _thread
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from feedline.supervise.walking import is_a, module_of, own_attributes, walk
from feedline.workers.body import Job

Footprint = dict[str, dict[str, Any]]
"""Attributes by name, of objects by path. They are kept alive meanwhile, so that none is taken for another."""

_MISSING = object()
_METHODS = (types.MethodType, types.BuiltinMethodType)


def footprint(job: Job) -> Footprint:
    """How it is now."""
    found = walk(job.dataset, "dataset", _recognise, through=True)
    found += walk(job.collate_fn, "collate_fn", _recognise, through=True)
    state = {each.path: each.what for each in found}
    for module in modules_of(job):
        state[module.__name__] = {
            name: value
            for name, value in vars(module).items()
            if not name.startswith("__") and type(value) is not types.ModuleType
        }
    return state


def changed(before: Footprint, after: Footprint) -> str:
    """What has another value than before, by its path; empty if nothing has.

    >>> changed({"dataset": {"file": None}}, {"dataset": {"file": 3}})
    'dataset.file'
    """
    for path, attributes in after.items():
        old = before.get(path)
        for name, value in attributes.items() if old is not None else ():
            if old is not None and old.get(name, _MISSING) is not value:
                return f"{path}.{name}"
    return ""


def fetched_by_name(job: Job) -> str:
    """A function of a global generator that a module of the dataset's has taken out of its module; or nothing.

    In worker threads the modules' functions look which thread calls them. One that was fetched before
    (`from random import random`) does not.
    """
    hidden = (random._inst, np.random.mtrand._rand)
    for module in modules_of(job):
        for name, value in list(vars(module).items()):
            if type(value) in _METHODS and any(value.__self__ is each for each in hidden):
                return f"{module.__name__}.{name}"
    return ""


def modules_of(job: Job) -> list[types.ModuleType]:
    """Those that the classes (and functions) of the dataset and of collate_fn are written in, Python's own left out."""
    names: dict[str, None] = {}

    def note(kind: type) -> Callable[[Any], None] | None:
        names[module_of(kind)] = None
        return note_function if kind is types.FunctionType else None

    def note_function(function: Any) -> None:
        names[str(function.__module__)] = None

    for root in (job.dataset, job.collate_fn):
        walk(root, "", note)
    found = [sys.modules.get(name) for name in names if name.partition(".")[0] not in _NOT_THE_USERS]
    return [module for module in found if type(module) is types.ModuleType]


_NOT_THE_USERS = frozenset({"", "feedline", "numpy", "torch", *sys.stdlib_module_names})


def _recognise(kind: type) -> Callable[[Any], dict[str, Any] | None] | None:
    if is_a(kind, _thread._local, type) or module_of(kind).partition(".")[0] in _NOT_THE_USERS:
        return None
    return _attributes


def _attributes(value: Any) -> dict[str, Any] | None:
    return dict(own_attributes(value))
