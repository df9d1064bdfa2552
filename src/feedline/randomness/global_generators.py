"""The global generators (`random`, `numpy.random`, torch's default): every worker seeds them for each task.

Takes: a 64-bit number per task (rng.task_seed); NumPy gets its lower half. Gives: generators that a worker process
owns, and generators that are borrowed while a batch is made in the user's own thread.
Promises: what a batch draws depends on the number alone; the user's own random numbers continue exactly as if nothing
had been drawn, including the stored second value of a pair of normal draws. Ctrl-C may come at any moment: the state to
restore is saved before anything changes.
Not its job: deriving the number (rng), worker threads (redirection), generators that a dataset holds.

States are copied directly in memory: `random.getstate` and `setstate` take 15 µs together and NumPy's 80, because they
move 624 words one by one, while a small batch without workers takes 20 (benchmarks/peers, workload "text"). If the
memory layout is not the known one, or the modules' functions have been replaced, the modules' functions are called.
"""

from __future__ import annotations

import _random
import ctypes
import pickle
import random
import sys
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.random import mtrand

from feedline.machine import loaded_torch
from feedline.randomness.redirection import SampleGenerators, VisitingGenerators, being_read, reached, switch

_WORDS = 625
"""A Mersenne Twister's 624 words, and its position in them."""
_Block = ctypes.c_uint32 * _WORDS
_PYTHON: Any = random._inst
"""The hidden instance; `random`'s functions are its methods."""
_NUMPY = mtrand._rand
"""The hidden instance; `np.random`'s functions are its methods."""


class GeneratorSource(Protocol):
    """A global generator: how to seed it, and how to restore it."""

    def seed(self, value: int) -> None: ...
    def borrow(self, value: int, saved: list[Any]) -> None:
        """Seed it. The state to restore is added to `saved` before anything changes."""

    def restore(self, state: Any) -> None:
        """Restore a saved state. The state is a value: it does not change while the generator is used."""

    def draw(self) -> Any:
        """A number of at least 63 bits: it shows in which state the generator was."""

    def glimpse(self) -> Any:
        """A value that changes with each draw, whatever function or caller draws."""


class PythonState(NamedTuple):
    """The memory of Python's generator, and its stored normal number, if any."""

    words: bytes
    normal: float | None


class PythonGenerator:
    """The generator of `random`.

    >>> source, saved = PythonGenerator(), []
    >>> random.seed(5)
    >>> source.borrow(7, saved); source.restore(saved[0])
    >>> random.random() == random.Random(5).random()
    True
    """

    def seed(self, value: int) -> None:
        by = reached(random.seed, "python") if switch.holders else random.seed
        owner: Any = getattr(by, "__self__", None)
        if owner is _PYTHON:  # the module's own: skip its checks of the seed's type
            _random.Random.seed(_PYTHON, value)
            _PYTHON.gauss_next = None
        else:
            by(value)

    def borrow(self, value: int, saved: list[Any]) -> None:
        by = reached(random.getstate, "python") if switch.holders else random.getstate
        owner: Any = getattr(by, "__self__", None)
        saved.append(
            by() if owner is not _PYTHON or _memory is None else PythonState(bytes(_memory), _PYTHON.gauss_next)
        )
        self.seed(value)

    def restore(self, state: Any) -> None:
        if type(state) is PythonState and _memory is not None:
            _memory[:] = state.words
            _PYTHON.gauss_next = state.normal
        else:
            (reached(random.setstate, "python") if switch.holders else random.setstate)(state)

    def draw(self) -> Any:
        return random.getrandbits(64)

    def glimpse(self) -> Any:
        return _PYTHON.getstate()


def _found_in_python() -> memoryview | None:
    """The words of Python's generator, inside CPython's object; None if they are not found there."""
    start = object.__basicsize__
    if sys.implementation.name != "cpython" or type(_PYTHON) is not random.Random:
        return None
    if _random.Random.__basicsize__ < start + ctypes.sizeof(_Block):
        return None
    block = _Block.from_address(id(_PYTHON) + start)
    _, state, _ = random.Random.getstate(_PYTHON)
    return memoryview(block).cast("B") if [*block[1:], block[0]] == list(state) else None


