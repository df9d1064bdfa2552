"""Notices draws from generators that are shared by samples read at the same time.

Takes: the beginning and end of each batch, in a worker that reads several samples at a time. Gives: a warning if a
framework's default generator was used, or the generator of `random` or `numpy.random` other than through the module's
functions: by a function imported by name (`from random import random`), by a library that holds the hidden generator,
or by a thread of the dataset.
Promises: the numbers drawn are the same as without this check.
Not its job: generators that a dataset keeps (held_generators).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feedline.messages.outcome import Notice, Outcome
from feedline.randomness.global_generators import GLOBAL_SOURCES

TASKS = 4
"""Only this many tasks of each worker are checked: a check takes 50 µs."""
SHARED = (
    "samples draw from {whose} while several are read at a time (fetch_threads, async datasets). They share it, so "
    "the timing decides which sample gets which number. Draw from feedline.rng() instead: each sample has its own."
)


WHOSE = (
    "the generator of random, not through its functions (`from random import …`)",
    "the generator of numpy.random, not through its functions (`from numpy.random import …`)",
    "the framework's default generator",
)
"""What the warning calls each of the global generators."""


class SharedDrawsCheck:
    """Checks the first batches of a worker that reads several samples at a time, if nothing else draws meanwhile."""

    def __init__(self) -> None:
        glimpses = (source.glimpse for source in GLOBAL_SOURCES)
        self._states: list[tuple[str, Callable[[], Any]]] = list(zip(WHOSE, glimpses, strict=True))
        self._before: list[Any] = []  # empty if this batch is not checked
        self._drawn_from = ""
        self._left = TASKS

    def begin(self) -> None:
        """The generators have been seeded, and samples are about to be read."""
        self._before, self._drawn_from = [], ""  # left over from a batch that failed
        if self._left:
            self._left -= 1
            self._before = [state() for _, state in self._states]

    def end(self) -> None:
        """The samples have been read. Collating comes next, one batch at a time: its draws are shared with nothing."""
        before, self._before = self._before, []
        for known, (whose, state) in zip(before, self._states, strict=False):
            if known != state():
                self._drawn_from = whose
                return

    def told(self, outcome: Outcome) -> Outcome:
        """The outcome, with a warning if its samples have drawn from a shared generator."""
        if not self._drawn_from:
            return outcome
        notice = (outcome.notice or Notice())._replace(warning=SHARED.format(whose=self._drawn_from))
        return outcome._replace(notice=notice)
