"""Delivery: whatever order outcomes come in, each leaves once, in task order or as they came."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kinds import few

from feedline.line.deliver import Delivery
from feedline.messages import Outcome

SEQS = st.lists(st.integers(0, 1000), unique=True, max_size=30).map(sorted)


def drained(delivery: Delivery) -> list[int]:
    left = []
    while (outcome := delivery.pop()) is not None:
        left.append(outcome.seq)
    return left


@given(SEQS, st.data())
def test_any_order_of_arrival_leaves_in_task_order_as_early_as_it_can(seqs: list[int], data: st.DataObject) -> None:
    delivery = Delivery(in_order=True)
    for seq in seqs:
        delivery.expect(seq)
    arrived: set[int] = set()
    left: list[int] = []
    for seq in data.draw(st.permutations(seqs)):
        delivery.put(Outcome(seq))
        arrived.add(seq)
        left += drained(delivery)
        whole = next((place for place, seq in enumerate(seqs) if seq not in arrived), len(seqs))
        assert left == seqs[:whole]
    assert left == seqs
    assert len(delivery) == 0


@given(SEQS, st.data())
def test_as_they_come_means_as_they_came(seqs: list[int], data: st.DataObject) -> None:
    delivery = Delivery(in_order=False)
    for seq in seqs:
        delivery.expect(seq)
    arrivals = data.draw(st.permutations(seqs))
    for seq in arrivals:
        delivery.put(Outcome(seq))
    assert drained(delivery) == arrivals


@pytest.mark.parametrize("in_order", [True, False])
def test_what_is_not_waited_for_is_dropped(in_order: bool) -> None:
    delivery = Delivery(in_order)
    delivery.put(Outcome(0, "never sent out"))
    delivery.expect(1)
    delivery.put(Outcome(1, "first"))
    delivery.put(Outcome(1, "run again"))
    assert delivery.pop() == Outcome(1, "first")
    delivery.put(Outcome(1, "late"))
    assert delivery.pop() is None
    assert len(delivery) == 0


class Deliveries(RuleBasedStateMachine):
    """Tasks sent out, run once or several times, and taken, in any interleaving."""

    in_order = True

    def __init__(self) -> None:
        super().__init__()
        self.delivery = Delivery(self.in_order)
        self.out: list[int] = []
        self.back: list[int] = []
        self.left: list[int] = []
        self.runs = 0
        self.next_seq = 0

    @rule(skip=st.integers(0, 3))
    def send_out(self, skip: int) -> None:
        self.next_seq += 1 + skip  # a stream's plan skips the turns of shards that have ended
        self.delivery.expect(self.next_seq)
        self.out.append(self.next_seq)

    @precondition(lambda self: self.next_seq)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        seq = data.draw(st.integers(0, self.next_seq))
        self.runs += 1
        self.delivery.put(Outcome(seq, batch=self.runs))
        if seq in self.out and seq not in self.back + self.left:
            self.back.append(seq)

    @rule()
    def take(self) -> None:
        outcome: Any = self.delivery.pop()
        waiting = [seq for seq in self.out if seq not in self.left]
        expected = self.back[:1] if not self.in_order else [seq for seq in waiting[:1] if seq in self.back]
        assert ([outcome.seq] if outcome else []) == expected
        if outcome:
            self.back.remove(outcome.seq)
            self.left.append(outcome.seq)

    @invariant()
    def nothing_is_lost_or_twice(self) -> None:
        assert len(self.delivery) == len(self.out) - len(self.left)
        assert len(set(self.left)) == len(self.left)


class DeliveriesAsTheyCome(Deliveries):
    in_order = False


Deliveries.TestCase.settings = DeliveriesAsTheyCome.TestCase.settings = settings(max_examples=few(60), deadline=None)
TestInOrder = Deliveries.TestCase
TestAsTheyCome = DeliveriesAsTheyCome.TestCase
