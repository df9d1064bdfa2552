"""The global generators (`random`, `numpy.random`) around a task: seeded from the task, in every kind of worker.

Takes: a 64-bit number per task (rng.task_seed), of which NumPy gets the lower half. Gives: four ways to make user
code that draws from the global generators deterministic — a worker process owns them, in-process
loading borrows and restores them, a worker thread gets its own behind the same module functions, and so does each
sample where several are read at a time.
Promises: what a batch draws depends on the number alone; the user's own stream of random numbers is left as it was.
Not its job: deriving the number (rng), torch's or another framework's generator (its front adds a `Source`).
"""

from __future__ import annotations

import functools
import os
import random
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from feedline import mersenne, python_random
from feedline.one_sample import OneSample, being_read


class Source(Protocol):
    """A global generator: how to seed it, and how to put it back."""

    def seed(self, value: int) -> None: ...
    def save(self) -> Any: ...
    def borrow(self, value: int, saved: list[Any]) -> None:
        """Seed it. What to restore afterwards is added to `saved` before anything changes."""

    def restore(self, state: Any) -> None: ...
    def draw(self) -> Any:
        """A number of at least 63 bits: it tells where the generator stood."""


class _PythonRandom:
    def seed(self, value: int) -> None:
        python_random.seed(value, _reached(random.seed, "python") if _switch.holders else None)

    def save(self) -> Any:
        return python_random.save(_reached(random.getstate, "python") if _switch.holders else None)

    def borrow(self, value: int, saved: list[Any]) -> None:
        saved.append(self.save())
        self.seed(value)

    def restore(self, state: Any) -> None:
        python_random.restore(state)

    def draw(self) -> Any:
        return random.getrandbits(64)


class _NumPyRandom:
    def seed(self, value: int) -> None:
        by = _reached(np.random.get_state, "numpy") if _switch.holders else None
        mersenne.seed(value & 0xFFFFFFFF, by)

    def save(self) -> Any:
        return mersenne.save(_reached(np.random.get_state, "numpy") if _switch.holders else None)

    def borrow(self, value: int, saved: list[Any]) -> None:
        by = _reached(np.random.get_state, "numpy") if _switch.holders else None
        mersenne.borrow(value & 0xFFFFFFFF, saved, by)

    def restore(self, state: Any) -> None:
        mersenne.restore(state)

    def draw(self) -> Any:
        return np.random.bytes(8)


GLOBAL_SOURCES: list[Source] = [_PythonRandom(), _NumPyRandom()]


class Ambient(Protocol):
    """Seeding around one task after another."""

    def open(self) -> None: ...
    def enter(self, value: int) -> None: ...
    def draw(self) -> Any:
        """A number from each generator: others, as soon as one of them has been drawn from since it was seeded."""

    def leave(self) -> None: ...
    def close(self) -> None: ...


class Owned:
    """For a worker process: the global generators are its own, so they are seeded and left."""

    def __init__(self, further: Iterable[Source] = ()) -> None:
        self._sources = (*GLOBAL_SOURCES, *further)

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


class Borrowed:
    """For loading in the user's own thread: the user's random stream goes on afterwards as if nothing had been."""

    def __init__(self, further: Iterable[Source] = ()) -> None:
        self._sources = (*GLOBAL_SOURCES, *further)
        self._saved: list[Any] | None = None

    def open(self) -> None:
        pass

    def enter(self, value: int) -> None:
        if self._saved is None:
            saved = self._saved = []
            for source in self._sources:
                source.borrow(value, saved)
            return
        for source in self._sources:
            source.seed(value)

    def draw(self) -> Any:
        return [source.draw() for source in self._sources]

    def leave(self) -> None:
        if self._saved is not None:
            saved, self._saved = self._saved, None
            for source, state in zip(self._sources, saved, strict=False):  # Ctrl-C may have come before the last
                source.restore(state)

    def close(self) -> None:
        self.leave()


class PerThread:
    """For a worker thread: `random.random()` and `np.random.rand()` reach a generator of the thread's own.

    Threads share the modules' global generators, so seeding those would mix up the threads' draws and the user's.
    While a worker thread lives, the modules' functions look which thread calls them. A function object fetched
    earlier (`from random import random`) still goes to the shared generator: use `feedline.rng()` there.
    """

    def __init__(self) -> None:
        self._open = False

    def open(self) -> None:
        _own.python = random.Random()
        _own.numpy = np.random.RandomState()
        if not self._open:
            self._open = True
            _switch.hold()

    def enter(self, value: int) -> None:
        assert _own.python is not None
        assert _own.numpy is not None
        _own.python.seed(value)
        _own.numpy.seed(value & 0xFFFFFFFF)

    def draw(self) -> Any:
        assert _own.python is not None
        assert _own.numpy is not None
        return _own.python.getrandbits(64), _own.numpy.bytes(8)

    def leave(self) -> None:
        pass

    def close(self) -> None:
        _own.python = _own.numpy = None
        if self._open:  # a second close must not take the switch from another thread
            self._open = False
            _switch.drop()


