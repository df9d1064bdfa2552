"""NumPy's global generator, saved and put back by copying its memory.

Takes: nothing. Gives: `save` and `restore`, for `np.random`'s functions; `glimpse`, to see whether they have drawn.
Promises: what `np.random.get_state` and `set_state` promise, to the last bit, also for a normal number that is drawn
and still to be given. Those take 40 µs each, because they move 624 words one by one; this takes 3 (a third of a small
batch without workers went into it: benchmarks/peers, workload "text"). Where the memory does not look as it is known
to, or the functions have been replaced (ambient does so in worker threads), those functions do it.
Not its job: when to save, and seeding (ambient).
"""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.random import mtrand

Words = npt.NDArray[np.uint32]

_SHARED = mtrand._rand
"""Whose methods `np.random`'s functions are."""
_WORDS = 625
"""The generator's 624, and the place among them."""


class Kept(NamedTuple):
    """A generator with no normal number to come: what was in its memory."""

    generator: Any
    words: Words


class Told(NamedTuple):
    """Any other generator, and what NumPy says of it."""

    generator: Any
    state: Any


def save(by: Callable[..., Any] | None = None) -> Any:
    """The state of `np.random`'s functions. It is as it was when this returns.

    `by` is what `np.random.get_state` comes to in this thread, if it is not that.

    >>> kept = save()
    >>> drawn = np.random.rand()
    >>> restore(kept)
    >>> np.random.rand() == drawn
    True
    """
    by = by or np.random.get_state
    if getattr(by, "__self__", None) is not _SHARED:
        return by(legacy=False)
    generator = mtrand.get_bit_generator()
    memory = _memory(generator)
    if memory is None:
        return Told(generator, np.random.get_state(legacy=False))
    words = memory.copy()
    try:
        pending = _take_normal(memory)
    finally:
        memory[:] = words
    if pending is None:
        return Kept(generator, words)
    # Rare: one of a pair of normal numbers has been asked for. Only NumPy itself can put the other back.
    state = ("MT19937", words[:-1], int(words[-1]), 1, pending)
    np.random.set_state(state)
    return Told(generator, state)


def restore(state: Any) -> None:
    """Go on from a state that was saved."""
    if not isinstance(state, (Kept, Told)):
        np.random.set_state(state)
        return
    if mtrand.get_bit_generator() is not state.generator:
        mtrand.set_bit_generator(state.generator)
    if isinstance(state, Told):
        np.random.set_state(state.state)
        return
    memory = _memory(state.generator)
    assert memory is not None
    _take_normal(memory)
    memory[:] = state.words


def glimpse() -> bytes:
    """Something that is another after each draw, whoever draws and by which function. Takes 1 µs.

    >>> before = glimpse()
    >>> before == glimpse(), before == (np.random.rand(), glimpse())[1]
    (True, False)
    """
    memory = _memory(mtrand.get_bit_generator())
    return pickle.dumps(_SHARED.get_state(legacy=False)) if memory is None else memory.tobytes()


def _take_normal(memory: Words) -> float | None:
    """The normal number that was still to come, if there was one; none is afterwards. Moves the generator on."""
    place = memory[-1]
    normal: float = _SHARED.standard_normal()
    if memory[-1] == place:
        return normal  # nothing new was drawn for it
    _SHARED.standard_normal()
    return None


_known: tuple[Any, Words | None] = (None, None)


def _memory(generator: Any) -> Words | None:
    """The generator's words where they lie; None if they cannot be found there."""
    global _known
    known, memory = _known
    if known is not generator:
        memory = _found(generator)
        _known = (generator, memory)  # at once: another thread may ask for another one
    return memory


def _found(generator: Any) -> Words | None:
    if type(generator) is not np.random.MT19937:
        return None
    block = (ctypes.c_uint32 * _WORDS).from_address(generator.ctypes.state_address)  # NumPy's own door for C code
    memory: Words = np.ndarray(_WORDS, np.uint32, memoryview(block))
    state = generator.state["state"]
    agrees = memory[-1] == state["pos"] and np.array_equal(memory[:-1], state["key"])
    return memory if agrees else None
