"""Makes a piece of a batch, in a worker.

Takes: a task that is a piece. Gives: its outcome, or the answer that this batch (or every batch of this job) must be
made whole.
Promises: a piece does not depend on the other samples of its batch. `feedline.rng()` belongs to each sample, but the
global generators belong to the batch: a piece that has drawn from them is dropped, if possible after one sample.
Not its job: joining pieces (collate.pieces), sending them out (engine.batch_splitting).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from feedline.collate.pieces import never_whole
from feedline.datasets import Empty
from feedline.messages.outcome import Apart, Notice, Outcome
from feedline.messages.progress import COLLATING, PLACE, SINCE, Row, clock
from feedline.messages.task import Task
from feedline.randomness.task_generators import TaskGenerators
from feedline.reading.fetch import Fetcher, index_list
from feedline.workers.dialect import Dialect


class Piecework:
    """Makes one worker's pieces of batches that several workers make together."""

    def __init__(self, dialect: Dialect, fetcher: Fetcher, generators: TaskGenerators, row: Row, singly: bool) -> None:
        self._pieces = dialect.pieces
        self._fetcher = fetcher
        self._generators = generators
        self._row = row
        self._never = not singly
        self._tried = False

    def run(self, task: Task, empty: Empty, seed: Callable[[Task], None]) -> Outcome:
        """Make the piece; the generators have just been seeded. Raises what the dataset raises."""
        if self._never or not self._pieces.are_plain():
            return _apart(task, Apart.ALWAYS)
        # Drawn numbers are compared, not states: a state is 5 kB, which would cost 0.2 ms per piece.
        untouched = self._generators.draw()
        seed(task)
        began = clock()
        try:
            samples = self._samples(task, untouched, seed)
        except Exception:
            if not self._has_drawn(untouched):  # else, read in another order, it might not fail
                raise
            samples = []
        if self._never or self._has_drawn(untouched):
            return _apart(task, Apart.ALWAYS)
        self._row[PLACE], self._row[SINCE] = COLLATING, clock()
        try:
            batch = self._pieces.collate(samples, empty, None)
        except Exception:  # the worker that makes the whole batch will report which sample is wrong
            return _apart(task, Apart.ONCE)
        took = (clock() - began) / 1e9 / len(samples)
        return Outcome(task.seq, batch, len(samples), notice=Notice(took=took))

    def _samples(self, task: Task, untouched: Any, seed: Callable[[Task], None]) -> list[Any]:
        wanted = enumerate(index_list(task))
        samples: list[Any] = []
        if not self._tried:  # the first sample may show that the rest of the piece is not needed
            samples = self._fetcher.one_by_one(task, islice(wanted, 1))
            self._tried = True
            self._never = not self._joins(samples)
            if self._never or self._has_drawn(untouched):
                return []
            seed(task)
        return samples + self._fetcher.one_by_one(task, wanted)

    def _has_drawn(self, untouched: Any) -> bool:
        self._never = self._never or self._generators.draw() != untouched
        return self._never

    def _joins(self, samples: list[Any]) -> bool:
        """Can pieces made of such samples be joined?"""
        try:
            self._pieces.join([self._pieces.collate(samples, np.empty, None)], np.empty, never_whole)
        except Exception:  # a Misfit; or collating fails, which the worker of the whole batch will report
            return False
        return True


def _apart(task: Task, apart: Apart) -> Outcome:
    return Outcome(task.seq, notice=Notice(apart=apart))
