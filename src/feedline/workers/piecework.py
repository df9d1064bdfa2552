"""A piece of a batch, in a worker.

Takes: a task that is a piece. Gives: its outcome, or that this batch (or any of this job) is not to be made in pieces.
Promises: what a piece holds does not depend on the other samples of its batch. `feedline.rng()` is each sample's own;
the global generators are the batch's, so a piece that has drawn from them is thrown away, if possible after one sample.
Not its job: putting pieces together (collate.pieces), sending them out (splitting).
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
from feedline.randomness.global_generators import TaskGenerators
from feedline.reading.fetch import Fetcher, index_list
from feedline.workers.dialect import Dialect


class Piecework:
    """One worker's part in batches that are made by several."""

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
        # Drawn numbers and not states are compared: those are 5 kB, and 0.2 ms a piece.
        untouched = self._generators.draw()
        seed(task)
        began = clock()
        try:
            samples = self._samples(task, untouched, seed)
        except Exception:
            if not self._has_drawn(untouched):  # else it might not have been raised in another order
                raise
            samples = []
        if self._never or self._has_drawn(untouched):
            return _apart(task, Apart.ALWAYS)
        self._row[PLACE], self._row[SINCE] = COLLATING, clock()
        try:
            batch = self._pieces.collate(samples, empty, None)
        except Exception:  # whoever makes the whole batch will say what is wrong, and of which sample
            return _apart(task, Apart.ONCE)
        took = (clock() - began) / 1e9 / len(samples)
        return Outcome(task.seq, batch, len(samples), notice=Notice(took=took))

    def _samples(self, task: Task, untouched: Any, seed: Callable[[Task], None]) -> list[Any]:
        wanted = enumerate(index_list(task))
        samples: list[Any] = []
        if not self._tried:  # what one sample tells of all of them need not cost a whole piece
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
        """Is a batch of such samples of a kind that can be put together?"""
        try:
            self._pieces.join([self._pieces.collate(samples, np.empty, None)], np.empty, never_whole)
        except Exception:  # a Misfit; or it cannot be collated, which whoever makes a whole batch will say
            return False
        return True


def _apart(task: Task, apart: Apart) -> Outcome:
    return Outcome(task.seq, notice=Notice(apart=apart))
