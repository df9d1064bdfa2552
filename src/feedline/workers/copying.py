"""Copies of a dataset within one process, for stream parts and threads. (In processes each would have its own.)

Takes: a dataset. Gives: a deep copy that shares only certain objects with it; a shallow copy if that is impossible.
Promises: a dataset that changes when it is first read (a Hugging Face dataset fills a cache of file systems) is copied
too.
Not its job: deciding who needs a copy (stream_parts, threads), saying that none can be made (carried).
"""

from __future__ import annotations

import _io
import _socket
import _thread
import contextlib
import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from feedline.supervise.walking import Recognise, is_a, module_of, names_of, walk


def set_apart(dataset: Any) -> Any:
    """A copy as independent as in another process, if possible: the dataset may keep its position anywhere in it.

    Tensors in shared memory (which may tell workers the epoch, for example) stay shared.
    """
    found = _deep(dataset, _in_shared_memory)
    return copy.copy(dataset) if found is None else found


def can_be_set_apart(dataset: Any) -> bool:
    """Can `set_apart` make more than a shallow copy?"""
    return _deep(dataset, _in_shared_memory) is not None


def with_own_generators(dataset: Any) -> Any:
    """A copy with its own generators and positions. Arrays, tensors (which may tell a dataset its epoch), locks, open
    files and connections stay shared. If that copy cannot be made, a shallow copy shares everything."""
    found = _deep(dataset, _open_or_large)
    return copy.copy(dataset) if found is None else found


def _deep(dataset: Any, sharing: Recognise[Any]) -> Any:
    """A deep copy that shares what `sharing` recognises; None if it cannot be made."""
    for _ in range(3):
        with contextlib.suppress(Exception):  # a lock, a connection
            shared = {id(found.what): found.what for found in walk(dataset, "dataset", sharing)}
            return copy.deepcopy(dataset, shared)
    return None


def _in_shared_memory(kind: type) -> Callable[[Any], Any] | None:
    return (lambda tensor: tensor if tensor.is_shared() else None) if ("torch", "Tensor") in names_of(kind) else None


def _open_or_large(kind: type) -> Callable[[Any], Any] | None:
    in_module = module_of(kind).partition(".")[0]
    plain = is_a(kind, np.ndarray, _io._IOBase, _socket.socket, _thread.LockType, _thread.RLock)
    known = plain or in_module in ("multiprocessing", "sqlite3") or ("torch", "Tensor") in names_of(kind)
    return (lambda found: found) if known else None
