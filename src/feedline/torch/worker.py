"""A worker in torch's eyes: its generator, its threads, its `get_worker_info()`.

Takes: who the worker is. Promises: `torch.utils.data.get_worker_info()` answers in a worker, process or thread, as
under torch's loader, and that its `num_workers` was looked at is noticed (a stream that does shards itself); a process
has one intra-op thread. When the last worker thread has ended, torch's functions are its own again.
Not its job: threads that a dataset starts in a worker thread, which are nobody's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import _utils

from feedline.machine import worker_info
from feedline.torch.collation import collate_as_torch_does, collate_by_thread, collate_without_shared_files

_Stock: Any = _utils.worker.WorkerInfo
_changing = threading.Lock()
_living = 0
"""Worker threads that torch's functions look for."""
_stock_code: types.CodeType | None = None
"""torch's own, while ours is in its place."""


class _AskedWorkerInfo(_Stock):  # type: ignore[misc]
    """torch's own answer; looking at how many there are tells the stream reader that the dataset shards itself."""

    def __getattribute__(self, name: str) -> Any:
        if name in worker_info.TELLING:
            worker_info.note_counting()
        elif name == "id":
            worker_info.note_naming()
        return super().__getattribute__(name)

    def __repr__(self) -> str:  # printing it is no looking
        names = (field.name for field in dataclasses.fields(self))
        return f"WorkerInfo({', '.join(f'{name}={object.__getattribute__(self, name)!r}' for name in names)})"


def enter_worker(info: worker_info.WorkerInfo) -> None:
    """Once in each new worker process."""
    torch.set_num_threads(1)
    torch.default_generator.manual_seed(info.seed)
    _utils.worker._worker_info = _answer(info)
    collate_without_shared_files()


def enter_thread(info: worker_info.WorkerInfo) -> None:
    """Once in each new worker thread.

    torch keeps its answer in a global, which all threads see. Its function is what user code holds, imported by name
    long before, so it is the function itself that looks which thread calls it, as long as there are worker threads.
    """
    global _living
    with _changing:  # no thread continues before everything is changed, whichever thread changes it
        _living += 1
        if _living == 1:
            _look_by_thread()


def leave_thread() -> None:
    """Once in each worker thread that ends."""
    global _living
    with _changing:
        _living = max(0, _living - 1)  # a thread that has forked leaves in the child, too
        if _living == 0:
            _look_as_torch_does()


def _look_by_thread() -> None:
    global _stock_code
    function: Any = _utils.worker.get_worker_info
    if not _is_as_known(function):  # then torch knows of no worker here, and a stream is read as one that does not ask
        return
    collate_by_thread()
    _stock_code, function.__code__ = function.__code__, _asked.__code__


def _look_as_torch_does() -> None:
    global _stock_code
    if _stock_code is None:
        return
    function: Any = _utils.worker.get_worker_info
    if getattr(function, "__code__", None) is _asked.__code__:  # else somebody else's change is theirs to undo
        function.__code__ = _stock_code
    _stock_code = None
    collate_as_torch_does()


def _is_as_known(function: Any) -> bool:
    """A function that finds its answer in torch's module, so that our code finds it there, too."""
    is_plain = isinstance(function, types.FunctionType) and function.__closure__ is None
    return is_plain and function.__globals__ is vars(_utils.worker) and hasattr(_utils.worker, "_worker_info")


def _in_forked_child() -> None:
    # Worker threads are not there in the child, nor is one of them that may hold the lock.
    global _changing, _living
    _changing = threading.Lock()
    _living = 0
    _look_as_torch_does()


os.register_at_fork(after_in_child=_in_forked_child)


def _asked() -> Any:  # with the globals of torch's module, which need not have a name more than they had
    from feedline.torch.worker import answer_here

    return answer_here(_worker_info)  # type: ignore[name-defined]  # noqa: F821


def answer_here(of_process: Any) -> Any:
    """What this thread is told, where torch would tell all of them the same."""
    info = worker_info.of_this_thread()
    return of_process if info is None else _answer(info)


@contextlib.contextmanager
def acting(info: worker_info.WorkerInfo) -> Iterator[None]:
    """While this lasts, torch is told that this is that worker."""
    before, _utils.worker._worker_info = _utils.worker._worker_info, _answer(info)
    try:
        yield
    finally:
        _utils.worker._worker_info = before


def _answer(info: worker_info.WorkerInfo) -> Any:
    return _AskedWorkerInfo(id=info.id, num_workers=worker_info.count_of(info), seed=info.seed, dataset=info.dataset)
