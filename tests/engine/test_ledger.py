"""The ledger: any interleaving of sending, answers, deaths, leaving and new runs delivers each batch once."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kinds import few

from feedline.engine.ledger import Entry, Ledger, Part
from feedline.messages.outcome import Outcome
from feedline.messages.task import Task

WORKERS = 3


def task(seq: int, size: int = 4) -> Task:
    return Task(seq, 0, 0, list(range(size)))


def answered(part: Part, outcome: Outcome) -> Part:
    """The part, as workers give it back."""
    part.outcome = outcome
    return part


def parts_of(ledger: Ledger, entry: Entry, count: int) -> list[Part]:
    """The entry, sent out in so many parts."""
    if count == 1:
        return [ledger.whole(entry)]
    edges = [4 * number // count for number in range(count + 1)]
    tasks = [
        (start, entry.task._replace(indices=list(range(start, stop)), rows=(start, stop, 4, 1)))
        for start, stop in pairwise(edges)
    ]
    return list(ledger.divide(entry, tasks))


class Workers(RuleBasedStateMachine):
    """Whoever is free reads the next part; some die, and some of those had just read one without a trace."""

    in_order = True
    own_lanes = False

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.ledger.begin(self.in_order)
        self.seq = 0
        self.unread: list[Part] = []
        self.at: dict[int, Part] = {}
        self.read: dict[int, Part] = {}  # read, and nothing says so yet
        self.pids = dict(enumerate(range(100, 100 + WORKERS)))
        self.planned: list[int] = []
        self.settled: list[int] = []
        self.delivered: list[int] = []
        self.made: dict[int, int] = {}

    def send(self, entry: Entry, count: int, first: bool = False) -> None:
        parts = parts_of(self.ledger, entry, count)
        for part in parts:
            part.worker = part.task.seq % WORKERS if self.own_lanes else part.worker
        self.unread = [*parts, *self.unread] if first else [*self.unread, *parts]

    @rule(count=st.integers(1, 3), skip=st.integers(0, 2))
    def plan(self, count: int, skip: int) -> None:
        self.seq += 1 + skip
        self.planned.append(self.seq)
        self.send(self.ledger.add(task(self.seq)), count)

    @rule()
    def plan_and_keep_back(self) -> None:
        self.seq += 1
        self.planned.append(self.seq)
        self.ledger.add(task(self.seq))

    @rule(count=st.integers(1, 2))
    def send_what_was_kept_back(self, count: int) -> None:
        for entry in self.ledger.unsent():
            self.send(entry, count)

    @precondition(lambda self: self.unread)
    @rule(worker=st.integers(0, WORKERS - 1), says_so=st.booleans())
    def begin_one(self, worker: int, says_so: bool) -> None:
        mine = [part for part in self.unread if not self.own_lanes or part.worker == worker]
        if mine and worker not in self.at and worker not in self.read:
            self.unread.remove(mine[0])
            (self.at if says_so else self.read)[worker] = mine[0]

    @rule(worker=st.integers(0, WORKERS - 1))
    def say_so(self, worker: int) -> None:
        """Whoever has read one without a trace says now what it is at."""
        if worker in self.read:
            self.at[worker] = self.read.pop(worker)

    @rule(worker=st.integers(0, WORKERS - 1))
    def finish_one(self, worker: int) -> None:
        part = self.at.pop(worker, None) or self.read.pop(worker, None)
        if part is not None:
            assert part.serial in self.ledger.out, "its place might have been somebody else's"
            self.answer(part)

    def answer(self, part: Part) -> None:
        entry = self.ledger.take(answered(part, Outcome(part.task.seq, size=1)))
        if entry is None:
            return
        if entry.outcome is None:
            self.ledger.settle(entry, Outcome(entry.task.seq, size=len(entry.parts)))
        if entry.run == self.ledger.run:
            self.settled.append(entry.task.seq)

    @rule(worker=st.integers(0, WORKERS - 1))
    def die(self, worker: int) -> None:
        own = self.at.pop(worker, None)
        silent = self.read.pop(worker, None)
        self.pids[worker] += 100
        if self.own_lanes:
            lost = self.ledger.held_by(worker)
            assert {part.serial for part in lost} >= {part.serial for part in (own, silent) if part is not None}
            self.unread = [part for part in self.unread if part.worker != worker]
        else:
            at = {
                other: (self.pids[other], self.at[other].serial if other in self.at else 0)
                for other in range(WORKERS)
                if other != worker
            }
            lost, freed = self.ledger.missing(own.serial if own else 0, {part.serial for part in self.unread}, at)
            self.unread = []
            in_use = {part.serial for part in (*self.at.values(), *self.read.values())}
            assert not in_use & {part.serial for part in freed}, "somebody still writes there"
        for entry in {part.entry: None for part in lost if self.ledger.is_wanted(part)}:
            self.ledger.recall(entry)
            self.send(entry, 1, first=True)

    @precondition(lambda self: self.ledger.following is not None)
    @rule()
    def deliver(self) -> None:
        entry = self.ledger.following
        assert entry is not None
        waiting = [seq for seq in self.planned if seq not in self.delivered]
        assert entry.task.seq == (waiting[0] if self.in_order else self.settled[0])
        self.ledger.deliver(entry)
        self.delivered.append(entry.task.seq)
        self.settled.remove(entry.task.seq)

    @rule()
    def leave(self) -> None:
        self.ledger.begin(self.in_order)
        self.planned, self.settled, self.delivered = [], [], []

    @invariant()
    def nothing_is_lost_or_twice(self) -> None:
        assert len(self.ledger.queue) == len(self.planned) - len(self.delivered)
        assert len(set(self.delivered)) == len(self.delivered)
        assert self.ledger.back == len(self.settled)
        assert self.ledger.has_divided == any(part.task.rows is not None for part in self.ledger.out.values())

    def teardown(self) -> None:
        """In the end all come to life, do what there is to do, and nothing is out."""
        self.send_what_was_kept_back(1)
        while self.at or self.read or self.unread:
            for worker in range(WORKERS):
                self.finish_one(worker)
                self.begin_one(worker, True)
        while self.ledger.following is not None:
            self.deliver()
        assert self.delivered == self.planned if self.in_order else sorted(self.delivered) == self.planned
        self.die(0)  # after which all that may still be missing is accounted for, because the others are at rest
        for worker in range(WORKERS):
            self.pids[worker] += 100
        self.die(0)
        assert not self.ledger.out


class AsTheyCome(Workers):
    in_order = False


class EachItsOwn(Workers):
    own_lanes = True


for _machine in (Workers, AsTheyCome, EachItsOwn):
    _machine.TestCase.settings = settings(max_examples=few(300), deadline=None, stateful_step_count=40)
TestInOrder = Workers.TestCase
TestAsTheyCome = AsTheyCome.TestCase
TestEachItsOwn = EachItsOwn.TestCase


@given(st.integers(1, 5), st.booleans(), st.data())
def test_what_was_sent_early_is_delivered_in_the_next_run_or_never(
    count: int, in_order: bool, data: st.DataObject
) -> None:
    ledger = Ledger()
    ledger.begin()
    now = ledger.whole(ledger.add(task(7)))
    early = [ledger.whole(ledger.add_early(task(seq))) for seq in range(count)]
    before = data.draw(st.lists(st.sampled_from(early), unique=True))
    for part in before:
        ledger.take(answered(part, Outcome(part.task.seq, size=1)))
    assert ledger.following is None
    assert ledger.back == 0
    left_early = data.draw(st.booleans())
    if not left_early:
        ledger.take(answered(now, Outcome(7, size=1)))
        ledger.deliver(ledger.following or pytest.fail("it is back"))
    ledger.begin(in_order)
    between = data.draw(st.lists(st.sampled_from(early), unique=True).map(lambda parts: set(parts) - set(before)))
    for part in between:
        assert ledger.take(answered(part, Outcome(part.task.seq, size=1))) is part.entry
    assert ledger.following is None
    assert ledger.back == 0
    adopted = data.draw(st.booleans())
    if adopted:
        for entry in ledger.early:
            ledger.adopt(entry, entry.task, "state")
        ledger.early = []
    else:
        ledger.drop_early()
    for part in early:
        if part not in before and part not in between:
            ledger.take(answered(part, Outcome(part.task.seq, size=1)))
    ledger.take(answered(now, Outcome(7, size=1)))
    seen: list[Any] = []
    while (entry := ledger.following) is not None:
        ledger.deliver(entry)
        seen.append(entry.task.seq)
    assert (seen if in_order else sorted(seen)) == (list(range(count)) if adopted else [])
    assert not ledger.out
    assert ledger.back == 0


def test_a_second_answer_and_one_of_nobody_are_dropped() -> None:
    ledger = Ledger()
    ledger.begin()
    entry = ledger.add(task(0))
    first = ledger.whole(entry)
    ledger.recall(entry)
    again = ledger.whole(entry)
    assert ledger.take(answered(first, Outcome(0, "late"))) is None
    assert ledger.take(answered(Part(99, entry, entry.task), Outcome(0))) is None
    assert ledger.take(answered(again, Outcome(0, "right"))) is entry
    assert ledger.take(answered(again, Outcome(0, "twice"))) is None
    assert entry.outcome == Outcome(0, "right")


def test_a_sample_is_named_by_its_place_in_the_batch() -> None:
    ledger = Ledger()
    ledger.begin()
    _, second = parts_of(ledger, ledger.add(task(0)), 2)
    assert (second.place(1), second.place(-3)) == (3, -3)


def test_what_was_sent_early_for_a_run_that_was_left_before_it_was_taken_over_is_dropped() -> None:
    ledger = Ledger()
    ledger.begin()
    part = ledger.whole(ledger.add_early(task(0)))
    ledger.begin()
    ledger.end()  # the run for which it was sent
    assert not ledger.early
    ledger.begin()
    assert not ledger.early
    assert not ledger.is_wanted(part)
    assert ledger.take(answered(part, Outcome(0, "late"))) is None


def test_what_is_dropped_is_gone_without_the_garbage_collector() -> None:
    class Batch:
        """Something that can be seen to go."""

    def answer(part: Part) -> weakref.ref[Batch]:
        batch = Batch()
        part.outcome = Outcome(0, batch)
        return weakref.ref(batch)

    gc.disable()
    try:
        for leave in (Ledger.begin, Ledger.end, Ledger.clear, lambda ledger: ledger.let_go_later()()):
            ledger = Ledger()
            ledger.begin()
            came = ledger.plan(task(0))
            late = ledger.plan(task(1))
            gone = [answer(came), answer(late)]
            ledger.take(came)
            del came
            leave(ledger)
            ledger.take(late)
            del late
            assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


def test_a_run_that_is_let_go_late_takes_nothing_from_the_next() -> None:
    ledger = Ledger()
    ledger.begin(in_order=False)
    let_go = ledger.let_go_later()
    ledger.begin(in_order=False)
    ledger.take(answered(ledger.plan(task(0)), Outcome(0)))
    let_go()
    assert ledger.following is not None


def test_a_stopped_ledger_has_nothing() -> None:
    ledger = Ledger()
    ledger.begin()
    parts_of(ledger, ledger.add(task(0)), 2)
    ledger.whole(ledger.add_early(task(0)))
    ledger.clear()
    assert (ledger.out, ledger.early, list(ledger.queue), ledger.has_divided) == ({}, [], [], False)


def test_the_place_of_a_part_stays_its_own_while_somebody_is_found_to_be_at_it() -> None:
    ledger = Ledger()
    ledger.begin()
    part = ledger.plan(task(0))
    # Worker 0 has read it and not said so when worker 1 dies; it has said so when worker 2 dies.
    assert ledger.missing(0, [], {0: (100, 0), 2: (102, 0)}) == ([part], [])
    assert ledger.missing(0, [], {0: (100, part.serial)}) == ([], [])
    assert part.serial in ledger.out
    assert ledger.missing(0, [], {0: (100, 99)}) == ([], [part])  # it is at something else: it never had it


def test_first_is_who_was_sent_first_of_those_that_are_wanted() -> None:
    ledger = Ledger()
    ledger.begin()
    dropped, first, second = (ledger.plan(task(seq)) for seq in range(3))
    assert ledger.is_first(dropped)
    ledger.recall(dropped.entry)
    assert [ledger.is_first(part) for part in (dropped, first, second)] == [False, True, False]


def test_the_place_that_parts_share_is_kept_by_whoever_is_still_out() -> None:
    class Place:
        """Something that can be seen to go."""

    ledger, place = Ledger(), Place()
    ledger.begin()
    entry = ledger.add(task(0))
    tasks = [(start, entry.task._replace(rows=(start, start + 2, 4, 2))) for start in (0, 2)]
    back, writing = ledger.divide(entry, tasks, place)
    kept = weakref.ref(place)
    del place
    ledger.take(answered(back, Outcome(0)))
    ledger.recall(entry)  # and sent out anew, while somebody still fills his rows
    assert back.joint is None
    assert writing.joint is kept() is not None
    ledger.take(answered(writing, Outcome(0)))
    del writing
    assert kept() is None
