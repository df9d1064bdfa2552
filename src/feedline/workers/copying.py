"""Copies of a dataset within one process, for parts and threads that would each have their own in processes.

Takes: a dataset. Gives: a copy that shares with it only what is named; or, where there is none, a shallow one.
Promises: a dataset that changes when it is looked at for the first time (Hugging Face's file systems come into a cache
that it holds) is copied all the same.
Not its job: who needs one (parts, threads), telling that there is none (carried).
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
    """A copy as far apart as those of different processes, if it can be had: a place may be kept anywhere in it.

    Tensors in memory that processes share (by which they are told the epoch, say) are shared here, too.
    """
    found = _deep(dataset, _in_shared_memory)
    return copy.copy(dataset) if found is None else found


def can_be_set_apart(dataset: Any) -> bool:
    """Is such a copy more than a shallow one?"""
    return _deep(dataset, _in_shared_memory) is not None


def with_own_generators(dataset: Any) -> Any:
    """A copy whose generators and places are its own. Arrays, tensors (by which a dataset may be told its epoch), locks
    and whatever is open stay shared; if it cannot be copied otherwise, all of it does."""
    found = _deep(dataset, _open_or_large)
    return copy.copy(dataset) if found is None else found


def _deep(dataset: Any, sharing: Recognise[Any]) -> Any:
    """None if there is none."""
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
