"""The next epoch's first batches, made by persistent workers while this epoch's last ones are consumed.

Takes: the tasks the next epoch is foreseen to begin with, then those it does begin with. Gives: tasks sent early, taken
over or dropped.
Promises: a batch is a function of its task and of what its worker was started with, so tasks are compared: what was
foreseen wrong is never delivered. An epoch that could not be foreseen is not foreseen again soon.
Not its job: foreseeing (line.foreseeing, fronts), whether it may be done at all (feed), how tasks travel (workers).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from feedline.guard import Guard
from feedline.line.plan import Tasks
from feedline.messages import Task
from feedline.supervise.early_losses import EarlyLosses
from feedline.workers.contract import Workers

Foresee = Callable[[], Tasks | None]
"""The tasks of the next epoch, as far as can be known; None if they cannot. It changes nothing."""

LONGEST_REST = 64
"""Epochs; work in vain every 64th costs nothing that could be measured, and who began to draw elsewhere may stop."""


class Ahead:
    """One loader's, for all its epochs."""

    def __init__(self) -> None:
        self._workers: Workers | None = None
        self._tasks: Tasks | None = None
        self._sent: list[Task] = []
        self._losses = EarlyLosses()
        self._rest = Rest()
        self._has_looked = False
        self._outdated = False

    def __len__(self) -> int:
        """Tasks of the next epoch that are out."""
        return len(self._sent)

    def send(self, foresee: Foresee, guard: Guard, room: int) -> None:
        """All tasks of an epoch are out: send those that the next one begins with, so many in all."""
        if not self._has_looked:
            self._has_looked = True
            self._look(foresee, guard)
        while self._tasks is not None and len(self._sent) < room:
            try:
                task = next(self._tasks)
            except Exception:  # the end, or an error of the sampler's, as below
                self._tasks = None
            else:
                self._sent.append(guard.submit_early(task))

    def _look(self, foresee: Foresee, guard: Guard) -> None:
        if guard.workers.takes_early and self._rest.over():
            self._workers, self._losses = guard.workers, guard.early
            with contextlib.suppress(Exception):  # the sampler's, which it will raise again when its epoch begins
                self._tasks = foresee()

    def begin(self, workers: Workers) -> None:
        """An epoch begins on those workers: what was sent early is out now, all else is forgotten."""
        if workers is not self._workers:
            self.drop()
        self._tasks, self._has_looked = None, False
        workers.forget(keep_early=bool(self._sent))

    def settle(self, tasks: list[Task], guard: Guard) -> None:
        """The epoch begins with these tasks: have them out, those sent early or, if they are others, these."""
        sent, lost, outdated = self._sent, self._losses.places, self._outdated
        for told in self._losses.told:
            guard.warn(told)
        self.drop()
        is_same = len(sent) == len(tasks) and all(map(same, sent, map(guard.careful, tasks)))
        self._rest.foreseen(is_same)
        if is_same and not outdated:
            for task in tasks:
                if task.seq in lost:
                    guard.submit_again(task, lost[task.seq])
            return
        guard.workers.forget()
        for task in tasks:
            guard.submit(task)

    def outdate(self) -> None:
        """Something else is wanted of the next epoch's batches, so those sent so far will not do."""
        self._outdated = bool(self._sent)

    def drop(self) -> None:
        """What was sent is nobody's any more."""
        self._workers, self._tasks, self._sent, self._outdated = None, None, [], False
        self._losses = EarlyLosses()


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
