"""Finds what must not be carried into workers inside a dataset: open files, connections, held locks, threads.

Takes: a job and how its workers are started. Gives: warnings, each with an attribute path, the problem and a remedy.
Promises: it runs no code of the dataset (walking), and looks before anything is forked. It does not warn about harmless
objects: closed files, the standard streams, mapped arrays, locks that are not held.
Not its job: what cannot be sent at all (shipping); random generators in worker processes (held_generators); locks that
cannot be reached through attributes.
"""

from __future__ import annotations

import _io
import _socket
import _thread
import mmap
import multiprocessing
import os
import stat
import sys
import threading
import types
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np

from feedline.resume.stateful import is_stateful
from feedline.supervise.walking import Found, class_attribute, is_a, module_of, names_of, plain_attribute, walk
from feedline.workers.copying import can_be_set_apart
from feedline.workers.held_generators import IN_THREADS, SEVERAL, generators, several_read, still_shared
from feedline.workers.job import Job

REMEDY = (
    "Leave it closed here and open it in each worker, on first use or in worker_init_fn; or leave it out in "
    "__getstate__ and use multiprocessing_context='spawn'."
)
FILE = (
    "is an open file that every forked worker would share with this process, including its position: one worker "
    f"would continue reading where another has stopped. {REMEDY}"
)
PIPE = f"is an open pipe that every forked worker would share: what one reads the others do not get. {REMEDY}"
SOCKET = (
    "is an open socket that every forked worker would share: what one reads the others do not get, and their requests "
    f"mix. {REMEDY}"
)
CONNECTION = (
    "is an open database connection, of which every forked worker would have a copy: workers would mix their "
    f"requests on one channel, or lose each other's locks on the file. {REMEDY}"
)
LOCK = (
    "is a lock that is held right now. In a forked worker it stays held, because the thread that holds it is not "
    "there: acquiring it would wait forever. Release it before iterating, or make it in each worker, on first use or "
    "in worker_init_fn; or leave it out in __getstate__ and use multiprocessing_context='spawn'."
)
THREADS = (
    "has running threads, which a forked worker does not get: the worker would wait for them forever. Start it in "
    "each worker, on first use or in worker_init_fn; or leave it out in __getstate__ and use "
    "multiprocessing_context='spawn'."
)
SHARED_STATE = (
    "the IterableDataset {name} has a state_dict(), but it cannot be copied (copy.deepcopy), so the worker threads "
    "share its position: one may continue where another is, and elements are lost or come twice. Make it possible to "
    "copy it (__getstate__ without locks and connections), or use processes"
)
_MAPPING = "maps a file"  # harmless, and a good reason to keep that file open
_HARMLESS = "need not be looked into"

_STREAMS = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")


def warnings_about(job: Job, workers: str, context: str | BaseContext | None) -> Iterator[str]:
    """Warnings before workers are started: one text for each kind of problem."""
    if several_read(job):
        yield from _told(SEVERAL, [found.path for found in generators(job)])
    if not job.num_workers:
        return
    if workers == "thread":
        if job.num_workers > 1 and not several_read(job):
            shared = still_shared(job) if job.stream else [found.path for found in generators(job)]
            yield from _told(IN_THREADS, shared)
            if job.stream and is_stateful(job.dataset) and not can_be_set_apart(job.dataset):
                yield SHARED_STATE.format(name=type(job.dataset).__name__)
        return
    if workers == "process" and _start_method(context) == "fork":
        for what, paths in hazards(job.dataset):
            yield from _told(what, paths)


def hazards(dataset: Any) -> Iterator[tuple[str, list[str]]]:
    """What does not survive a fork: the problem, and the paths of the attributes."""
    found = walk(dataset, "dataset", _recognise)
    mapped = {each.holder for each in found if each.what is _MAPPING}
    for what in (FILE, PIPE, SOCKET, CONNECTION, LOCK, THREADS):
        paths = [each.path for each in found if each.what is what and not _only_mapped(each, mapped)]
        if paths:
            yield what, paths


def _harmless(value: Any) -> str:
    return _HARMLESS


def _only_mapped(each: Found[str], mapped: set[str]) -> bool:
    return each.what is FILE and each.holder in mapped


def _told(what: str, paths: list[str]) -> Iterator[str]:
    if paths:
        others = f" (and {len(paths) - 1} more like it)" if len(paths) > 1 else ""
        yield f"{paths[0]}{others} {what}"


def _start_method(context: str | BaseContext | None) -> str:
    chosen: Any = context if isinstance(context, BaseContext) else multiprocessing.get_context(context)
    return str(chosen.get_start_method())


def _recognise(kind: type) -> Callable[[Any], str | None] | None:
    if kind in _EXACT:
        return _EXACT[kind]
    for base, check in _BY_CLASS:
        if is_a(kind, base):
            return check
    for name in names_of(kind):
        if name in _BY_NAME:
            return _BY_NAME[name]
    return _database if _has_database_methods(kind) else None


