"""Decisions, without any process: facts in, verdicts out."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from feedline.messages.progress import AT_ONCE, COLLATING, IDLE, INITIALISING, PREPARING, SENDING, SETTING_UP
from feedline.messages.task import Task
from feedline.supervise.policy import (
    START_SECONDS,
    Patience,
    Step,
    What,
    judge,
    late_starters,
    start_due,
    stuck,
    until_stuck,
)
from feedline.supervise.watch import Standing

TASK = Task(0, 0, 0, [1, 2, 3])
SAMPLES, DEATHS = st.integers(0, 7), st.integers(1, 5)


def history(kills: object, size: int, max_deaths: int) -> tuple[What, int, int]:
    """Give a task to one worker after the other until there is a verdict: what, which place, after how many deaths."""
    places: list[int] = []
    narrowed = False
    while True:
        places.append(kills(narrowed))  # type: ignore[operator]
        verdict = judge(places, size, max_deaths, narrowed)
        if verdict.what in (What.SAMPLE, What.BATCH):
            return verdict.what, verdict.place, len(places)
        narrowed = narrowed or verdict.what is What.NARROW


@given(SAMPLES, DEATHS)
def test_a_sample_that_always_kills_is_named_after_max_deaths(bad: int, most: int) -> None:
    assert history(lambda narrowed: bad, 8, most) == (What.SAMPLE, bad, most)


@given(SAMPLES, DEATHS)
def test_read_at_once_it_takes_one_more_to_find_it(bad: int, most: int) -> None:
    assert history(lambda narrowed: bad if narrowed else AT_ONCE, 8, most) == (What.SAMPLE, bad, most + 1)


@given(DEATHS)
def test_a_batch_of_one_needs_no_narrowing(most: int) -> None:
    assert history(lambda narrowed: AT_ONCE, 1, most) == (What.SAMPLE, 0, most)


@given(st.sampled_from([COLLATING, SENDING]), DEATHS)
def test_a_collate_function_that_kills_is_the_batchs_fault(place: int, most: int) -> None:
    assert history(lambda narrowed: place, 8, most) == (What.BATCH, -1, most)


@given(st.lists(st.sampled_from([*range(8), AT_ONCE, COLLATING, SENDING, PREPARING]), min_size=20), DEATHS)
def test_whatever_happens_there_is_an_end(places: list[int], most: int) -> None:
    following = iter(places)
    assert history(lambda narrowed: next(following), 8, most)[2] <= 2 * most + 2  # one more after narrowing


@given(st.lists(SAMPLES, unique=True, min_size=1, max_size=4))
def test_deaths_at_different_samples_blame_none(places: list[int]) -> None:
    assert judge(places, 8, 2, narrowed=False).what is What.RETRY


@given(st.floats(0.2, 1e4), st.floats(0, 1e6))
def test_warnings_come_at_growing_intervals_each_with_stacks_asked_for_before(after: float, began: float) -> None:
    patience, told, now = Patience(began, after, limit=0), [], began
    for _ in range(4):
        assert patience.step(now) is Step.WAIT
        now = patience.due
        assert patience.step(now) is Step.ASK
        assert patience.step(now) in (Step.WAIT, Step.TELL)
        now = patience.due
        assert patience.step(now) is Step.TELL
        told.append(now - began)
    assert math.isclose(told[0], after, rel_tol=1e-6)
    gaps = [later - earlier for earlier, later in zip([0.0, *told], told, strict=False)]
    assert all(later > 1.9 * earlier for earlier, later in pairwise(gaps))


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4))
def test_the_limit_comes_on_time_whatever_was_said_before(after: float, limit: float) -> None:
    patience = Patience(0.0, after, limit)
    while True:
        now = patience.due
        assert now <= limit
        if patience.step(now) is Step.LIMIT:
            assert math.isclose(now, limit)
            return


def test_no_warning_and_no_timeout_is_for_ever() -> None:
    assert math.isinf(Patience(0.0, 0.0, 0.0).due)


def test_who_is_stuck() -> None:
    at = [
        Standing(0, 10, TASK, 2, 9.0),
        Standing(1, 11, TASK, 1, 3.0),
        Standing(2, 12, None, IDLE, 99.0),
        Standing(3, 13, TASK, COLLATING, 7.0),
        Standing(4, 14, None, INITIALISING, 99.0),
        Standing(5, 15, None, SETTING_UP, 99.0),
        Standing(6, 16, None, IDLE, 99.0, "stopped"),
    ]
    assert [standing.worker for standing in stuck(at, 5.0)] == [0, 3, 4, 6]
    assert until_stuck(at, 5.0) == 2.0
    assert until_stuck(at[:1], 5.0) == 5.0


def test_who_should_have_been_ready() -> None:
    young, old = Standing(0, 1, None, SETTING_UP, 1.0), Standing(1, 2, None, SETTING_UP, START_SECONDS)
    busy = Standing(2, 3, None, INITIALISING, 10 * START_SECONDS)
    assert late_starters([young, old, busy]) == [old]
    assert start_due([young, busy]) == START_SECONDS - 1
    assert start_due([young, old]) == 0
    assert math.isinf(start_due([busy]))