_memory = _found_in_python()


class NumPyState(NamedTuple):
    """NumPy's generator, its memory, and its stored normal number, if any."""

    generator: Any
    words: bytes
    normal: float | None


class OtherState(NamedTuple):
    """Any other generator behind NumPy's functions, and its state from NumPy."""

    generator: Any
    state: Any


class NumPyGenerator:
    """The generator of `numpy.random`.

    >>> source, saved = NumPyGenerator(), []
    >>> np.random.seed(5)
    >>> source.borrow(7, saved); source.restore(saved[0])
    >>> float(np.random.rand()) == float(np.random.RandomState(5).rand())
    True
    """

    def seed(self, value: int) -> None:
        by = reached(np.random.get_state, "numpy") if switch.holders else np.random.get_state
        if getattr(by, "__self__", None) is _NUMPY and _words(generator := mtrand.get_bit_generator()) is None:
            mtrand.set_bit_generator(generator)  # seeding clears the stored normal number only for a Mersenne Twister
        np.random.seed(value & 0xFFFFFFFF)

    def borrow(self, value: int, saved: list[Any]) -> None:
        by = reached(np.random.get_state, "numpy") if switch.holders else np.random.get_state
        if getattr(by, "__self__", None) is not _NUMPY:
            saved.append(by(legacy=False))
        elif (words := _words(generator := mtrand.get_bit_generator())) is None:
            saved.append(OtherState(generator, np.random.get_state(legacy=False)))
        else:
            kept = bytes(words)
            saved.append(NumPyState(generator, kept, None))
            # Only drawing one shows whether a normal number was stored.
            normal = _NUMPY.standard_normal()
            if words[-4:] == kept[-4:]:  # it was the stored one: nothing new was drawn
                saved[-1] = NumPyState(generator, kept, normal)
            np.random.seed(value & 0xFFFFFFFF)
            return
        self.seed(value)

    def restore(self, state: Any) -> None:
        if type(state) is NumPyState:
            mtrand.set_bit_generator(state.generator)  # also if it is the same: this clears a stored normal number
            words = _words(state.generator)
            assert words is not None
            words[:] = state.words
            if state.normal is not None:  # rare, and only NumPy itself can restore it
                key = np.frombuffer(state.words, np.uint32)
                np.random.set_state(("MT19937", key[:-1], int(key[-1]), 1, state.normal))
        elif type(state) is OtherState:
            mtrand.set_bit_generator(state.generator)
            np.random.set_state(state.state)
        else:
            np.random.set_state(state)

    def draw(self) -> Any:
        return np.random.bytes(8)

    def glimpse(self) -> Any:
        words = _words(mtrand.get_bit_generator())
        return pickle.dumps(_NUMPY.get_state(legacy=False)) if words is None else bytes(words)


_known: tuple[Any, memoryview | None] = (None, None)


def _words(generator: Any) -> memoryview | None:
    """The generator's words in memory; None if they are not found."""
    global _known
    known, words = _known
    if known is not generator:
        words = _found_in_numpy(generator)
        _known = (generator, words)  # one store: another thread may ask for another generator
    return words


def _found_in_numpy(generator: Any) -> memoryview | None:
    if type(generator) is not np.random.MT19937:
        return None
    block = _Block.from_address(generator.ctypes.state_address)  # NumPy offers this address for C code
    state = generator.state["state"]
    agrees = block[_WORDS - 1] == state["pos"] and np.array_equal(block[: _WORDS - 1], state["key"])
    return memoryview(block).cast("B") if agrees else None


def python_state() -> PythonState | None:
    """The state of `random`'s generator, copied in memory; None if only `random.getstate` can say it here."""
    owner: Any = getattr(random.getstate, "__self__", None)
    if _memory is None or switch.holders or owner is not _PYTHON:
        return None
    return PythonState(bytes(_memory), _PYTHON.gauss_next)


