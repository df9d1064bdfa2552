"""Workers that only write down what they are told, and a set of them: what the engine decides, seen without a process.

Takes: tasks of two epochs of six batches. Gives: what is sent and in which order, whom a death is told to, and when.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feedline.collate.pieces import NUMPY
from feedline.engine.batch_splitting import Splitting
from feedline.engine.contract import Traits
from feedline.engine.dispatch import Dispatch
from feedline.engine.division import Division
from feedline.engine.ledger import Ledger, Part
from feedline.engine.next_epoch import NextEpoch
from feedline.engine.recovery import Recovery
from feedline.messages.outcome import Outcome
from feedline.messages.progress import IDLE
from feedline.messages.task import Task
from feedline.observe.meter import Meter, Spent
from feedline.options import ErrorPolicy
from feedline.order.plan import MapTasks
from feedline.resume.passed import Passed
from feedline.resume.state import Place
from feedline.supervise.watch import Death, Standing


class Pipe:
    """Workers: what nobody has read, in the order it will be read."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.dropped_before = 0
        self.revived: list[int] = []
        self.refuses = False
        self.traits = Traits(None, lambda: Spent(10**10))  # a sample takes long

    def send(self, part: Part, first: bool = False) -> None:
        self.parts.insert(0 if first else len(self.parts), part)

    def drop_before(self, run: int) -> None:
        self.dropped_before = run

    def revive(self, number: int, elsewhere: bool) -> None:
        if self.refuses:
            raise OSError("no more processes")
        self.revived.append(number)

    def standing(self) -> list[Standing]:
        return [Standing(1, 78, None, IDLE, 0.0)]  # somebody is left

    def batches(self) -> list[int]:
        return [part.task.seq for part in self.parts]


class Crew:
    """A set of workers, as far as sending goes."""

    works_ahead = True
    scaling = None
    room = 4
    count = 2

    def __init__(self, splits: bool = False, **care: Any) -> None:
        self.ledger, self.workers, self.pending_warnings = Ledger(), Pipe(), list[str]()
        self.next_epoch = NextEpoch()
        self.care = ErrorPolicy(**care)
        workers: Any = self.workers
        self.division = Division()
        self.splitting = Splitting(NUMPY, self.division, self.ledger, workers) if splits else None

    def epoch(self, number: int, place: Place | None = None) -> Dispatch:
        """It begins."""
        self.ledger.begin()
        self.next_epoch.begin()
        workers: Any = self.workers
        self.told: list[str] = []
        meter = Meter(number, 2, Spent())
        self.recovery = Recovery(workers, self.ledger, self.care, lambda index: "", self.told.append, {}, meter)
        if self.splitting is not None:
            self.splitting.begin(in_order=True, goes_on=bool(self.ledger.early))
        begin = place or Place(epoch=number)
        crew: Any = self
        return Dispatch(
            self.tasks(number, begin.batches),
            Passed(begin),
            crew,
            self.recovery,
            None,
            self.next_epoch,
            lambda: self.tasks(number + 1),
        )

    def tasks(self, epoch: int, start: int = 0) -> MapTasks:
        return MapTasks(Task(seq, epoch, 0, np.array([seq, 100 + seq])) for seq in range(start, 6))

    def lose(self, *parts: Part, own: Part | None = None, place: int = 0, worker: int = 0) -> list[Part | Death]:
        """A worker's death, of which these parts are lost."""
        for part in parts:
            self.ledger.abandon(part)
            if part in self.workers.parts:
                self.workers.parts.remove(part)
        return [Death(worker, 77, -9, own, place, 0, "", parts)]

    def deliver(self, dispatch: Dispatch, count: int) -> None:
        """So many batches, each made by whoever reads it and delivered in order."""
        for _ in range(count):
            dispatch.fill()
            while self.ledger.following is None:
                part = self.workers.parts.pop(0)
                part.outcome = Outcome(part.task.seq, size=1)
                dispatch.take([part])
            self.ledger.deliver(self.ledger.following)
