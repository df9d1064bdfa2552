"""Where the parts of a stream are opened after a death, and what is said of that."""

from __future__ import annotations

from typing import Any

import pytest

from feedline.engine.streams import ALL_RESTARTED, BEHIND, FROM_STATE, READ_AGAIN, TAKEN, StreamPlaces
from feedline.messages.outcome import Outcome
from feedline.messages.task import Task

ITERATORS = {"read": 4, "of": "iterator", "state": b"", "next": 4}
OURS = {**ITERATORS, "of": "dataset", "complete": True, "seen": [4, 7]}
FOREIGN = {**ITERATORS, "of": "dataset", "seen": [4, 7]}
NONE = {"read": 4, "seen": [4, 7]}
ENDED = {"ended": True}


def task(seq: int, place: Any = None, shards: int = 2) -> Task:
    return Task(seq, 0, 0, None, shards=shards, place=place)


def places(latest: dict[int, Any], is_first: bool = True, begun: Any = None, shards: int = 2) -> StreamPlaces:
    """Of two workers; some parts have made a batch."""
    found = StreamPlaces(2, is_first)
    for seq in range(shards):
        assert found.placed(task(seq, begun, shards)).place == begun
    for part, record in latest.items():
        found.note(Outcome(part, stream=(part, record)))
    return found


def test_only_the_first_task_of_a_dead_workers_part_says_where_it_stands() -> None:
    found = places({0: ITERATORS, 1: ITERATORS})
    found.lost(1)
    assert [found.placed(task(seq)).place for seq in range(4)] == [None, ITERATORS, None, None]
    found.lost(1)
    assert found.placed(task(5)).place == ITERATORS


def test_a_worker_may_have_several_parts() -> None:
    found = places(dict.fromkeys(range(4), ITERATORS), shards=4)
    found.lost(0)
    assert [found.placed(task(seq, shards=4)).place for seq in range(4)] == [ITERATORS, None, ITERATORS, None]


@pytest.mark.parametrize("begun", [None, {"anew": True, "of": "dataset", "state": b"0"}])
def test_what_is_not_complete_is_opened_where_the_epoch_began(begun: Any) -> None:
    for latest, more in [(FOREIGN, {"until": [4, 7], "instead": FOREIGN}), (NONE, {"until": [4, 7]})]:
        found = places({1: latest}, begun=begun)
        found.lost(1)
        assert found.placed(task(3)).place == {**(begun or {}), **more}
    found = places({}, begun=begun)
    found.lost(1)
    assert found.placed(task(3)).place == begun  # which the first one, that was lost, had said


@pytest.mark.parametrize(
    ("latest", "first", "later"),
    [
        ({1: ITERATORS}, TAKEN, TAKEN + ALL_RESTARTED),
        ({1: {**ITERATORS, "dataset": b""}}, FROM_STATE, FROM_STATE),
        ({1: OURS}, FROM_STATE, FROM_STATE),
        ({1: FOREIGN}, READ_AGAIN, READ_AGAIN),
        ({1: NONE}, READ_AGAIN, READ_AGAIN + BEHIND + ALL_RESTARTED),
        ({}, READ_AGAIN, READ_AGAIN + BEHIND + ALL_RESTARTED),
        ({1: ENDED}, TAKEN + ALL_RESTARTED, TAKEN + ALL_RESTARTED),
    ],
)
def test_what_is_said(latest: dict[int, Any], first: str, later: str) -> None:
    """`no batch is lost` only where that is so; workers that have not read the same serve no further epoch."""
    for is_first, expected in ((True, first), (False, later)):
        found = places(latest, is_first)
        assert found.lost(1) == expected
        assert found.out_of_step is (ALL_RESTARTED in expected)


def test_what_has_ended_is_known() -> None:
    found = places({1: ENDED})
    assert [found.has_ended(task(seq)) for seq in range(4)] == [False, True, False, True]
