"""The global generators (`random`, `numpy.random`, torch's default one) around a task: seeded from it in every worker.

Takes: a 64-bit number per task (rng.task_seed), of which NumPy gets the lower half. Gives: the generators as a worker
process owns them, and as loading in the user's own thread borrows them.
Promises: what a batch draws depends on the number alone; the user's own stream of random numbers goes on as if nothing
had been drawn, to the last bit, also for a normal number that is drawn and still to be given. Ctrl-C may come at any
moment: what is to be put back is noted before anything changes.
Not its job: deriving the number (rng), worker threads (redirection), generators that a dataset holds.

States are copied where they lie in memory: `random.getstate` and `setstate` take 15 µs together and NumPy's 80, because
they move 624 words one by one, and a small batch without workers takes 20 (benchmarks/peers, workload "text"). Where
the memory does not look as it is known to, or the modules' functions have been replaced, those functions do it.
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

from feedline.randomness.redirection import SampleGenerators, VisitingGenerators, being_read, reached, switch

_WORDS = 625
"""A Mersenne Twister's 624 words, and its place among them."""
_Block = ctypes.c_uint32 * _WORDS
_PYTHON: Any = random._inst
"""Whose methods `random`'s functions are."""
_NUMPY = mtrand._rand
"""Whose methods `np.random`'s functions are."""


class GeneratorSource(Protocol):
    """A global generator: how to seed it, and how to put it back."""

    def seed(self, value: int) -> None: ...
    def borrow(self, value: int, saved: list[Any]) -> None:
        """Seed it. What to restore afterwards is added to `saved` before anything changes."""

    def restore(self, state: Any) -> None:
        """Go on from a state that was saved. It is a value: nothing is drawn from it."""

    def draw(self) -> Any:
        """A number of at least 63 bits: it tells where the generator stood."""

    def glimpse(self) -> Any:
        """Something that is another after each draw, whoever draws and by which function."""


class PythonState(NamedTuple):
    """What was in the memory of Python's generator, and the normal number to come, if there was one."""

    words: bytes
    normal: float | None


class PythonGenerator:
    """`random`'s.

    >>> source, saved = PythonGenerator(), []
    >>> random.seed(5)
    >>> source.borrow(7, saved); source.restore(saved[0])
    >>> random.random() == random.Random(5).random()
    True
    """

    def seed(self, value: int) -> None:
        by = reached(random.seed, "python") if switch.holders else random.seed
        owner: Any = getattr(by, "__self__", None)
        if owner is _PYTHON:  # the module's own: past the checks of its many kinds of seeds
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
            random.setstate(state)

    def draw(self) -> Any:
        return random.getrandbits(64)

    def glimpse(self) -> Any:
        return _PYTHON.getstate()


def _found_in_python() -> memoryview | None:
    """The words of Python's generator where they lie in CPython's object; None if they are not there."""
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
    """NumPy's generator, what was in its memory, and the normal number to come, if there was one."""

    generator: Any
    words: bytes
    normal: float | None


class OtherState(NamedTuple):
    """Any other generator behind NumPy's functions, and what NumPy says of it."""

    generator: Any
    state: Any


class NumPyGenerator:
    """`numpy.random`'s.

    >>> source, saved = NumPyGenerator(), []
    >>> np.random.seed(5)
    >>> source.borrow(7, saved); source.restore(saved[0])
    >>> float(np.random.rand()) == float(np.random.RandomState(5).rand())
    True
    """

    def seed(self, value: int) -> None:
        by = reached(np.random.get_state, "numpy") if switch.holders else np.random.get_state
        if getattr(by, "__self__", None) is _NUMPY and _words(generator := mtrand.get_bit_generator()) is None:
            mtrand.set_bit_generator(generator)  # only of a Mersenne Twister does seeding forget a normal number
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
            # Whether a normal number is to come shows only by asking for it.
            normal = _NUMPY.standard_normal()
            if words[-4:] == kept[-4:]:  # nothing new was drawn for it
                saved[-1] = NumPyState(generator, kept, normal)
            np.random.seed(value & 0xFFFFFFFF)
            return
        self.seed(value)

    def restore(self, state: Any) -> None:
        if type(state) is NumPyState:
            mtrand.set_bit_generator(state.generator)  # also if it is the same: no normal number is to come then
            words = _words(state.generator)
            assert words is not None
            words[:] = state.words
            if state.normal is not None:  # rare, and only NumPy itself can put it back
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
    """The generator's words where they lie; None if they cannot be found there."""
    global _known
    known, words = _known
    if known is not generator:
        words = _found_in_numpy(generator)
        _known = (generator, words)  # at once: another thread may ask for another one
    return words


def _found_in_numpy(generator: Any) -> memoryview | None:
    if type(generator) is not np.random.MT19937:
        return None
    block = _Block.from_address(generator.ctypes.state_address)  # NumPy's own door for C code
    state = generator.state["state"]
    agrees = block[_WORDS - 1] == state["pos"] and np.array_equal(block[: _WORDS - 1], state["key"])
    return memoryview(block).cast("B") if agrees else None


class TorchGenerator:
    """torch's default one, in any process that has loaded torch: it is looked for and never imported, so that a dataset
    of the core's loader that draws from `torch.rand` is reproducible, too. Worker threads share it."""

    def seed(self, value: int) -> None:
        if (generator := _torchs()) is not None:
            # torch.manual_seed would seed every device's generator too and costs 270 µs. 63 bits: initial_seed() fits
            # an int64, as torch's do.
            generator.manual_seed(value & 0x7FFFFFFFFFFFFFFF)

    def borrow(self, value: int, saved: list[Any]) -> None:
        if (generator := _torchs()) is None:
            saved.append(None)
        else:
            saved.append((generator, generator.get_state()))
            generator.manual_seed(value & 0x7FFFFFFFFFFFFFFF)

    def restore(self, state: Any) -> None:
        if state is not None:  # else it has been loaded meanwhile, and is as a batch has left it
            generator, saved = state
            generator.set_state(saved)

    def draw(self) -> Any:
        if (generator := _torchs()) is None:
            return 0
        torch = sys.modules["torch"]
        return torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator).item()

    def glimpse(self) -> Any:
        return None if (generator := _torchs()) is None else generator.get_state().numpy().tobytes()


def _torchs() -> Any:
    try:
        return getattr(sys.modules.get("torch"), "default_generator", None)
    except Exception:  # another thread is importing it
        return None


GLOBAL_SOURCES: tuple[GeneratorSource, ...] = (PythonGenerator(), NumPyGenerator(), TorchGenerator())


class TaskGenerators(Protocol):
    """Seeding around one task after another."""

    def open(self) -> None: ...
    def enter(self, value: int) -> None: ...
    def draw(self) -> Any:
        """A number from each generator: others, as soon as one of them has been drawn from since it was seeded."""

    def leave(self) -> None: ...
    def close(self) -> None: ...


class OwnedGenerators:
    """For a worker process: the global generators are its own, so they are seeded and left."""

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
    """For loading wherever the user's loop runs: the user's random stream goes on as if nothing had been.

    In the main thread the global generators are borrowed. Any other thread visits: borrowing there would change the
    main thread's draws, and those of other loops, under their hands.
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
        if outer is not None:  # a sample that is read by loading from another loader
            self._outer = outer  # kept if the task is entered once more, to be read in another way
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
            for source, state in zip(self._sources, saved, strict=False):  # Ctrl-C may have come before the last
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
