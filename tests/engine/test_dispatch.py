"""What goes out when, and in which order, told to workers that only write it down."""

from __future__ import annotations

import numpy as np
import pytest
from written_down import Crew

from feedline.messages.outcome import Apart, Notice, Outcome
from feedline.resume.state import Place


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
    dispatch.take(crew.lose(*lost, own=lost[0]))
    assert crew.workers.batches() == []  # they are not made before their epoch begins
    assert crew.told == []
    crew.pending_warnings += crew.recovery.pending_warnings
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


def test_where_nothing_is_known_batches_wait_for_the_first_that_is_back() -> None:
    crew = Crew(splits=True)
    crew.room = 6
    dispatch = crew.epoch(0)
    dispatch.fill()
    assert [(part.task.seq, part.start) for part in crew.workers.parts] == [
        (seq, start) for seq in range(4) for start in (0, 1)
    ]
    assert [entry.task.seq for entry in crew.ledger.unsent()] == [4, 5]
    part = crew.workers.parts.pop(0)
    part.outcome = Outcome(0, [np.array([1.0])], 1)
    dispatch.take([part])
    assert crew.ledger.unsent() == []
    assert crew.workers.batches()[-2:] == [4, 5]  # in one part each: somebody is at work


def test_a_loader_whose_batches_cannot_be_divided_has_all_that_are_made_whole_and_in_order() -> None:
    crew = Crew(splits=True)
    crew.room = 6
    dispatch = crew.epoch(0)
    dispatch.fill()
    crew.ledger.recall(crew.ledger.queue[1])
    whole = crew.ledger.whole(crew.ledger.queue[1])  # as after a death
    part = crew.workers.parts.pop(0)
    crew.workers.parts = []
    part.outcome = Outcome(0, None, 0, notice=Notice(apart=Apart.ALWAYS))
    dispatch.take([part])
    assert crew.division.never
    assert [(each.task.seq, each.task.rows) for each in crew.workers.parts] == [(seq, None) for seq in (0, 2, 3, 4, 5)]
    assert crew.ledger.is_wanted(whole)


def test_only_the_beginning_of_an_epoch_that_nobody_is_at_is_divided() -> None:
    crew = Crew(splits=True)
    crew.division.seconds = 1.0
    assert crew.splitting is not None
    for goes_on, count in ((False, 2), (True, 1)):
        crew.splitting.begin(in_order=True, goes_on=goes_on)
        assert crew.splitting.parts_for(next(crew.tasks(0)), workers=2) == count