def _lock(lock: Any) -> str | None:
    return LOCK if lock.locked() else None


def _recursive_lock(lock: Any) -> str | None:
    # A lock held by the forking thread still belongs to that thread in the worker. No locked() before Python 3.14.
    return LOCK if not lock._is_owned() and repr(lock).startswith("<locked") else None


def _condition(value: Any) -> str:
    lock = plain_attribute(value, "_lock")
    check = _EXACT.get(type(lock))
    return (check and check(lock)) or _HARMLESS  # its inner locks are held while threads wait: that is normal


def _with_condition(value: Any) -> str:
    return _condition(plain_attribute(value, "_cond"))


def _mapping(value: Any) -> str:
    return _MAPPING


def _socket_of(value: Any) -> str:
    return SOCKET if _socket.socket.fileno(value) >= 0 else _HARMLESS


def _thread_of(value: Any) -> str:
    return THREADS if _runs(value) else _HARMLESS


def _file(value: Any) -> str | None:
    if any(value is getattr(sys, name, None) for name in _STREAMS):
        return _HARMLESS
    while not is_a(type(value), _io.FileIO):
        inner = plain_attribute(value, "buffer")
        value = plain_attribute(value, "raw") if inner is None else inner
        if value is None:
            return None  # in memory, or written in Python: then its underlying file is found by itself
    descriptor = _io.FileIO.fileno(value)  # raises if the file is closed, and then nothing is reported
    if descriptor <= 2 or plain_attribute(value, "mode") == "ab":  # every process appends at the end of the file
        return _HARMLESS
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return FILE
    return PIPE if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else _HARMLESS


def _runs(thread: threading.Thread) -> bool:
    return any(thread is running for running in threading.enumerate())


def _executor(value: Any) -> str:
    if plain_attribute(value, "_executor_manager_thread") is not None:
        return THREADS
    return THREADS if any(_runs(thread) for thread in list(plain_attribute(value, "_threads") or ())) else _HARMLESS


def _pool(value: Any) -> str:
    return THREADS if plain_attribute(value, "_state") == "RUN" else _HARMLESS


def _sqlite(value: Any) -> str:
    try:
        sys.modules["sqlite3"].Connection.total_changes.__get__(value)
    except Exception:  # closed
        return _HARMLESS
    return CONNECTION


def _hdf5(value: Any) -> str:
    identifier = plain_attribute(value, "_id")
    return _HARMLESS if identifier is None or plain_attribute(identifier, "id") == 0 else CONNECTION


def _lmdb(value: Any) -> str:
    path = class_attribute(type(value), "path")
    if type(path) is types.MethodDescriptorType:
        try:
            path.__get__(value)()
        except Exception:  # closed
            return _HARMLESS
    return CONNECTION


def _has_database_methods(kind: type) -> bool:
    """Does the class have the methods of Python's database interface, and is it not the user's own?

    A class of the user's may open its connection on first use, so its attributes are searched instead.
    """
    methods = [class_attribute(kind, name) for name in ("cursor", "commit", "rollback")]
    if None in methods:
        return False
    file = str(getattr(sys.modules.get(module_of(kind)), "__file__", ""))
    return type(methods[0]) is types.MethodDescriptorType or "site-packages" in file or "dist-packages" in file


def _database(value: Any) -> str:
    closed = any(plain_attribute(value, name) for name in ("closed", "_closed", "is_closed"))
    return _HARMLESS if closed else CONNECTION


_EXACT: dict[type, Callable[[Any], str | None]] = {
    _thread.LockType: _lock,
    type(threading.RLock()): _recursive_lock,
}
_BY_CLASS: list[tuple[type, Callable[[Any], str | None]]] = [
    (mmap.mmap, _mapping),
    (np.memmap, _mapping),
    (_io._IOBase, _file),
    (_socket.socket, _socket_of),
    (threading.Thread, _thread_of),
    (threading.Condition, _condition),
    (threading.Event, _with_condition),
    (threading.Semaphore, _with_condition),
    (threading.Barrier, _with_condition),
]
_BY_NAME: dict[tuple[str, str], Callable[[Any], str | None]] = {
    ("concurrent", "ThreadPoolExecutor"): _executor,
    ("concurrent", "ProcessPoolExecutor"): _executor,
    ("multiprocessing", "Pool"): _pool,
    ("sqlite3", "Connection"): _sqlite,
    ("h5py", "File"): _hdf5,
    ("h5py", "Group"): _hdf5,
    ("h5py", "Dataset"): _hdf5,
    ("lmdb", "Environment"): _lmdb,
    ("builtins", "Environment"): _lmdb,  # the name that lmdb's class, written in C, has
}
