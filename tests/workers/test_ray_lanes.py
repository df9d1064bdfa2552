"""Which parts a call to a worker of a cluster carries; Ray is not needed for that."""

from __future__ import annotations

from itertools import count

import pytest

from feedline.engine.ledger import Ledger, Part
from feedline.messages.task import Task
from feedline.workers.ray_lanes import SHARE_OF_STORE, WORTHWHILE, Lanes

numbers = count()


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.begin(True)
    return ledger


def parts(ledger: Ledger, size: int) -> list[Part]:
    return [ledger.whole(ledger.add(Task(seq, 0, 0, (seq,)), seq)) for seq in range(size)]


def filled(ledger: Ledger, size: int, store: float = 1e9, own: bool = False, makes_all: bool = False) -> Lanes:
    lanes = Lanes(own, makes_all)
    lanes.open(2 if own else 1, store)
    for part in parts(ledger, size):
        lanes.add(part, first=False)
    return lanes


def taken(lanes: Lanes, worker: int = 0, ready: int = 2, out: int = 0) -> list[int]:
    chosen, unwanted = lanes.take(worker, lanes.oldest, ready, out)
    assert not unwanted
    return [part.task.seq for part in chosen]


def test_a_call_carries_enough_work_but_not_that_of_others(ledger):
    lanes = filled(ledger, 20)
    assert taken(lanes) == [0]  # nothing is known of what a batch costs
    lanes.made(1, 2 * WORTHWHILE, 100)
    assert taken(lanes) == [1]
    lanes.made(1, WORTHWHILE / 4, 100)
    assert taken(lanes) == [2, 3, 4, 5]
    assert taken(lanes, ready=7) == [6, 7]
    lanes.made(2, 0.0, 100)  # so short that the clock does not see it
    assert taken(lanes, ready=2) == [8, 9, 10, 11, 12, 13]


def test_no_more_are_out_than_the_store_holds_but_one_always_is(ledger):
    lanes = filled(ledger, 9, store=400 / SHARE_OF_STORE)
    assert taken(lanes) == [0]
    lanes.made(1, 0.0, 100)
    assert taken(lanes, ready=1, out=2) == [1, 2]
    lanes.unopened = 3
    assert taken(lanes, ready=1) == [3]
    assert taken(lanes, ready=1, out=1) == []
    lanes.unopened = 0
    lanes.made(1, 0.0, 1000)
    assert taken(lanes, ready=1) == [4]


def test_the_first_goes_before_all_others_and_what_is_over_is_given_back(ledger):
    lanes = filled(ledger, 2)
    (late,) = parts(ledger, 1)
    lanes.add(late, first=True)
    lanes.oldest = ledger.run + 1
    chosen, unwanted = lanes.take(0, -1, 1, 0)
    assert (chosen, unwanted[0], len(unwanted)) == ([], late, 3)


def test_workers_with_lanes_of_their_own_stay_in_step(ledger):
    lanes = filled(ledger, 6, own=True)
    lanes.oldest = ledger.run + 1
    chosen, unwanted = lanes.take(1, ledger.run - 1, 2, 0)  # it has not opened that run yet
    assert [part.worker for part in chosen] == [chosen[0].task.lane % 2]
    assert not unwanted
    lanes = filled(ledger, 6, own=True, makes_all=True)
    lanes.oldest = ledger.run + 1
    assert taken(lanes, worker=chosen[0].worker)


def test_what_a_dead_worker_leaves_is_lost_only_with_lanes_of_their_own(ledger):
    assert filled(ledger, 4).lost(0) == []
    lanes = filled(ledger, 4, own=True)
    lost = [part.task.seq for worker in (0, 1) for part in lanes.lost(worker)]
    assert sorted(lost) == [0, 1, 2, 3]
    assert not lanes.has_own(0)
