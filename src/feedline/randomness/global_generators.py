"""The global generators (`random`, `numpy.random`, torch's default): how each is seeded, saved and restored.

Takes: a 64-bit number per task (rng.task_seed); Python's and NumPy's get its lower half. Gives: `GLOBAL_SOURCES`, one
source for each, and `borrow_all`, which does for all three at once what they do one by one.
Promises: what is drawn after seeding depends on the number alone; after restoring, the user's own random numbers
continue exactly as if nothing had been drawn, including the stored second value of a pair of normal draws. Ctrl-C may
come at any moment: the state to restore is saved before anything changes.
Not its job: when they are seeded and restored (task_generators), deriving the number (rng), where generators keep their
words (twister), worker threads (redirection), generators that a dataset holds.

States are copied directly in memory: `random.getstate` and `setstate` take 15 µs together and NumPy's 80, because they
move 624 words one by one, while a small batch without workers takes 20 (benchmarks/peers, workload "text"). If the
memory layout is not the known one, or the modules' functions have been replaced, the modules' functions are called.
"""

from __future__ import annotations

import contextlib
import pickle
import random
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.random import mtrand

from feedline.machine import loaded_torch
from feedline.randomness.redirection import is_redirected, reached, switch
from feedline.randomness.twister import (
    WORDS,
    Words,
    found_in_numpy,
    found_in_python,
    found_in_torch,
    found_stored_normal,
    python_state_of,
    seed_python,
)

_PYTHON: Any = random._inst
"""The hidden instance; `random`'s functions are its methods."""
_NUMPY = mtrand._rand
"""The hidden instance; `np.random`'s functions are its methods."""


class GeneratorSource(Protocol):
    """A global generator: how to seed it, and how to restore it."""

    def seed(self, value: int, words: Words) -> None:
        """Seed it; `words` are those of the value's lower half."""

    def borrow(self, value: int, words: Words, saved: list[Any]) -> None:
        """Seed it. The state to restore is added to `saved` before anything changes; it is a value, which does not
        change while the generator is used."""

    def restore(self, state: Any) -> None:
        """Restore a saved state."""

    def draw(self) -> Any:
        """A number of at least 63 bits: it shows in which state the generator was."""

    def glimpse(self) -> Any:
        """A value that changes with each draw, whatever function or caller draws."""


class OwnState(tuple[Any, ...]):
    """A state that was copied in memory: a type of its own, because states from others may be tuples, too."""

    __slots__ = ()


class PythonGenerator:
    """The generator of `random`.

    >>> source, words, saved = PythonGenerator(), Words(), []
    >>> random.seed(5)
    >>> source.borrow(7, words, saved); source.restore(saved[0])
    >>> random.random() == random.Random(5).random()
    True
    """

    def seed(self, value: int, words: Words) -> None:
        if _is_of(_PYTHON, random.getstate, "python"):
            seed_python(_PYTHON, _memory, words)
        elif is_redirected(random.getstate):  # this thread's own
            random.setstate(python_state_of(words))
        else:  # somebody has put another generator behind the module's functions
            random.seed(value)

    def borrow(self, value: int, words: Words, saved: list[Any]) -> None:
        if _memory is None or not _is_of(_PYTHON, random.getstate, "python"):
            saved.append(random.getstate())
            self.seed(value, words)
        else:
            saved.append(OwnState((bytes(_memory.bytes), _PYTHON.gauss_next)))
            seed_python(_PYTHON, _memory, words)

    def restore(self, state: Any) -> None:
        if type(state) is OwnState and _memory is not None:
            _memory.bytes[:], _PYTHON.gauss_next = state
        else:
            random.setstate(state)

    def draw(self) -> Any:
        return random.getrandbits(64)

    def glimpse(self) -> Any:
        return _PYTHON.getstate()


_memory = found_in_python(_PYTHON)


def _is_of(instance: Any, function: Any, own: str) -> bool:
    """Is the module's function the hidden instance's, and has this thread no generator of its own behind it?"""
    if switch.holders:
        function = reached(function, own)
    return getattr(function, "__self__", None) is instance


def python_state() -> tuple[bytes, float | None] | None:
    """The memory of `random`'s generator and its stored normal number, if any; None if only `random.getstate` can say
    them here."""
    if _memory is None or switch.holders or not _is_of(_PYTHON, random.getstate, "python"):
        return None
    return bytes(_memory.bytes), _PYTHON.gauss_next


