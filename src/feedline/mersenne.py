"""NumPy's global generator, saved and put back by copying its memory.

Takes: a seed. Gives: `borrow`, `save` and `restore`, for `np.random`'s functions; `glimpse`, to see whether they have
drawn.
Promises: what `np.random.get_state` and `set_state` promise, to the last bit, also for a normal number that is drawn
and still to be given. Those take 40 µs each, because they move 624 words one by one; these take 1 (a third of a small
batch without workers went into it: benchmarks/peers, workload "text"). Where the memory does not look as it is known
to, or the functions have been replaced (ambient does so in worker threads), those functions do it.
Not its job: when to borrow (ambient).
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
    """What was in a generator's memory, and the normal number to come, if there was one."""

    generator: Any
    words: Words
    normal: float | None


class Told(NamedTuple):
    """Any other generator, and what NumPy says of it."""

    generator: Any
    state: Any


def borrow(value: int, saved: list[Any], by: Callable[..., Any] | None = None) -> None:
    """Seed `np.random`'s functions with 32 bits. What to `restore` afterwards is in `saved` before anything changes:
    Ctrl-C may come at any moment.

    `by` is what `np.random.get_state` comes to in this thread, if it is not that.

    >>> np.random.seed(5)
    >>> saved = []
    >>> borrow(7, saved)
    >>> restore(saved[0])
    >>> float(np.random.rand()) == float(np.random.RandomState(5).rand())
    True
    """
    _take(saved, by or np.random.get_state)
    seed(value, by)


def seed(value: int, by: Callable[..., Any] | None = None) -> None:
    """`np.random.seed`, after which no normal number is to come: only of a Mersenne Twister NumPy itself forgets it."""
    if getattr(by or np.random.get_state, "__self__", None) is _SHARED:
        generator = mtrand.get_bit_generator()
        if _memory(generator) is None:
            mtrand.set_bit_generator(generator)
    np.random.seed(value)


def save(by: Callable[..., Any] | None = None) -> Any:
    """The same without seeding: it is as it was when this returns.

    >>> kept = save()
    >>> drawn = np.random.rand()
    >>> restore(kept)
    >>> np.random.rand() == drawn
    True
    """
    saved: list[Any] = []
    try:
        _take(saved, by or np.random.get_state)
    finally:
        if saved and isinstance(saved[0], Kept):
            restore(saved[0])
    return saved[0]


def _take(saved: list[Any], by: Callable[..., Any]) -> None:
    """Note the state. What is `Kept` then moves on: whether a normal number is to come shows only by asking for it."""
    if getattr(by, "__self__", None) is not _SHARED:
        saved.append(by(legacy=False))
        return
    generator = mtrand.get_bit_generator()
    memory = _memory(generator)
    if memory is None:
        saved.append(Told(generator, np.random.get_state(legacy=False)))
        return
    words = memory.copy()
    saved.append(Kept(generator, words, None))
    normal: float = _SHARED.standard_normal()
    if memory[-1] == words[-1]:  # nothing new was drawn for it
        saved[-1] = Kept(generator, words, normal)


def restore(state: Any) -> None:
    """Go on from a state that was saved."""
    if not isinstance(state, (Kept, Told)):
        np.random.set_state(state)
        return
    mtrand.set_bit_generator(state.generator)  # also where it is the same: no normal number is to come afterwards
    if isinstance(state, Told):
        np.random.set_state(state.state)
        return
    memory = _memory(state.generator)
    assert memory is not None
    memory[:] = state.words
    if state.normal is not None:  # rare, and only NumPy itself can put it back
        np.random.set_state(("MT19937", state.words[:-1], int(state.words[-1]), 1, state.normal))


def glimpse() -> bytes:
    """Something that is another after each draw, whoever draws and by which function. Takes 1 µs.

    >>> before = glimpse()
    >>> before == glimpse(), before == (np.random.rand(), glimpse())[1]
    (True, False)
    """
    memory = _memory(mtrand.get_bit_generator())
    return pickle.dumps(_SHARED.get_state(legacy=False)) if memory is None else memory.tobytes()


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
