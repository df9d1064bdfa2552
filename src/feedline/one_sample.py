"""`random` and `numpy.random` of a single sample, for samples that are read several at a time.

Takes: the task's seed and the sample's place in it. Gives: two generators, seeded from that alone, and which sample is
being read here.
Promises: what a sample draws does not depend on how many are read at a time, nor on which comes first.
Not its job: bringing the modules' functions to ask here (ambient), `feedline.rng()` (rng).
"""

from __future__ import annotations

import random
from contextvars import ContextVar

import numpy as np

from feedline.rng import mix


class OneSample:
    """For samples that are read several at a time: `random` and `numpy.random` of the one that is being read here.

    They are seeded when it first draws: most samples never do, and that would cost 10 µs each.
    """

    __slots__ = ("_numpy", "_numpy_is_ready", "_place", "_python", "_python_is_ready", "_task")

    def __init__(self) -> None:
        self._python: random.Random | None = None
        self._numpy: np.random.RandomState | None = None

    def enter(self, task: int, place: int) -> None:
        """From now on it is the sample at that place of the task of that seed."""
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


being_read: ContextVar[OneSample | None] = ContextVar("feedline's global generators", default=None)
"""By this thread or, since many of them take turns in one, by this coroutine."""