class OtherState(NamedTuple):
    """Any generator but a Mersenne Twister behind NumPy's functions, and its state from NumPy."""

    generator: Any
    state: Any


class NumPyGenerator:
    """The generator of `numpy.random`.

    >>> source, words, saved = NumPyGenerator(), Words(), []
    >>> np.random.seed(5)
    >>> source.borrow(7, words, saved); source.restore(saved[0])
    >>> float(np.random.rand()) == float(np.random.RandomState(5).rand())
    True
    """

    def seed(self, value: int, words: Words) -> None:
        if not _is_of(_NUMPY, np.random.get_state, "numpy"):
            np.random.seed(value & 0xFFFFFFFF)
            return
        generator = mtrand.get_bit_generator()
        if (memory := _memory_of(generator)) is None or _normal is None:
            mtrand.set_bit_generator(generator)  # this clears a stored normal number
            np.random.seed(value & 0xFFFFFFFF)
        else:
            memory[:], _normal[:] = words.block, NONE_STORED

    def borrow(self, value: int, words: Words, saved: list[Any]) -> None:
        if not _is_of(_NUMPY, np.random.get_state, "numpy"):
            saved.append(np.random.get_state(legacy=False))
            self.seed(value, words)
            return
        generator = mtrand.get_bit_generator()
        if (memory := _memory_of(generator)) is None or _normal is None:
            saved.append(OtherState(generator, np.random.get_state(legacy=False)))
            self.seed(value, words)
            return
        saved.append(OwnState((generator, bytes(memory), bytes(_normal))))
        memory[:], _normal[:] = words.block, NONE_STORED

    def restore(self, state: Any) -> None:
        if type(state) is OwnState:
            generator, words, normal = state
            if mtrand.get_bit_generator() is not generator:
                mtrand.set_bit_generator(generator)
            memory = _memory_of(generator)
            assert memory is not None
            assert _normal is not None
            memory[:], _normal[:] = words, normal
        elif type(state) is OtherState:
            mtrand.set_bit_generator(state.generator)
            np.random.set_state(state.state)
        else:
            np.random.set_state(state)

    def draw(self) -> Any:
        return np.random.bytes(8)

    def glimpse(self) -> Any:
        memory = _memory_of(mtrand.get_bit_generator())
        return pickle.dumps(_NUMPY.get_state(legacy=False)) if memory is None else bytes(memory)


_normal = found_stored_normal(_NUMPY)
NONE_STORED = bytes(0 if _normal is None else len(_normal))
_known: tuple[Any, memoryview | None] = (None, None)


def _memory_of(generator: Any) -> memoryview | None:
    """The generator's memory; None if it is not found."""
    global _known
    known, memory = _known
    if known is not generator:
        memory = found_in_numpy(generator)
        _known = (generator, memory)  # one store: another thread may ask for another generator
    return memory


class TorchGenerator:
    """torch's default generator, if this process has loaded torch (we never import it). So a dataset of the core's
    loader that draws from `torch.rand` is reproducible too. Worker threads share this generator."""

    def __init__(self) -> None:
        self.made: tuple[Any, Any, Any] | None = None
        """A state of torch's generator to be filled, if one has been seeded before."""

        self._found: tuple[Any, memoryview | None] = (None, None)
        """A generator, and where it keeps its state."""
        self._put: tuple[Any, Any, bytes] = (None, None, b"")
        """A generator, the state that was put into it last, and what its memory held then."""

    def state_of(self, generator: Any) -> Any:
        """Its state. If nobody has drawn since the last was put back, that need not be asked for: reading the memory
        takes an eighth of the time."""
        owner, state, held = self._put
        found, memory = self._found
        if owner is generator and found is generator and memory is not None and memory.tobytes() == held:
            return state
        return generator.get_state()

    def put_back(self, generator: Any, state: Any) -> None:
        """Give it that state, which nobody changes from now on."""
        generator.set_state(state)
        owner, latest, _ = self._put
        if latest is state and owner is generator:
            return  # its memory holds the same as when the state was put there before
        found, memory = self._found
        if found is not generator:
            torch = loaded_torch.module()
            memory = found_in_torch(torch) if torch is not None and generator is torch.default_generator else None
            self._found = generator, memory
        if memory is not None:
            self._put = generator, state, memory.tobytes()

    def seed(self, value: int, words: Words) -> None:
        if (generator := loaded_torch.default_generator()) is not None:
            self._seed(generator, value, words)

    def borrow(self, value: int, words: Words, saved: list[Any]) -> None:
        if (generator := loaded_torch.default_generator()) is None:
            saved.append(None)
        else:
            saved.append((generator, generator.get_state()))
            self._seed(generator, value, words)

    def _seed(self, generator: Any, value: int, words: Words) -> None:
        """The same as `generator.manual_seed`, in half the time: it has the same words as NumPy's."""
        # torch.manual_seed would also seed every device's generator and costs 270 µs. 63 bits, so that
        # initial_seed() fits an int64, as with torch's own seeds.
        value &= 0x7FFFFFFFFFFFFFFF
        if self.made is None:
            self.made = _torch_state()
        state, seed, places = self.made
        if state is None:
            generator.manual_seed(value)
        else:
            seed[0], places[...] = value, words.numpy
            generator.set_state(state)

    def restore(self, state: Any) -> None:
        if state is not None:  # else torch was loaded meanwhile, and stays as the batch left it
            generator, saved = state
            generator.set_state(saved)

    def draw(self) -> Any:
        if (generator := loaded_torch.default_generator()) is None:
            return 0
        torch = loaded_torch.module()
        return torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator).item()

    def glimpse(self) -> Any:
        generator = loaded_torch.default_generator()
        return None if generator is None else generator.get_state().numpy().tobytes()


