"""Mersenne Twisters in memory: where Python's and NumPy's keep their words, and the words of a seed.

Takes: a generator, a 32-bit seed. Gives: views on the generator's memory; `Words`, from which generators are filled.
Promises: a view is given only if the memory holds what the generator itself says; NumPy's words of a seed are those of
`np.random.seed`, and Python's are the same in reverse, which is another place of the twister's one long cycle.
Not its job: which generators are filled when, and put back (global_generators, redirection).

A twister is seeded in 1.2 µs by NumPy, and in 3.5 by `random.seed`; copying the words takes 0.3. A small batch without
workers takes 10 µs besides (benchmarks/grid, "texts").
"""

from __future__ import annotations

import _random
import ctypes
import random
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

WORDS = 624
"""The words of a Mersenne Twister. Its position among them lies before them in Python's and after them in NumPy's."""
_Block = ctypes.c_uint32 * (WORDS + 1)
_U32Array = npt.NDArray[np.uint32]


class Words:
    """The words of one seed at a time. Not shared by threads.

    >>> words = Words()
    >>> words.seed(5)
    >>> words.numpy[:2].tolist() == np.random.RandomState(5).get_state()[1][:2].tolist()
    True
    """

    def __init__(self) -> None:
        self._source = np.random.MT19937(0)
        found = found_in_numpy(self._source)
        # Without a view each seed has its words copied out of NumPy, which takes longer.
        self.block = memoryview(bytearray(4 * (WORDS + 1))) if found is None else found
        """NumPy's words and position, as they lie in its memory."""
        self.numpy: _U32Array = np.frombuffer(self.block, np.uint32)[:WORDS]
        self.python: _U32Array = np.frombuffer(self.block, np.uint32)[::-1]
        """Position and words, as they lie in Python's memory."""

        self.seed: Callable[[int], object] = self._source._legacy_seeding if found is not None else self._copied_out
        """Have the words of this 32-bit seed from now on."""

    def _copied_out(self, value: int) -> None:
        self._source._legacy_seeding(value)
        self.block[:] = np.append(self._source.state["state"]["key"], np.uint32(WORDS)).astype(np.uint32).tobytes()


class PythonMemory(NamedTuple):
    """Where a generator of Python's keeps its position, and after it its words."""

    bytes: memoryview
    numbers: _U32Array


def found_in_python(generator: random.Random) -> PythonMemory | None:
    """The memory of Python's generator, inside CPython's object; None if it is not found there."""
    start = object.__basicsize__
    if sys.implementation.name != "cpython" or type(generator) is not random.Random:
        return None
    if _random.Random.__basicsize__ < start + ctypes.sizeof(_Block):
        return None
    block = _Block.from_address(id(generator) + start)
    _, state, _ = random.Random.getstate(generator)
    if [*block[1:], block[0]] != list(state):
        return None
    memory = memoryview(block).cast("B")
    return PythonMemory(memory, np.frombuffer(memory, np.uint32))


def found_in_numpy(generator: Any) -> memoryview | None:
    """The memory of NumPy's generator; None if it is another kind of generator, or not found."""
    if type(generator) is not np.random.MT19937:
        return None
    block = _Block.from_address(generator.ctypes.state_address)  # NumPy offers this address for C code
    state = generator.state["state"]
    agrees = block[WORDS] == state["pos"] and np.array_equal(block[:WORDS], state["key"])
    return memoryview(block).cast("B") if agrees else None


def found_stored_normal(instance: Any) -> memoryview | None:
    """Where NumPy's `RandomState` stores the second of a pair of normal numbers: whether there is one (4 bytes, and 4
    unused ones), then the number. None if it is not found there.

    It is looked for in an instance of our own. `get_state` says the same, but takes 20 µs.
    """
    if sys.implementation.name != "cpython" or type(instance) is not np.random.RandomState:
        return None
    probe, size = np.random.RandomState(np.random.MT19937(1)), np.random.RandomState.__basicsize__
    memory = memoryview((ctypes.c_uint8 * size).from_address(id(probe))).cast("B")
    words = np.ones(WORDS, np.uint32)
    probe.set_state(("MT19937", words, 5, 1, _STORED))
    place = bytes(memory).find(struct.pack("=iid", 1, 0, _STORED))
    probe.set_state(("MT19937", words, 5, 0, 0.0))
    if place < 0 or bytes(memory[place : place + _NORMAL]) != bytes(_NORMAL):
        return None
    return memoryview((ctypes.c_uint8 * _NORMAL).from_address(id(instance) + place)).cast("B")


def found_in_torch(torch: Any) -> memoryview | None:
    """Where torch's default generator keeps its whole state: seed, position, words, stored normal numbers. Only to be
    read: torch writes there under a lock of its own. None if it is not found there.

    It is looked for in a new generator of our own, which is asked what its state is.
    """
    try:
        probe = torch.Generator().manual_seed(5)
        words = probe.get_state().numpy()[24 : 24 + 8 * WORDS].view(np.uint64).astype(np.uint32)
        place = _place_in(probe._cdata, words.tobytes())
        if place is None or not isinstance(torch.default_generator, torch.Generator):
            return None
        memory = _state_at(probe._cdata + place)
        torch.randn((), dtype=torch.float64, generator=probe)
        stored = bytes(memory[-16:])
        second = torch.randn((), dtype=torch.float64, generator=probe).item()
        if stored[:9] != struct.pack("=d?", second, True) or memory[-8] != 0:
            return None
        return _state_at(torch.default_generator._cdata + place)
    except Exception:  # another torch than is known here
        return None


def _place_in(address: int, words: bytes) -> int | None:
    """How far behind that address those words are, if they are near."""
    for place in range(_BEFORE, _FARTHEST, 4):
        if ctypes.string_at(address + place, 4) == words[:4] and ctypes.string_at(address + place, len(words)) == words:
            return place
    return None


def _state_at(words: int) -> memoryview:
    size = _BEFORE + 4 * WORDS + _AFTER
    return memoryview((ctypes.c_uint8 * size).from_address(words - _BEFORE)).cast("B")


_BEFORE, _AFTER, _FARTHEST = 20, 28, 256
"""Bytes: seed and position before the words; stored normal numbers after them; where the words begin at the latest."""
_STORED, _NORMAL = 0.7071067811865476, struct.calcsize("=iid")


def seed_python(generator: random.Random, memory: PythonMemory | None, words: Words) -> None:
    """Have Python's generator begin with these words."""
    if memory is None:
        generator.setstate(python_state_of(words))
    else:
        memory.numbers[...] = words.python
        generator.gauss_next = None  # type: ignore[attr-defined]


def python_state_of(words: Words) -> Any:
    """For `setstate` of Python's generators."""
    position, *places = words.python.tolist()
    return 3, (*places, position), None
