"""`random` and `numpy.random` for one thread or one sample: the modules' functions check which thread calls them.

Takes: a 64-bit number per task; NumPy gets its lower half. Gives: generators for a worker thread, for a user's thread
during a task, and for each sample if several are read at a time, all behind the modules' own functions.
Promises: after the last holder, and in a process that another thread forks, the functions are as they were, except
those that other code has patched since; a thread without its own generators uses the shared ones. What a sample draws
depends neither on how many samples are read at a time nor on which comes first.
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
from feedline.randomness.twister import Words, found_in_python, seed_python


class SampleGenerators:
    """`random` and `numpy.random` for one sample, if several are read at a time.

    They are seeded when the sample first draws: most samples never do, and seeding costs 10 µs for each.
    """

    __slots__ = ("_numpy", "_numpy_is_ready", "_place", "_python", "_python_is_ready", "_task")

    def __init__(self) -> None:
        self._python: random.Random | None = None
        self._numpy: np.random.RandomState | None = None

    def enter(self, task: int, place: int) -> None:
        """From now on these belong to the sample at that place of the task with that seed."""
        self._task, self._place = task, place
        self._python_is_ready = self._numpy_is_ready = False

    @property
    def python(self) -> random.Random:
        """The sample's `random`."""
        if self._python is None:
            self._python = random.Random()
        if not self._python_is_ready:
            self._python_is_ready = True
            self._python.seed(mix(self._task, self._place))
        return self._python

    @property
    def numpy(self) -> np.random.RandomState:
        """The sample's `numpy.random`."""
        if self._numpy is None:
            self._numpy = np.random.RandomState()
        if not self._numpy_is_ready:
            self._numpy_is_ready = True
            value = mix(self._task, self._place, 1)  # with the same seed both would draw the same
            self._numpy.seed([value & 0xFFFFFFFF, value >> 32])  # 32 bits alone would collide among 10,000 samples
        return self._numpy


being_read: ContextVar[SampleGenerators | None] = ContextVar("feedline's global generators", default=None)
"""The generators of the sample that this thread or coroutine reads. (Many coroutines take turns in one thread.)"""


class _ThreadState(threading.local):
    python: random.Random | None = None
    numpy: np.random.RandomState | None = None


class _Pair:
    """A generator of each module, both seeded from one number."""

    def __init__(self) -> None:
        self.python = random.Random()
        self.numpy = np.random.RandomState()
        self._memory = found_in_python(self.python)
        self._words = Words()

    def seed(self, value: int) -> None:
        self._words.seed(value & 0xFFFFFFFF)
        seed_python(self.python, self._memory, self._words)
        self.numpy.seed(value & 0xFFFFFFFF)


_of_thread = _ThreadState()


class ThreadGenerators:
    """For a worker thread: `random.random()` and `np.random.rand()` use the thread's own generators.

    Threads share the modules' global generators, so seeding those would mix up the draws of threads and of the user.
    While a worker thread exists, the modules' functions check which thread calls them. A function object imported
    earlier (`from random import random`) still uses the shared generator: use `feedline.rng()` there.
    """

    def __init__(self) -> None:
        self._pair = _Pair()

    def open(self) -> None:
        _of_thread.python, _of_thread.numpy = self._pair.python, self._pair.numpy
        switch.hold(self)

    def enter(self, value: int) -> None:
        self._pair.seed(value)

    def draw(self) -> Any:
        return self._pair.python.getrandbits(64), self._pair.numpy.bytes(8)

    def leave(self) -> None:
        pass

    def close(self) -> None:
        _of_thread.python = _of_thread.numpy = None
        switch.drop(self)


class VisitingGenerators(ThreadGenerators):
    """For loading in a user's thread: it has its own generators during a task, and the shared ones between tasks.

    Another thread may close this object in the middle of a task. The task goes on, so each task holds the switch too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: tuple[Any, Any] | None = None
        self._task = object()  # holds the switch for the task that is under way

    def open(self) -> None:
        switch.hold(self)

    def enter(self, value: int) -> None:
        if self._before is None:  # none, or a worker thread's: a sample may be read by loading from another loader
            switch.hold(self._task)
            self._before = _of_thread.python, _of_thread.numpy
        _of_thread.python, _of_thread.numpy = self._pair.python, self._pair.numpy
        super().enter(value)

    def leave(self) -> None:
        if self._before is not None:
            (_of_thread.python, _of_thread.numpy), self._before = self._before, None
            switch.drop(self._task)

    def close(self) -> None:
        switch.drop(self)


class BySample:
    """Open while a worker reads several samples at a time: then the modules' functions check which sample draws."""

    def open(self) -> None:
        """Start checking; a second call changes nothing."""
        switch.hold(self)

    def follow(self, sample: SampleGenerators) -> None:
        """From now on this thread or coroutine draws from that sample's generators."""
        being_read.set(sample)

    def close(self) -> None:
        """Stop checking."""
        switch.drop(self)


class _Switch:
    """While it has holders, the functions of the two modules are replaced by ones that check which thread calls."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the garbage collector may end a loader in a thread that holds it
        self.holders: set[Any] = set()
        self._replaced: list[tuple[ModuleType, str, Any, Any]] = []

    def hold(self, holder: Any) -> None:
        """A second time changes nothing, nor does to drop it twice."""
        if holder in self.holders:
            return
        with self._lock:
            self.holders.add(holder)
            if not self._replaced:
                self._install(random, _methods_of(random._inst, random), "python")
                self._install(np.random, _methods_of(np.random.mtrand._rand, np.random) | _NUMPY_PLAIN, "numpy")

    def drop(self, holder: Any) -> None:
        with self._lock:
            self.holders.discard(holder)
            if not self.holders:
                self._take_out()

    def _take_out(self) -> None:
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
        """Called in the child: only the thread that forked exists there; the others may have held this, or its lock."""
        self._lock = threading.RLock()
        if _of_thread.python is None and being_read.get() is None:
            self.holders.clear()
            self._take_out()


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


def is_redirected(function: Any) -> bool:
    """Is it one of our functions, which check who calls?"""
    return getattr(function, _ORIGINAL, None) is not None


def reached(function: Any, own: str) -> Any:
    """The function to use in this thread: the original, if it is replaced but this thread has no generators of its own.

    Calling the replacement instead takes 100 µs per batch.
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
