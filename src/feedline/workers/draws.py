"""Does anybody draw from the global generators past their modules' functions?

Takes: the time while a batch is made, in a worker process. Gives: which of `random` and `numpy.random` was drawn from
otherwise: by a function fetched by name (`from random import random`), by a library that has the hidden generator, by a
thread of the dataset's own. In worker threads the modules' functions look which thread calls them; those ways do not.
Promises: the numbers drawn are the same as without a look.
Not its job: other generators (trial looks at a framework's, stored_generators for those that a dataset keeps).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from numpy.random import mtrand

from feedline import mersenne
from feedline.ambient import drawing_from

MOST = 64
"""Calls in a batch that are looked at: 20 µs each, and the GIL is held. What draws does so in its first samples."""


class Draws:
    """One batch's.

    >>> from random import random as fetched
    >>> draws = Draws()
    >>> with draws.watched(): _ = random.random()
    >>> draws.past()
    ''
    >>> draws = Draws()
    >>> with draws.watched(): _ = random.random(), fetched()
    >>> draws.past()
    'random'
    """

    def __init__(self) -> None:
        self._python = _Watched(random._inst, random._inst.getstate)  # type: ignore[attr-defined, unused-ignore]
        self._numpy = _Watched(mtrand._rand, mersenne.glimpse)

    def watched(self) -> AbstractContextManager[None]:
        """Look on meanwhile."""
        return drawing_from(self._python, self._numpy)

    def past(self) -> str:
        """The module whose generator was drawn from past its functions; empty if none was."""
        if self._python.ends_past():
            return "random"
        return "numpy.random" if self._numpy.ends_past() else ""


class _Watched:
    """A hidden generator, and the state that the modules' functions have left it in."""

    def __init__(self, generator: Any, state: Callable[[], Any]) -> None:
        self._generator = generator
        self._state = state
        self._known = state()
        self._calls = 0
        self._is_past = False

    def __getattr__(self, method: str) -> Callable[..., Any]:
        original: Callable[..., Any] = getattr(self._generator, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._calls += 1
            if self._calls > MOST:
                return original(*args, **kwargs)
            self._is_past = self._is_past or self._state() != self._known
            try:
                return original(*args, **kwargs)
            finally:
                self._known = self._state()

        return call

    def ends_past(self) -> bool:
        """Has anybody else drawn, as far as it was looked at?"""
        return self._is_past or (self._calls <= MOST and self._state() != self._known)
