"""What has been delivered, counted as it happens: whatever the order, a saved place names what the user has had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline.engine.ledger import Entry, Ledger, Part
from feedline.messages.outcome import Outcome
from feedline.messages.task import Task
from feedline.resume.passed import Passed
from feedline.resume.state import Place

BATCHES = 10
ROOM = 4


class Loop:
    """As much of the loop as there is to counting: batches come back in any order and leave as they come."""

    def __init__(self, place: Place, holds: bool) -> None:
        self.ledger = Ledger()
        self.ledger.begin(in_order=False)
        self.passed = Passed(place)
        self.had = {*range(place.batches), *place.ahead}
        """By the user, who may have been in another process before."""
        self.held: list[int] = []
        self.holds = holds
        if holds:
            self.passed.hold()
        self.tasks = self._tasks(place.batches)
        self.out: list[Part] = []

    def _tasks(self, start: int) -> Iterator[Task]:
        for seq in range(start, BATCHES):
            task = Task(seq, 0, 0, [seq, seq])
            if not self.passed.resumed_ahead or not self.passed.has(task, f"after {seq}", self.ledger.oldest()):
                yield task

    def plan(self) -> None:
        while len(self.ledger.queue) < ROOM and (task := next(self.tasks, None)) is not None:
            self.out.append(self.ledger.plan(task, f"after {task.seq}"))

    def deliver(self, part: Part) -> None:
        self.out.remove(part)
        part.outcome = Outcome(part.task.seq, size=2)
        self.ledger.take(part)
        entry = self.ledger.following
        assert entry is not None
        self.passed.delivered(entry, self.ledger.deliver(entry))
        if self.holds:
            self.held.append(entry.task.seq)
        else:
            self.had.add(entry.task.seq)

    def settle(self) -> None:
        self.passed.settle()
        self.had.update(self.held)
        self.held = []

    def check(self) -> Place:
        place = self.passed.place
        assert {*range(place.batches), *place.ahead} == self.had
        assert place.batches not in self.had
        assert place.samples == 2 * place.batches
        assert place.batches == 0 or place.sampler == f"after {place.batches - 1}"
        return place


@settings(max_examples=few(1000), deadline=None)
@given(st.booleans(), st.data())
def test_a_place_names_what_the_user_has_had(holds: bool, data: st.DataObject) -> None:
    place = Place()
    for _ in range(3):  # each goes on where the one before was left
        loop = Loop(place, holds)
        for _ in range(data.draw(st.integers(0, 8))):
            loop.plan()
            place = loop.check()
            if loop.out:
                loop.deliver(data.draw(st.sampled_from(loop.out)))
            place = loop.check()
            if data.draw(st.booleans()):
                loop.settle()
                place = loop.check()


def test_none_is_counted_while_an_earlier_one_is_held() -> None:
    passed = Passed(Place(ahead=(1,)))
    passed.hold()
    for seq in (2, 0):  # a batch with nothing in it, and one that is made ready for the user
        passed.delivered(Entry(Task(seq, 0, 0, [seq]), run=1), oldest=3)
    assert passed.has(Task(1, 0, 0, [1]), None, oldest=3)
    assert (passed.place.batches, passed.place.ahead) == (0, (1,))
    passed.settle()
    assert (passed.place.batches, passed.place.samples, passed.place.ahead) == (3, 3, ())


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_in_any_order_all_are_counted(order: list[int]) -> None:
    passed = Passed(Place())
    left = {0, 1, 2}
    for seq in order:
        left.discard(seq)
        passed.delivered(Entry(Task(seq, 0, 0, [seq]), run=1), oldest=min(left, default=3))
    assert (passed.place.batches, passed.place.ahead) == (3, ())
