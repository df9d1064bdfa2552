"""How fast a loader is: over whole epochs, or over windows of a long epoch.

Takes: a `BenchSubject`. Gives: samples (or batches) per second, whenever asked.
Promises: whole epochs, or whole rounds in which every worker has made one batch; nothing is done with a batch, so only
the loader and the dataset are measured.
Not its job: who measures when (side, holding).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from feedline.diagnose.bench.bench_subject import BenchSubject
from feedline.errors import FeedlineError


class NothingLoaded(FeedlineError):
    """An epoch had no batch: there is no speed to report."""


class BenchPace:
    """Measures one loader.

    >>> pace = BenchPace(BenchSubject([[1, 2], [3, 4], [5]], 0, 2, 5, "numbers"))
    >>> pace.warm_up(10.0), pace.batches
    (True, 3)
    >>> pace.epochs(0.01) > 0, pace.window(0.01) > 0
    (True, True)
    """

    def __init__(self, subject: BenchSubject) -> None:
        self._subject = subject
        self._round = max(1, subject.num_workers)
        self._iterator: Iterator[Any] | None = None
        self._place = 0
        self.batches: int | None = None
        """The number of batches in an epoch, known after one has ended."""

    def warm_up(self, limit: float) -> bool:
        """Run one epoch, or as many rounds as begin within `limit` seconds; was it an epoch?"""
        started = time.perf_counter()
        while self._advance():
            if self._place % self._round == 0 and time.perf_counter() - started >= limit:
                return False
        return True

    def epochs(self, seconds: float) -> float:
        """The speed over all whole epochs that begin within that time."""
        started, done, elapsed = time.perf_counter(), 0, 0.0
        while elapsed < seconds:
            count = sum(1 for _ in self._subject.loader)
            done += count if self._subject.samples is None else self._subject.samples
            elapsed = time.perf_counter() - started
        return done / elapsed

    def window(self, seconds: float) -> float:
        """The speed over all rounds that begin within that time, starting where the last window ended."""
        started, done, elapsed = time.perf_counter(), 0, 0.0
        while elapsed < seconds:
            done += sum(self._take() for _ in range(self._round))
            elapsed = time.perf_counter() - started
        return done / elapsed

    def _take(self) -> int:
        """Take the next batch, of the next epoch if this one is over; returns how much it counts."""
        if not self._advance():
            self._advance()
        return self._worth()

    def _advance(self) -> bool:
        """Go to the next batch; False at the end of an epoch, once."""
        if self._iterator is None:
            self._iterator, self._place = iter(self._subject.loader), 0
        if next(self._iterator, self) is not self:
            self._place += 1
            return True
        self._iterator, self.batches = None, self._place
        if not self._place:
            raise NothingLoaded("an epoch had no batch: there is nothing to measure")
        return False

    def _worth(self) -> int:
        """How much the batch at this place counts: the last one may be smaller."""
        size, samples = self._subject.batch_size, self._subject.samples
        if size is None or samples is None:
            return 1
        return min(size, samples - (self._place - 1) * size)
