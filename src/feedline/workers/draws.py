"""Does anybody draw from generators that samples read at the same time would share?

Takes: the time while a batch is made. Gives: `Draws`: which of `random` and `numpy.random` was drawn from past its
functions: by a function fetched by name (`from random import random`), by a library that has the hidden generator, by a
thread of the dataset's own. In worker threads the modules' functions look which thread calls them; those ways do not.
`Together`: the same and a framework's generator, where a worker reads several samples at a time, as a warning.
Promises: the numbers drawn are the same as without a look.
Not its job: generators that a dataset keeps (held_generators).
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from numpy.random import mtrand

from feedline import mersenne
from feedline.ambient import Source, drawing_from
from feedline.messages import Notice, Outcome

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


TASKS = 4
"""Of each worker, that are looked at: 50 µs each."""
SHARED = (
    "samples draw from {whose} while several are read at a time (fetch_threads, async datasets). They share it, so "
    "which sample gets which draw depends on timing. Draw from feedline.rng() instead: that belongs to the sample."
)


class Together:
    """The first batches of a worker that reads several samples at a time, where nobody else draws meanwhile."""

    def __init__(self, further: Iterable[Source]) -> None:
        self._states: list[tuple[str, Callable[[], Any]]] = [
            ("random's generator past its functions (`from random import …`)", random._inst.getstate),  # type: ignore[attr-defined, unused-ignore]
            ("numpy.random's generator past its functions (`from numpy.random import …`)", mersenne.glimpse),
            *(("the framework's default generator", partial(state_of, source)) for source in further),
        ]
        self._before: list[Any] = []
        self._left = TASKS

    def begin(self) -> None:
        """The generators have been seeded, and samples are about to be read."""
        if self._left:
            self._left -= 1
            self._before = [state() for _, state in self._states]

    def told(self, outcome: Outcome) -> Outcome:
        """The outcome, with a warning if its samples have drawn."""
        before, self._before = self._before, []
        for known, (whose, state) in zip(before, self._states, strict=False):  # there are none after the first batches
            if known != state():
                notice = (outcome.notice or Notice())._replace(warning=SHARED.format(whose=whose))
                return outcome._replace(notice=notice)
        return outcome


def state_of(source: Source) -> bytes:
    """A generator's state, to be compared."""
    state: Any = source.save()
    if hasattr(state, "numpy"):  # a tensor is pickled with more than what is in it
        return bytes(state.numpy().tobytes())
    return pickle.dumps(state)
