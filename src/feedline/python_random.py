"""Python's global generator, seeded, saved and put back without the long way through its module.

Takes: nothing. Gives: `seed`, `save` and `restore`, for the functions of `random`.
Promises: what `random.seed`, `getstate` and `setstate` promise, to the last bit, also for a normal number that is drawn
and still to be given. Those take 15 µs together, because a state is a tuple of 625 integers; this takes 4 (benchmarks/
peers, workload "text": a batch without workers takes 170). Where the memory does not look as it is known to, or the
functions come to something else in this thread (ambient does that in worker threads), those functions do it.
Not its job: when to save (ambient), NumPy's (mersenne).
"""

from __future__ import annotations

import _random
import ctypes
import random
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

_SHARED: Any = random._inst
"""Whose methods `random`'s functions are."""
_WORDS = 625
"""The place among the generator's 624 words, and they."""


class Kept(NamedTuple):
    """What was in its memory, and the normal number to come."""

    words: bytes
    normal: float | None


def seed(value: int, by: Callable[[int], None] | None = None) -> None:
    """As `random.seed` with a whole number; `by` is what that comes to in this thread, if it is not `random.seed`."""
    by = by or random.seed
    if _is_plain(by):
        _random.Random.seed(_SHARED, value)
        _SHARED.gauss_next = None
    else:
        by(value)


def save(by: Callable[[], Any] | None = None) -> Any:
    """The state of `random`'s functions; `by` is what `random.getstate` comes to in this thread.

    >>> kept = save()
    >>> drawn = random.random()
    >>> restore(kept)
    >>> random.random() == drawn
    True
    """
    by = by or random.getstate
    if _memory is None or not _is_plain(by):
        return by()
    return Kept(bytes(_memory), _SHARED.gauss_next)


def restore(state: Any) -> None:
    """Go on from a state that was saved."""
    if isinstance(state, Kept) and _memory is not None:
        _memory[:] = state.words
        _SHARED.gauss_next = state.normal
    else:
        random.setstate(state)


def _is_plain(function: Any) -> bool:
    """Is it the module's own, and goes to the one generator that it hides?"""
    return getattr(function, "__self__", None) is _SHARED


def _found() -> memoryview | None:
    """The generator's words where they lie in CPython's object; None if they are not there."""
    start, size = object.__basicsize__, _WORDS * ctypes.sizeof(ctypes.c_uint32)
    if sys.implementation.name != "cpython" or type(_SHARED) is not random.Random:
        return None
    if _random.Random.__basicsize__ < start + size:
        return None
    block = (ctypes.c_uint32 * _WORDS).from_address(id(_SHARED) + start)
    _, state, _ = random.Random.getstate(_SHARED)
    return memoryview(block).cast("B") if [*block[1:], block[0]] == list(state) else None


_memory = _found()