class Visiting(PerThread):
    """For loading in a thread of the user's: its own generators during a task, the shared ones in between."""

    def __init__(self) -> None:
        self._python = random.Random()
        self._numpy = np.random.RandomState()
        self._before: tuple[Any, Any] | None = None

    def open(self) -> None:
        _switch.hold()

    def enter(self, value: int) -> None:
        if self._before is None:  # none, or a worker thread's: a sample may be read by loading from another loader
            self._before = _own.python, _own.numpy
        _own.python, _own.numpy = self._python, self._numpy
        super().enter(value)

    def leave(self) -> None:
        if self._before is not None:
            (_own.python, _own.numpy), self._before = self._before, None

    def close(self) -> None:
        _switch.drop()


class ThisThread:
    """For loading wherever the user's loop runs: the main thread borrows, any other thread visits.

    Borrowing there would change the main thread's draws, and those of other loops, under their hands.
    """

    def __init__(self, further: Iterable[Source] = ()) -> None:
        self._borrowed = Borrowed(further)
        self._visiting: Visiting | None = None
        self._current: Ambient = self._borrowed
        self._outer: OneSample | None = None

    def open(self) -> None:
        pass

    def enter(self, value: int) -> None:
        outer = being_read.get()
        if outer is not None:  # a sample that is read by loading from another loader
            self._outer = outer  # kept if the task is entered once more, to be read in another way
            being_read.set(None)
        if threading.current_thread() is threading.main_thread():
            self._current = self._borrowed
        else:
            if self._visiting is None:
                self._visiting = Visiting()
                self._visiting.open()
            self._current = self._visiting
        self._current.enter(value)

    def draw(self) -> Any:
        return self._current.draw()

    def leave(self) -> None:
        self._current.leave()
        if self._outer is not None:
            being_read.set(self._outer)
            self._outer = None

    def close(self) -> None:
        visiting, self._visiting = self._visiting, None
        if visiting is not None:
            visiting.close()


class BySample:
    """Whoever reads several samples at a time holds this open: the modules' functions then look who calls them."""

    def __init__(self) -> None:
        self._open = False

    def open(self) -> None:
        """From now on; a second time changes nothing."""
        if not self._open:
            self._open = True
            _switch.hold()

    def follow(self, sample: OneSample) -> None:
        """What this thread, or coroutine, draws is that sample's."""
        being_read.set(sample)

    def close(self) -> None:
        """No longer."""
        if self._open:
            self._open = False
            _switch.drop()


class _Own(threading.local):
    python: random.Random | None = None
    numpy: np.random.RandomState | None = None


_own = _Own()


class _Switch:
    """Puts per-thread functions into the two modules while anyone holds it, and takes them out again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the garbage collector may end a loader in a thread that holds it
        self.holders = 0
        self._replaced: list[tuple[ModuleType, str, Any, Any]] = []

    def hold(self) -> None:
        with self._lock:
            self.holders += 1
            if self.holders == 1:
                self._install(random, _methods_of(random._inst, random), "python")
                self._install(np.random, _methods_of(np.random.mtrand._rand, np.random) | _NUMPY_PLAIN, "numpy")

    def drop(self) -> None:
        with self._lock:
            self.holders -= 1
            if self.holders == 0:
                for module, name, original, ours in self._replaced:
                    if getattr(module, name) is ours:  # somebody else's later patch is theirs to undo
                        setattr(module, name, original)
                self._replaced.clear()

    def _install(self, module: ModuleType, methods: dict[str, str], own: str) -> None:
        for name, method in methods.items():
            original = getattr(module, name)
            ours = _by_thread(original, method, own)
            self._replaced.append((module, name, original, ours))
            setattr(module, name, ours)

    def after_fork(self) -> None:
        """In the child: the lock may be held by a thread that is not there."""
        self._lock = threading.RLock()


_switch = _Switch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_switch.after_fork)


def _by_thread(original: Callable[..., Any], method: str, own: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        mine = getattr(being_read.get() or _own, own)
        return (original if mine is None else getattr(mine, method))(*args, **kwargs)

    vars(call)[_ORIGINAL] = original
    return call


_ORIGINAL = "_feedline_original"


def _reached(function: Any, own: str) -> Any:
    """What a module's function comes to in this thread: itself, or while others have generators of their own, that.

    The long way takes 100 µs a batch: a loop that tries to do without its worker threads, which still wait, seemed
    three times as slow as it is (num_workers="auto").
    """
    original = getattr(function, _ORIGINAL, None)
    is_own = original is not None and getattr(being_read.get() or _own, own) is not None
    return function if original is None or is_own else original


# These are plain functions in NumPy 2, not methods of the hidden instance.
_NUMPY_PLAIN = {"seed": "seed", "ranf": "random_sample", "sample": "random_sample"}


def _methods_of(instance: Any, module: ModuleType) -> dict[str, str]:
    """The module's functions that are methods of its hidden global instance, and which method each is."""
    functions = {name: getattr(module, name) for name in dir(module)}
    return {name: call.__name__ for name, call in functions.items() if getattr(call, "__self__", None) is instance}
