"""A worker in torch's eyes: its generator, its threads, its `get_worker_info()`.

Takes: who the worker is. Promises: `torch.utils.data.get_worker_info()` answers in a worker, process or thread, as
under torch's loader, and that its `num_workers` was looked at is noticed (a stream that does shards itself); a process
has one intra-op thread.
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
from feedline.torch.collation import collate_by_thread, collate_without_shared_files

_Stock: Any = _utils.worker.WorkerInfo
_changing = threading.Lock()


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
    long before, so it is the function itself that from now on looks which thread calls it.
    """
    function: Any = _utils.worker.get_worker_info
    with _changing:  # nobody goes on to read before all of it is done, whoever does it
        if isinstance(function, types.FunctionType) and not hasattr(_utils.worker, "_feedline_answer"):
            collate_by_thread()
            _utils.worker._feedline_answer = _answer_here  # type: ignore[attr-defined]
            function.__code__ = _asked.__code__


def _in_forked_child() -> None:
    global _changing
    _changing = threading.Lock()  # it may be held by a thread that the child does not have


os.register_at_fork(after_in_child=_in_forked_child)


def _asked() -> Any:  # with the globals of torch's module
    return _feedline_answer(_worker_info)  # type: ignore[name-defined]  # noqa: F821


def _answer_here(of_process: Any) -> Any:
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
