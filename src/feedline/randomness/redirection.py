"""`random` and `numpy.random` of one thread or one sample: the modules' functions look who calls them.

Takes: a 64-bit number per task, of which NumPy gets the lower half. Gives: generators of a worker thread's own, of a
thread that visits, and of each sample where several are read at a time, all behind the modules' own functions.
Promises: the functions are as they were when the last holder has gone, but for what somebody else has patched since; a
thread without generators of its own reaches the shared ones. What a sample draws depends neither on how many are read
at a time nor on which comes first.
Not its job: the shared generators themselves (global_generators), `feedline.rng()` (rng).
"""

from __future__ import annotations

import functools
import os
import random
import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np

from feedline.randomness.rng import mix


class SampleGenerators:
    """`random` and `numpy.random` of one sample, where several are read at a time.

    They are seeded when the sample first draws: most samples never do, and that would cost 10 µs each.
    """

    __slots__ = ("_numpy", "_numpy_is_ready", "_place", "_python", "_python_is_ready", "_task")

    def __init__(self) -> None:
        self._python: random.Random | None = None
        self._numpy: np.random.RandomState | None = None

    def enter(self, task: int, place: int) -> None:
        """From now on it is the sample at that place of the task with that seed."""
        self._task, self._place = task, place
        self._python_is_ready = self._numpy_is_ready = False

    @property
    def python(self) -> random.Random:
        """Its `random`."""
        if self._python is None:
            self._python = random.Random()
        if not self._python_is_ready:
            self._python_is_ready = True
            self._python.seed(mix(self._task, self._place))
        return self._python

    @property
    def numpy(self) -> np.random.RandomState:
        """Its `numpy.random`."""
        if self._numpy is None:
            self._numpy = np.random.RandomState()
        if not self._numpy_is_ready:
            self._numpy_is_ready = True
            value = mix(self._task, self._place, 1)  # by the same number both would draw the same
            self._numpy.seed([value & 0xFFFFFFFF, value >> 32])  # 32 bits alone meet by chance among 10,000 samples
        return self._numpy


being_read: ContextVar[SampleGenerators | None] = ContextVar("feedline's global generators", default=None)
"""The generators of the sample that this thread reads or, since many of them take turns in one, this coroutine."""


class _ThreadState(threading.local):
    python: random.Random | None = None
    numpy: np.random.RandomState | None = None


_of_thread = _ThreadState()


class ThreadGenerators:
    """For a worker thread: `random.random()` and `np.random.rand()` reach a generator of the thread's own.

    Threads share the modules' global generators, so seeding those would mix up the threads' draws and the user's.
    While a worker thread lives, the modules' functions look which thread calls them. A function object fetched
    earlier (`from random import random`) still goes to the shared generator: use `feedline.rng()` there.
    """

    def __init__(self) -> None:
        self._open = False

    def open(self) -> None:
        _of_thread.python = random.Random()
        _of_thread.numpy = np.random.RandomState()
        if not self._open:
            self._open = True
            switch.hold()

    def enter(self, value: int) -> None:
        assert _of_thread.python is not None
        assert _of_thread.numpy is not None
        _of_thread.python.seed(value)
        _of_thread.numpy.seed(value & 0xFFFFFFFF)

    def draw(self) -> Any:
        assert _of_thread.python is not None
        assert _of_thread.numpy is not None
        return _of_thread.python.getrandbits(64), _of_thread.numpy.bytes(8)

    def leave(self) -> None:
        pass

    def close(self) -> None:
        _of_thread.python = _of_thread.numpy = None
        if self._open:  # a second close must not take the switch from another thread
            self._open = False
            switch.drop()


class VisitingGenerators(ThreadGenerators):
    """For loading in a thread of the user's: its own generators during a task, the shared ones in between.

    Another thread may close it in the middle of a task, which goes on to its end: each task holds the switch, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._python = random.Random()
        self._numpy = np.random.RandomState()
        self._before: tuple[Any, Any] | None = None

    def open(self) -> None:
        if not self._open:
            self._open = True
            switch.hold()

    def enter(self, value: int) -> None:
        if self._before is None:  # none, or a worker thread's: a sample may be read by loading from another loader
            switch.hold()
            self._before = _of_thread.python, _of_thread.numpy
        _of_thread.python, _of_thread.numpy = self._python, self._numpy
        super().enter(value)

    def leave(self) -> None:
        if self._before is not None:
            (_of_thread.python, _of_thread.numpy), self._before = self._before, None
            switch.drop()

    def close(self) -> None:
        if self._open:
            self._open = False
            switch.drop()


class BySample:
    """Whoever reads several samples at a time holds this open: the modules' functions then look who calls them."""

    def __init__(self) -> None:
        self._open = False

    def open(self) -> None:
        """From now on; a second time changes nothing."""
        if not self._open:
            self._open = True
            switch.hold()

    def follow(self, sample: SampleGenerators) -> None:
        """What this thread, or coroutine, draws is that sample's."""
        being_read.set(sample)

    def close(self) -> None:
        """No longer."""
        if self._open:
            self._open = False
            switch.drop()


class _Switch:
    """Puts functions that look who calls them into the two modules while anyone holds it, and takes them out again."""

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
            ours = _redirected(original, method, own)
            self._replaced.append((module, name, original, ours))
            setattr(module, name, ours)

    def after_fork(self) -> None:
        """In the child: the lock may be held by a thread that is not there."""
        self._lock = threading.RLock()


switch = _Switch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=switch.after_fork)


def _redirected(original: Callable[..., Any], method: str, own: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        mine = getattr(being_read.get() or _of_thread, own)
        return (original if mine is None else getattr(mine, method))(*args, **kwargs)

    vars(call)[_ORIGINAL] = original
    return call


_ORIGINAL = "_feedline_original"


def reached(function: Any, own: str) -> Any:
    """What a module's function comes to in this thread: itself, or while others have generators of their own, that.

    The long way, through the replaced function, takes 100 µs a batch.
    """
    original = getattr(function, _ORIGINAL, None)
    is_own = original is not None and getattr(being_read.get() or _of_thread, own) is not None
    return function if original is None or is_own else original


# These are plain functions in NumPy 2, not methods of the hidden instance.
_NUMPY_PLAIN = {"seed": "seed", "ranf": "random_sample", "sample": "random_sample"}


def _methods_of(instance: Any, module: ModuleType) -> dict[str, str]:
    """The module's functions that are methods of its hidden global instance, and which method each is."""
    functions = {name: getattr(module, name) for name in dir(module)}
    return {name: call.__name__ for name, call in functions.items() if getattr(call, "__self__", None) is instance}
