"""What goes out when, and in which order, told to workers that only write it down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from feedline.engine.dispatch import Dispatch
from feedline.engine.ledger import Ledger, Part
from feedline.engine.next_epoch import NextEpoch
from feedline.engine.recovery import Recovery
from feedline.line.passed import Passed
from feedline.line.plan import MapTasks
from feedline.messages import Outcome, Task
from feedline.observe.meter import Meter, Spent
from feedline.options import Care
from feedline.state import Place
from feedline.supervise.watch import Death


class Pipe:
    """Workers: what nobody has read, in the order it will be read."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.dropped_before = 0
        self.revived: list[int] = []

    def send(self, part: Part, first: bool = False) -> None:
        self.parts.insert(0 if first else len(self.parts), part)

    def drop_before(self, run: int) -> None:
        self.dropped_before = run

    def revive(self, number: int, elsewhere: bool) -> None:
        self.revived.append(number)

    def batches(self) -> list[int]:
        return [part.task.seq for part in self.parts]


class Crew:
    """A set of workers, as far as sending goes."""

    works_ahead = True
    has_to_switch = False
    scaling = splitting = None
    room = 4
    count = 2

    def __init__(self) -> None:
        self.ledger, self.workers, self.untold = Ledger(), Pipe(), list[str]()
        self.next_epoch = NextEpoch()

    def epoch(self, number: int, place: Place | None = None) -> Dispatch:
        """It begins."""
        self.ledger.begin()
        self.next_epoch.begin()
        workers: Any = self.workers
        self.told: list[str] = []
        meter = Meter(number, 2, Spent())
        self.recovery = Recovery(workers, self.ledger, Care(), lambda index: "", self.told.append, {}, meter)
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
        return MapTasks(Task(seq, epoch, 0, np.array([seq])) for seq in range(start, 6))

    def deliver(self, dispatch: Dispatch, count: int) -> None:
        """So many batches, each made by whoever reads it and delivered in order."""
        for _ in range(count):
            dispatch.fill()
            while self.ledger.following is None:
                part = self.workers.parts.pop(0)
                part.outcome = Outcome(part.task.seq, size=1)
                dispatch.take([part])
            self.ledger.deliver(self.ledger.following)


@pytest.fixture
def crew() -> Crew:
    return Crew()


def test_no_more_is_out_than_there_is_room_for(crew: Crew) -> None:
    dispatch = crew.epoch(0)
    dispatch.fill()
    assert crew.workers.batches() == [0, 1, 2, 3]
    dispatch.held = 1  # one that is delivered keeps its place
    crew.deliver(dispatch, 1)
    dispatch.fill()
    assert len(crew.ledger.queue) == 3
    dispatch.held = 0
    dispatch.fill()
    assert len(crew.ledger.queue) == 4


def test_free_places_are_the_next_epochs_when_all_of_this_one_is_out(crew: Crew) -> None:
    dispatch = crew.epoch(0)
    crew.deliver(dispatch, 4)
    dispatch.fill()
    assert [(part.task.epoch, part.task.seq) for part in crew.workers.parts] == [(0, 4), (0, 5), (1, 0), (1, 1)]


def test_early_batches_that_were_lost_go_first_and_in_order(crew: Crew) -> None:
    dispatch = crew.epoch(0)
    crew.deliver(dispatch, 6)
    dispatch.fill()
    early, crew.workers.parts = crew.workers.parts, []
    kept, lost = early[0], early[1:]
    assert [part.task.seq for part in lost] == [1, 2, 3]
    for part in lost:
        crew.ledger.abandon(part)
    dispatch.take([Death(0, 77, -9, lost[0], 0, 0, "", tuple(lost))])
    assert crew.workers.batches() == []  # they are not made before their epoch begins
    assert crew.told == []
    crew.untold += crew.recovery.untold
    crew.workers.parts = [kept]
    dispatch = crew.epoch(1)
    dispatch.fill()
    assert crew.workers.batches() == [1, 2, 3, 0]
    assert len(crew.told) == 1
    assert crew.ledger.queue[1].deaths == (0,)
    crew.deliver(dispatch, 6)
    assert crew.workers.revived == [0]


def test_an_epoch_that_goes_on_in_its_middle_takes_nothing_over(crew: Crew) -> None:
    dispatch = crew.epoch(0)
    crew.deliver(dispatch, 6)
    dispatch.fill()
    crew.workers.parts = []
    dispatch = crew.epoch(1, Place(epoch=1, ahead=(1,)))
    dispatch.fill()
    assert crew.workers.dropped_before == crew.ledger.run
    assert crew.workers.batches() == [0, 2, 3, 4]
    assert not crew.ledger.early


def test_an_epoch_that_was_not_foreseen_begins_anew(crew: Crew) -> None:
    dispatch = crew.epoch(0)
    crew.deliver(dispatch, 6)
    dispatch.fill()
    crew.workers.parts = []
    dispatch = crew.epoch(5)
    dispatch.fill()
    assert [(part.task.epoch, part.task.seq) for part in crew.workers.parts] == [(5, 0), (5, 1), (5, 2), (5, 3)]
    assert crew.workers.dropped_before == crew.ledger.run