def _torch_state() -> tuple[Any, Any, Any]:
    """A state of torch's generator, with views on its seed and words; nothing if it does not look as it is known to."""
    with contextlib.suppress(Exception):  # another torch than is known here
        generator, words = loaded_torch.module().Generator(), Words()
        state = generator.manual_seed(5).get_state()
        numbers = state.numpy()[: 8 * (WORDS + 3)].view(np.uint64)
        seed, places = numbers[:1], numbers[3:]
        words.seed(7)
        seed[0], places[...] = 7 << 32 | 7, words.numpy
        if state.equal(generator.manual_seed(7 << 32 | 7).get_state()):
            return state, seed, places
    return _NOT_MADE


words_of_main_thread = Words()
"""For the main thread of this process, which has one task at a time."""
_torchs = TorchGenerator()
GLOBAL_SOURCES: tuple[GeneratorSource, ...] = (PythonGenerator(), NumPyGenerator(), _torchs)
_usual = random.getstate, np.random.get_state
_NOT_MADE: tuple[Any, Any, Any] = (None, None, None)
ALL = object()
"""What `borrow_all` saves before its states, which `restore_all` takes."""


def borrow_all(value: int, saved: list[Any]) -> bool:
    """Borrow all three as their sources do, step by step, but in two thirds of the time: a small batch without workers
    takes 9 µs besides (benchmarks/grid, "texts"). False if one of them is not as usual; then nothing has changed."""
    if switch.holders or random.getstate is not _usual[0] or np.random.get_state is not _usual[1]:
        return False
    generator, (known, memory) = _present(), _known
    if known is not generator or memory is None or _memory is None or _normal is None:
        return False
    torchs, (state, seed, places) = loaded_torch.default_generator(), _torchs.made or _NOT_MADE
    if torchs is not None and state is None:
        return False
    torch_state = None if torchs is None else _torchs.state_of(torchs)
    words, python = words_of_main_thread, _PYTHON
    states = _memory.bytes.tobytes(), python.gauss_next, generator, memory, memory.tobytes(), _normal.tobytes()
    saved += ALL, (*states, torchs, torch_state)
    _memory.numbers[...] = words.python
    python.gauss_next = None
    memory[:] = words.block
    _normal[:] = NONE_STORED
    if torchs is not None:
        seed[0] = value & 0x7FFFFFFFFFFFFFFF
        places[...] = words.numpy
        torchs.set_state(state)
    return True


_present = mtrand.get_bit_generator


def restore_all(states: tuple[Any, ...]) -> None:
    """Restore what `borrow_all` has saved."""
    assert _memory is not None
    assert _normal is not None
    _memory.bytes[:], _PYTHON.gauss_next, generator, memory, words, normal, torchs, torch_state = states
    if _present() is not generator:
        mtrand.set_bit_generator(generator)
    memory[:] = words
    _normal[:] = normal
    if torchs is not None:
        _torchs.put_back(torchs, torch_state)
