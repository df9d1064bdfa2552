"""A consumer: takes the batches of a loader, epoch after epoch, as a training loop does, and measures windows of them.

Takes: a loader, and perhaps a step to take for each batch. Gives: `Window`s, for tune and bench.
Promises: a window has whole rounds (one batch from each worker) or whole epochs, because batches come in bursts; a
batch is held until the next one is there.
Not its job: which loader, for how long (tune, bench). The same for a loop of the user's: engine/scaling.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from feedline.errors import FeedlineError
from feedline.observe.window import Window

EMPTY = "the dataset gives no batches: it is empty, or drop_last leaves none"
ONCE = "the dataset gives its batches only once, and then an empty epoch: let each __iter__ begin anew"

clock = time.perf_counter


class NothingLoaded(FeedlineError):
    """An epoch had no batch: there is no speed to report."""


class Consumer:
    """Takes the batches of one loader.

    >>> consumer = Consumer([[1, 2], [3, 4], [5]], samples_in=lambda place: 2 if place < 2 else 1)
    >>> consumer.warm_up(10.0, round_of=1), consumer.epoch_batches
    (True, 3)
    >>> window = consumer.window(0, round_of=2)
    >>> window.batches, window.samples
    (2, 4)
    """

    def __init__(
        self,
        loader: Iterable[Any],
        step: Callable[[], None] | None = None,
        samples_in: Callable[[int], int] | None = None,
    ) -> None:
        self._loader, self._step, self._samples_in = loader, step, samples_in
        self._iterator: Iterator[Any] | None = None
        self._held: Any = None
        self._place = 0
        self.epoch_batches: int | None = None
        """The number of batches in an epoch, known after one has ended."""

    def take(self) -> float:
        """Take the next batch, of the next epoch if this one is over; the seconds that it was waited for."""
        asked = clock()
        if not self._advance():
            self._advance()
        return clock() - asked

    def warm_up(self, seconds: float, round_of: int) -> bool:
        """Take one epoch, or as many rounds as begin within that time; was it an epoch?"""
        began = clock()
        while self._advance():
            if self._place % round_of == 0 and clock() - began >= seconds:
                return False
        return True

    def window(self, seconds: float, round_of: int, until: float = math.inf) -> Window:
        """All rounds that begin within that time, from the present place on. It is cut short at `until`."""
        began, batches, samples, waited = clock(), 0, 0, 0.0
        while not batches or batches % round_of or clock() - began < seconds:
            if self._step is not None:
                self._step()
            if clock() >= until:
                break
            waited += self.take()
            batches += 1
            samples += self._samples()
        return Window(batches, clock() - began, waited, samples)

    def epochs(self, seconds: float) -> Window:
        """All whole epochs that begin within that time, without steps."""
        began, batches, samples = clock(), 0, 0
        while not batches or clock() - began < seconds:
            while self._advance():
                batches += 1
                samples += self._samples()
        elapsed = clock() - began
        return Window(batches, elapsed, elapsed, samples)

    def _advance(self) -> bool:
        """Go to the next batch; False at the end of an epoch, once."""
        if self._iterator is None:
            self._iterator, self._place = iter(self._loader), 0
        self._held = next(self._iterator, self)
        if self._held is not self:
            self._place += 1
            return True
        self._iterator = self._held = None
        if not self._place:
            raise NothingLoaded(EMPTY if self.epoch_batches is None else ONCE)
        self.epoch_batches = self._place
        return False

    def _samples(self) -> int:
        return 0 if self._samples_in is None else self._samples_in(self._place - 1)
