"""How much of its time a thread holds the GIL: what the looks of a rival thread say."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.machine.gil import Looks, Rival, counts, gil_is_on, wanted

HOLDING = Looks(32, 30, seconds=10.0, computing=10.0)
WAITING = Looks(32, 1, seconds=10.0, computing=0.5)


def seen_of(work: Callable[[], object], computing: float = 0.0) -> Looks:
    """What is seen until there were 16 looks, and the work has had so many seconds of a CPU: on a busy machine there
    may be many looks while it waits for one."""
    rival, began = Rival(), time.thread_time()
    rival.begin()
    while rival.looked < 16 or time.thread_time() - began < computing:
        work()
    rival.end()
    rival.stop()
    return rival.take()


def test_a_look_sees_who_holds_the_gil() -> None:
    holding, waiting = seen_of(lambda: sum(range(1_000)), computing=0.1), seen_of(lambda: time.sleep(0.01))
    assert holding.held_share > waiting.held_share or not gil_is_on()
    assert waiting.on_cpu < holding.on_cpu


def test_what_holds_the_gil_between_tasks_is_no_work() -> None:
    assert counts(3.0, began=2.0, ended=1.0), "at work, for the second time"
    assert counts(3.0, began=2.0, ended=3.5), "looked at while it worked, seen afterwards"
    assert counts(3.0, began=4.0, ended=3.5), "seen while the next task was under way"
    assert not counts(3.0, began=2.0, ended=2.5), "after the end"
    assert not counts(3.0, began=3.5, ended=2.5), "in the pause, seen while the next task was under way"


def test_nothing_is_seen_twice() -> None:
    rival = Rival()
    rival.begin()
    while not rival.looked:
        time.sleep(0.001)
    rival.end()
    rival.stop()
    first = rival.take()
    assert first.looked >= 1
    assert first.seconds > 0
    assert rival.take() == Looks()


@pytest.mark.parametrize("cpus", [1, 4])
def test_many_threads_that_wait_want_little_of_the_gil_and_one_that_holds_it_wants_it_all(cpus: int) -> None:
    assert wanted(WAITING, workers=4, cpus=cpus) < 0.5 < wanted(HOLDING, workers=1, cpus=cpus)


@given(st.integers(1, 64), st.integers(0, 32), st.integers(0, 32), st.floats(0.1, 64))
def test_who_holds_it_longer_wants_no_less(workers: int, one: int, other: int, cpus: float) -> None:
    less, more = (Looks(32, held, 10.0, 10.0) for held in sorted((one, other)))
    assert wanted(less, workers, cpus) <= wanted(more, workers, cpus)
