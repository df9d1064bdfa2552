"""The next epoch's first batches, made by persistent workers while this epoch's last ones are consumed.

Takes: the tasks the next epoch is foreseen to begin with, then those it does begin with. Gives: which tasks to send
early; whether those that were sent are the right ones.
Promises: a batch is a function of its task and of what its worker was started with, so tasks are compared: what was
foreseen wrong is never delivered. An epoch that could not be foreseen is not foreseen again soon.
Not its job: foreseeing (order.foreseeing, fronts), whether it may be done at all (session), which are out (ledger).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from feedline.messages.task import Task
from feedline.order.plan import Tasks

Foresee = Callable[[], Tasks | None]
"""The tasks of the next epoch, as far as can be known; None if they cannot. It changes nothing."""

LONGEST_REST = 64
"""Epochs; work in vain every 64th costs nothing that could be measured, and who began to draw elsewhere may stop."""


class NextEpoch:
    """One loader's, for all its epochs."""

    def __init__(self) -> None:
        self._tasks: Tasks | None = None
        self._rest = Rest()
        self._has_looked = False
        self.is_outdated = False

    def begin(self) -> None:
        """An epoch begins: there is another one to be foreseen."""
        self._tasks, self._has_looked = None, False

    def following(self, foresee: Foresee) -> Task | None:
        """All tasks of this epoch are out: the one that the next epoch begins with, then the one after it."""
        if not self._has_looked:
            self._has_looked = True
            if self._rest.over():
                with contextlib.suppress(Exception):  # the sampler's, which it will raise again when its epoch begins
                    self._tasks = foresee()
        if self._tasks is None:
            return None
        try:
            return next(self._tasks)
        except Exception:  # the end, or an error of the sampler's, as above
            self._tasks = None
            return None

    def outdate(self) -> None:
        """Something else is wanted of the next epoch's batches, so those sent so far will not do."""
        self.is_outdated = True

    def is_right(self, sent: list[Task], tasks: list[Task]) -> bool:
        """The epoch begins with these tasks: are they those that were sent early?"""
        is_same = len(sent) == len(tasks) and all(map(same, sent, tasks))
        self._rest.foreseen(is_same)
        outdated, self.is_outdated = self.is_outdated, False
        return is_same and not outdated


class Rest:
    """How long nothing is foreseen: after each mistake twice as long as after the one before.

    >>> rest = Rest()
    >>> rest.foreseen(right=False); [rest.over() for _ in range(3)]
    [False, True, True]
    >>> rest.foreseen(right=False); [rest.over() for _ in range(3)]
    [False, False, True]
    >>> rest.foreseen(right=True); rest.over()
    True
    """

    def __init__(self) -> None:
        self._length = 0
        self._left = 0

    def foreseen(self, right: bool) -> None:
        """An epoch was foreseen; right or wrong."""
        self._length = 0 if right else min(LONGEST_REST, self._length * 2 or 1)
        self._left = self._length

    def over(self) -> bool:
        """Asked once for every epoch that might be foreseen: is it?"""
        self._left -= 1
        return self._left < 0


def same(one: Task, other: Task) -> bool:
    """Do they make the same batch? Only what can be compared at a glance is: whole numbers.

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