class TorchGenerator:
    """torch's default generator, if this process has loaded torch (we never import it). So a dataset of the core's
    loader that draws from `torch.rand` is reproducible too. Worker threads share this generator."""

    def seed(self, value: int) -> None:
        if (generator := loaded_torch.default_generator()) is not None:
            # torch.manual_seed would also seed every device's generator and costs 270 µs. 63 bits, so that
            # initial_seed() fits an int64, as with torch's own seeds.
            generator.manual_seed(value & 0x7FFFFFFFFFFFFFFF)

    def borrow(self, value: int, saved: list[Any]) -> None:
        if (generator := loaded_torch.default_generator()) is None:
            saved.append(None)
        else:
            saved.append((generator, generator.get_state()))
            generator.manual_seed(value & 0x7FFFFFFFFFFFFFFF)

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


GLOBAL_SOURCES: tuple[GeneratorSource, ...] = (PythonGenerator(), NumPyGenerator(), TorchGenerator())


class TaskGenerators(Protocol):
    """Seeds the generators for each task."""

    def open(self) -> None: ...
    def enter(self, value: int) -> None: ...
    def draw(self) -> Any:
        """A number from each generator. It is another number if anything was drawn since the generators were seeded."""

    def leave(self) -> None: ...
    def close(self) -> None: ...


class OwnedGenerators:
    """For a worker process: the global generators are its own, so they are seeded and not restored."""

    def __init__(self, sources: Iterable[GeneratorSource] = GLOBAL_SOURCES) -> None:
        self._sources = tuple(sources)

    def open(self) -> None:
        pass

    def enter(self, value: int) -> None:
        for source in self._sources:
            source.seed(value)

    def draw(self) -> Any:
        return [source.draw() for source in self._sources]

    def leave(self) -> None:
        pass

    def close(self) -> None:
        pass


class BorrowedGenerators:
    """For loading in the user's own loop: the user's random numbers continue as if nothing had been drawn.

    In the main thread the global generators are borrowed. Any other thread gets its own generators during a task
    (VisitingGenerators): borrowing would change the draws of the main thread and of other loops.
    """

    def __init__(self, sources: Iterable[GeneratorSource] = GLOBAL_SOURCES) -> None:
        self._sources = tuple(sources)
        self._saved: list[Any] | None = None
        self._visiting: VisitingGenerators | None = None
        self._visits = False
        self._outer: SampleGenerators | None = None

    def open(self) -> None:
        pass

    def enter(self, value: int) -> None:
        outer = being_read.get()
        if outer is not None:  # this loader is read inside a sample of another loader
            self._outer = outer  # kept if the task is entered again, to be read in another way
            being_read.set(None)
        if threading.current_thread() is not threading.main_thread():
            self._visit(value)
        elif self._saved is None:
            self._visits, self._saved = False, []
            for source in self._sources:
                source.borrow(value, self._saved)
        else:
            for source in self._sources:
                source.seed(value)

    def _visit(self, value: int) -> None:
        if self._visiting is None:
            self._visiting = VisitingGenerators()
            self._visiting.open()
        self._visits = True
        self._visiting.enter(value)

    def draw(self) -> Any:
        if self._visits and self._visiting is not None:
            return self._visiting.draw()
        return [source.draw() for source in self._sources]

    def leave(self) -> None:
        """Put all back; once more, if Ctrl-C has come meanwhile."""
        saved = self._saved
        if saved is not None:
            for source, state in zip(self._sources, saved, strict=False):  # Ctrl-C may have come before all were saved
                source.restore(state)
            self._saved = None
        elif self._visits and self._visiting is not None:
            self._visiting.leave()
        if self._outer is not None:
            being_read.set(self._outer)
            self._outer = None

    def close(self) -> None:
        if self._visiting is not None:  # it stays: another thread may be in the middle of a task, and is to leave it
            self._visiting.close()
