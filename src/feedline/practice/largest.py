"""The largest batch size that fits into memory, found by trying.

Takes: a function that does with a batch size what training will do. Gives: `largest_batch`.
Promises: the answer was tried and fitted, and the next possible size did not (or is above the limit). Only running out
of memory counts as not fitting: any other error is raised. What a try allocated is freed before the next.
Not its job: memory that is refused by killing: Linux may end a process that fills the machine's memory instead of
refusing the allocation.
"""

from __future__ import annotations

import errno
import gc
from collections.abc import Callable
from typing import Any

from feedline.errors import OptionError, OptionTypeError, add_note
from feedline.errors.checks import check_whole
from feedline.machine import loaded_torch

# Messages of allocators in a RuntimeError: torch (CUDA, HIP, MPS and the CPU's), cuBLAS, XLA, C++.
_SAYINGS = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "alloc_failed",
    "resource_exhausted",
    "std::bad_alloc",
)


def largest_batch(fn: Callable[[int], Any], start: int = 1, limit: int = 1 << 16, multiple_of: int = 1) -> int:
    """The largest batch size up to `limit` for which `fn(batch_size)` does not run out of memory.

    `fn` should do a whole training step, including backward and optimizer, with the largest samples that exist. Sizes
    are doubled from `start` until one does not fit, then a binary search follows; all are multiples of `multiple_of`.
    Use a little less than the answer: memory fragments in a long run.

    >>> def step(batch_size):
    ...     if batch_size > 100:
    ...         raise MemoryError
    >>> largest_batch(step), largest_batch(step, multiple_of=8), largest_batch(step, limit=50)
    (100, 96, 50)
    """
    if not callable(fn):
        raise OptionTypeError(f"fn must be a function that takes a batch size; got {type(fn).__name__}")
    unit = check_whole("multiple_of", multiple_of, least=1)
    most = check_whole("limit", limit, least=1) // unit
    first = -(-check_whole("start", start, least=1) // unit)
    if most < first:
        raise OptionError(f"limit={limit} is below the first size to try, {first * unit}: raise it or lower start")
    fits, fails = 0, most + 1
    size = first
    while fits + 1 < fails:
        # The smallest size is tried last, and its error is raised to the user.
        if _fits(fn, size * unit, or_raise=size == 1):
            fits = size
        else:
            fails = size
        size = min(2 * fits, most) if fails > most else (fits + fails) // 2
    return fits * unit


def is_out_of_memory(error: BaseException) -> bool:
    """Is it an error of some allocator? Recognised without importing any framework.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    (True, True)
    >>> is_out_of_memory(RuntimeError("shapes do not match"))
    False
    """
    if isinstance(error, MemoryError):  # NumPy's and feedline's own are subclasses
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    return isinstance(error, RuntimeError) and any(saying in str(error).lower() for saying in _SAYINGS)


def _fits(fn: Callable[[int], Any], size: int, or_raise: bool) -> bool:
    try:
        fn(size)
        fitted = True
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        if or_raise:
            add_note(error, f"largest_batch: not even a batch size of {size} fits")
            raise
        fitted = False
    _let_go()  # here, where the error is gone, and with it the frames that hold the memory
    return fitted


def _let_go() -> None:
    gc.collect()
    loaded_torch.give_back_memory()
