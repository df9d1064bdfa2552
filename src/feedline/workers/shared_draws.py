"""Does anybody draw from generators that samples read at the same time share?

Takes: the time while a batch is made by a worker that reads several samples at a time. Gives: a warning if `random` or
`numpy.random` was drawn from past its functions (by one fetched by name, `from random import random`, by a library that
has the hidden generator, by a thread of the dataset's own), or a framework's default generator was.
Promises: the numbers drawn are the same as without a look.
Not its job: generators that a dataset keeps (held_generators).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feedline.messages.outcome import Notice, Outcome
from feedline.randomness.global_generators import GLOBAL_SOURCES

TASKS = 4
"""Of each worker, that are looked at: 50 µs each."""
SHARED = (
    "samples draw from {whose} while several are read at a time (fetch_threads, async datasets). They share it, so "
    "which sample gets which draw depends on timing. Draw from feedline.rng() instead: that belongs to the sample."
)


WHOSE = (
    "random's generator past its functions (`from random import …`)",
    "numpy.random's generator past its functions (`from numpy.random import …`)",
    "the framework's default generator",
)
"""Of each of the global generators."""


class Together:
    """The first batches of a worker that reads several samples at a time, where nobody else draws meanwhile."""

    def __init__(self) -> None:
        glimpses = (source.glimpse for source in GLOBAL_SOURCES)
        self._states: list[tuple[str, Callable[[], Any]]] = list(zip(WHOSE, glimpses, strict=True))
        self._before: list[Any] = []  # empty when nobody looks
        self._drawn_from = ""
        self._left = TASKS

    def begin(self) -> None:
        """The generators have been seeded, and samples are about to be read."""
        self._before, self._drawn_from = [], ""  # a batch that failed has left what it began with
        if self._left:
            self._left -= 1
            self._before = [state() for _, state in self._states]

    def end(self) -> None:
        """The samples have been read. What collating draws next, one batch at a time, is nobody else's."""
        before, self._before = self._before, []
        for known, (whose, state) in zip(before, self._states, strict=False):
            if known != state():
                self._drawn_from = whose
                return

    def told(self, outcome: Outcome) -> Outcome:
        """The outcome, with a warning if its samples have drawn."""
        if not self._drawn_from:
            return outcome
        notice = (outcome.notice or Notice())._replace(warning=SHARED.format(whose=self._drawn_from))
        return outcome._replace(notice=notice)
