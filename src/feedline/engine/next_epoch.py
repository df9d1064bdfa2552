"""The next epoch's first batches, made by persistent workers while the user consumes this epoch's last ones.

Takes: the tasks that the next epoch is predicted to begin with, then those it does begin with. Gives: which tasks to
send early; whether the tasks sent early were the right ones.
Promises: a batch depends only on its task and on what its worker was started with, so comparing tasks is enough: a
wrongly predicted batch is never delivered. After a wrong prediction some epochs are not predicted.
Not its job: predicting (order.prediction, fronts), whether it is allowed at all (session), which are out (ledger).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from feedline.messages.task import Task
from feedline.order.plan import Tasks

Predict = Callable[[], Tasks | None]
"""Predicts the tasks of the next epoch; None if they cannot be known. It has no side effects."""

LONGEST_BACKOFF = 64
"""At most this many epochs in a row are not predicted. Then one is predicted again, because a program that drew from
the sampler's generator elsewhere may have stopped doing so. One wrong prediction in 64 epochs costs nothing."""


class NextEpoch:
    """Predicts the next epoch's tasks, for all epochs of one loader."""

    def __init__(self) -> None:
        self._tasks: Tasks | None = None
        self._backoff = Backoff()
        self._has_looked = False
        self.is_outdated = False

    def begin(self) -> None:
        """An epoch begins: the one after it can be predicted now."""
        self._tasks, self._has_looked = None, False

    def following(self, predict: Predict) -> Task | None:
        """All tasks of this epoch are out: returns the next epoch's first task, then its second, and so on."""
        if not self._has_looked:
            self._has_looked = True
            if self._backoff.over():
                with contextlib.suppress(Exception):  # the sampler will raise it again when its epoch begins
                    self._tasks = predict()
        if self._tasks is None:
            return None
        try:
            return next(self._tasks)
        except Exception:  # the end, or an error of the sampler, as above
            self._tasks = None
            return None

    def outdate(self) -> None:
        """The next epoch's batches must be made in another way, so those sent early cannot be used."""
        self.is_outdated = True

    def is_right(self, sent: list[Task], tasks: list[Task]) -> bool:
        """The epoch begins with `tasks`: are they the same as those sent early?"""
        is_same = len(sent) == len(tasks) and all(map(same, sent, tasks))
        self._backoff.predicted(is_same)
        outdated, self.is_outdated = self.is_outdated, False
        return is_same and not outdated


class Backoff:
    """For how many epochs nothing is predicted: after each mistake in a row, twice as many as before.

    >>> backoff = Backoff()
    >>> backoff.predicted(right=False); [backoff.over() for _ in range(3)]
    [False, True, True]
    >>> backoff.predicted(right=False); [backoff.over() for _ in range(3)]
    [False, False, True]
    >>> backoff.predicted(right=True); backoff.over()
    True
    """

    def __init__(self) -> None:
        self._length = 0
        self._left = 0

    def predicted(self, right: bool) -> None:
        """An epoch was predicted, rightly or wrongly."""
        self._length = 0 if right else min(LONGEST_BACKOFF, self._length * 2 or 1)
        self._left = self._length

    def over(self) -> bool:
        """Called once for each epoch that could be predicted: should it be?"""
        self._left -= 1
        return self._left < 0


def same(one: Task, other: Task) -> bool:
    """Do they make the same batch? Only indices that are cheap to compare (whole numbers) are compared.

    >>> a, b = (Task(0, 1, 7, np.arange(3)), Task(0, 1, 7, np.arange(3)))
    >>> same(a, b), same(a, b._replace(epoch=2)), same(a, b._replace(indices=[0, 1, 2]))
    (True, False, False)
    """
    return _same_indices(one.indices, other.indices) and one._replace(indices=None) == other._replace(indices=None)


def _same_indices(one: Any, other: Any) -> bool:
    if type(one) is np.ndarray and type(other) is np.ndarray:
        return one.dtype == other.dtype and np.array_equal(one, other)
    if type(one) is not list or type(other) is not list or len(one) != len(other):
        return False
    return all(type(a) is int and type(b) is int and a == b for a, b in zip(one, other, strict=True))
