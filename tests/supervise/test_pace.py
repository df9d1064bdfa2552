"""How many workers: the decisions, on machines that exist in numbers only."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few
from paced_machine import Simulated, window

from feedline.observe.window import LITTLE_WAITING, Setting
from feedline.supervise.pace import LEAST_FREE, LONGEST_PATIENCE, MOST_AHEAD, PATIENCE, Means, Pace

MOST = 32
SETTLED = 25
"""Windows after which a pace has come to rest: it doubles five times at most, and looks back as often."""

machines = st.builds(
    Simulated,
    cpus=st.sampled_from([1, 2, 4, 16, 64]),
    computing=st.floats(-5, -1).map(lambda power: 10**power),
    waiting=st.one_of(st.just(0.0), st.floats(-4, 0).map(lambda power: 10**power)),
    step=st.one_of(st.just(0.0), st.floats(-5, 0).map(lambda power: 10**power)),
    noise=st.sampled_from([0.0, 0.01, 0.02]),
    seed=st.integers(0, 1000),
    told=st.booleans(),
)
many = settings(max_examples=few(200))


def paced(start: int = 1, most: int = MOST, **more: bool) -> Pace:
    return Pace(Setting(start, 2), most, **more)


@given(machine=machines)
@many
def test_it_comes_near_the_best_number_there_is(machine: Simulated) -> None:
    pace = paced()
    went = machine.run(pace, SETTLED)
    assert machine.cost(went[-1]) <= 1.1 * machine.best(MOST), (went, pace.reason)


@given(machine=machines)
@many
def test_it_comes_to_rest_and_stays_there(machine: Simulated) -> None:
    pace = paced()
    machine.run(pace, SETTLED)
    assert pace.settled
    assert len(set(machine.run(pace, 100))) <= 2  # what the noise can bring up once
    assert pace.settled


@given(machine=machines, limit=st.integers(1 << 28, 1 << 33), worker=st.integers(1 << 22, 1 << 30))
@many
def test_it_never_goes_past_the_memory_there_is(machine: Simulated, limit: int, worker: int) -> None:
    machine = replace(machine, limit=limit, worker=worker, batch=worker // 10, used=limit // 10)
    began = machine.memory(Setting(1, 2))
    for setting in machine.run(paced(), 40):
        assert machine.memory(setting) <= max(began, limit * (1 - LEAST_FREE))


@given(machine=machines, faster=st.sampled_from([0.02, 0.1, 10.0, 50.0]))
@many
def test_when_the_step_changes_it_comes_near_the_best_again(machine: Simulated, faster: float) -> None:
    pace = paced()
    machine.run(pace, SETTLED)
    machine.step = max(machine.step, 1e-4) * faster
    went = machine.run(pace, SETTLED + LONGEST_PATIENCE)
    assert machine.cost(went[-1]) <= 1.1 * 1.3 * machine.best(MOST), (went, pace.reason)


@given(seed=st.integers(0, 10_000), noise=st.sampled_from([0.1, 0.3, 0.6]))
@settings(max_examples=few(100))
def test_noise_does_not_keep_it_going(seed: int, noise: float) -> None:
    machine = Simulated(cpus=4, computing=0.01, step=0.0, noise=noise, seed=seed)
    went = machine.run(paced(), 300)
    changes = sum(before != after for before, after in itertools.pairwise(went))
    assert changes <= 300 / 3  # a window in vain is followed by more and more that are not
    calm = sum(before != after for before, after in itertools.pairwise(went[150:]))
    assert noise > 0.1 or calm <= 15


def test_a_loop_that_is_fed_gives_up_workers_it_does_not_need() -> None:
    machine = Simulated(cpus=8, computing=0.04, step=0.01)
    pace = paced()
    machine.run(pace, SETTLED)
    assert pace.setting.workers == 5  # 4 make a batch in every step, and a quarter more for the unevenness
    machine.step = 0.1
    machine.run(pace, SETTLED)
    assert pace.setting == Setting(1, 2)
    assert pace.settled
    assert "waits 0 % of its time" in pace.reason


def test_two_that_are_as_good_as_each_other_do_not_take_turns() -> None:
    machine, pace = Simulated(cpus=64, computing=0.0006, step=0.0105), paced()  # none: 5.4 % waiting; one: 0.9 %
    went = machine.run(pace, SETTLED)
    assert pace.settled
    assert len(set(went[5:])) == 1


def test_fewer_that_let_the_loop_wait_are_too_few() -> None:
    pace = paced(4)
    assert pace.judge(window(step=0.1, wait=0.0, work=0.1), Means(8)).workers == 2
    assert pace.judge(window(step=0.1, wait=0.006, work=0.1), Means(8)).workers == 4
    assert pace.judge(window(step=0.1, wait=0.0, work=0.1), Means(8)).workers == 4
    assert pace.settled


def test_what_was_in_vain_is_tried_again_when_the_data_has_changed() -> None:
    machine, pace = Simulated(cpus=2, computing=0.04), paced()
    machine.run(pace, SETTLED)
    assert pace.setting.workers == 2  # 4 were no better
    machine.computing, machine.waiting = 0.001, 0.16
    machine.run(pace, SETTLED)
    assert pace.setting.workers == 32


def test_more_ahead_where_workers_wait_for_a_place() -> None:
    machine = Simulated(cpus=2, computing=0.009, step=0.01, uneven=1.0, handing=0.0)
    ahead, fixed = paced(most=1), paced(most=1, may_prefetch=False)
    machine.run(ahead, SETTLED)
    machine.run(fixed, SETTLED)
    assert 2 < ahead.setting.prefetch <= MOST_AHEAD
    assert fixed.setting.prefetch == 2


def test_short_memory_takes_batches_and_then_workers_and_for_good() -> None:
    pace = paced(8)
    waits, plenty = window(0.0, 0.01, 0.08), Means(4, 1 << 40, 1 << 41)
    short = Means(4, free=10, limit=1000)
    went = [pace.judge(waits, short) for _ in range(8)]
    assert went == [Setting(count, 1) for count in (8, 6, 4, 3, 2, 1, 1, 1)]
    assert Setting(1, 1) == pace.setting
    for _ in range(30):
        assert pace.judge(waits, plenty).workers == 1


def test_half_of_what_is_free_may_go_and_a_tenth_of_the_limit_stays() -> None:
    assert Means(4, free=800, limit=1000).room_for(100) == 4
    assert Means(4, free=150, limit=1000).room_for(10) == 5
    assert Means(4, free=80, limit=1000).room_for(10) == 0


def test_memory_that_nobody_knows_is_no_limit() -> None:
    assert paced(8, most=MOST).judge(window(0.0, 0.01, 0.08), Means(4, None, None, 1 << 40)).workers == 16


def test_no_memory_for_one_more_is_said() -> None:
    pace = paced(2)
    pace.judge(window(0.0, 0.01, 0.02), Means(4, free=3 << 30, limit=8 << 30, worker=2 << 30))
    assert (pace.setting.workers, pace.settled) == (2, True)
    assert "no memory for more: 3,221 MB of 8,590 MB left" in pace.reason


def test_what_cannot_be_had_is_not_asked_for_again() -> None:
    machine, pace = Simulated(cpus=8, computing=0.04), paced()
    machine.run(pace, 2)
    pace.refuse(3, "the system refused more")
    assert (pace.setting.workers, pace.reason, pace.settled) == (3, "the system refused more", True)
    assert {setting.workers for setting in machine.run(pace, 60)} <= {2, 3}


@pytest.mark.parametrize("seed", range(5))
def test_where_all_cpus_are_busy_no_more_workers_are_tried(seed: int) -> None:
    """Too much noise to see that they would not help."""
    machine, pace = Simulated(cpus=2, computing=0.04, noise=0.04, seed=seed), paced()
    assert max(setting.workers for setting in machine.run(pace, 60)) == 2
    assert pace.reason == "the loop waits 100 % of its time, but all CPUs are busy"
    machine.computing, machine.waiting, machine.noise = 0.001, 0.16, 0.0  # and now they wait
    assert machine.run(pace, 60)[-1].workers > 4


def test_busy_cpus_are_no_reason_where_workers_are_fewer_or_the_loop_is_fed() -> None:
    full = window(0.0, 0.01, 0.02, cpu_utilisation=0.95)
    assert paced(2).judge(full, Means(4)).workers == 4  # the loop computes, too: they may still be better
    assert paced(2).judge(replace(full, cpu_utilisation=0.85), Means(2)).workers == 4
    assert paced(2).judge(full, Means(2)).workers == 2


def test_it_says_what_was_in_vain() -> None:
    pace = paced(most=8)
    Simulated(cpus=2, computing=0.04, told=False).run(pace, SETTLED)
    assert pace.setting.workers == 2
    assert pace.reason == "the loop waits 100 % of its time, but 4 workers were no better"
    one = paced(most=1)
    Simulated(cpus=2, computing=0.04).run(one, SETTLED)
    assert one.reason == "the loop waits 100 % of its time, and 1 is the most there may be"


def test_what_was_in_vain_twice_is_said_once() -> None:
    pace, means = paced(2, most=4), Means(2)
    for wait in (0.010, 0.010, 0.010, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005):
        pace.judge(window(0.0, wait, 0.01, utilisation=0.5), means)
    assert pace.settled
    assert sum(text == "4 workers were no better" for text in pace._refuted.values()) == 2
    assert pace.reason.count("4 workers were no better") == 1


def test_what_was_wrongly_called_no_better_is_taken_on_a_second_look() -> None:
    pace, means = paced(2), Means(2)
    assert pace.judge(window(0.0, 0.010, 0.02), means).workers == 4
    assert pace.judge(window(0.0, 0.010, 0.02), means).workers == 2  # no better…
    assert pace.judge(window(0.0, 0.020, 0.04), means).workers == 4  # …than a lucky moment
    assert pace.reason == "on a second look 4 workers were better"


@pytest.mark.parametrize(("noise", "kept"), [(0.0, 4), (0.1, 2)])
def test_what_noise_can_explain_has_not_paid(noise: float, kept: int) -> None:
    pace, means = paced(2, most=4), Means(2)
    pace.judge(window(0.0, 0.010, 0.02, error=noise), means)
    assert pace.judge(window(0.0, 0.009, 0.02, error=noise), means).workers == kept


def test_a_share_that_may_be_waited_is_enough() -> None:
    pace = paced(2)
    pace.judge(window(step=1.0, wait=LITTLE_WAITING / 2, work=1.5), Means(8))
    assert (pace.setting.workers, pace.settled) == (2, True)


def test_a_step_that_got_shorter_is_seen_although_a_batch_takes_as_long() -> None:
    machine, pace = Simulated(cpus=1, computing=1e-4, waiting=1e-3, step=1e-3), paced()
    machine.run(pace, SETTLED)
    machine.step = 2e-5
    machine.run(pace, SETTLED + LONGEST_PATIENCE)
    assert machine.cost(pace.setting) <= 1.1 * machine.best(MOST)


def test_workers_that_have_time_are_given_more_ahead_first() -> None:
    pace = paced(2)
    assert pace.judge(window(step=0.01, wait=0.005, work=0.01, utilisation=0.5), Means(8)) == Setting(2, 4)


def test_a_loop_that_was_fed_and_loses_more_than_a_tenth_gets_more() -> None:
    pace, means = paced(4), Means(2)
    for _ in range(2):
        pace.judge(window(step=0.0955, wait=0.0045, work=0.3), means)
    assert (pace.setting.workers, pace.settled) == (4, True)
    for _ in range(PATIENCE):
        assert pace.settled
        pace.judge(window(step=0.0955, wait=0.0120, work=0.4), means)
    assert (pace.setting.workers > 4, pace.settled) == (True, False)


def test_each_time_it_takes_more_to_be_believed() -> None:
    pace, means, took = paced(most=1), Means(2), []
    for cost in (0.01, 0.1, 1.0):
        windows = 0
        while pace._reference is None or pace._reference.waited != cost:  # until it is settled on that
            pace.judge(window(0.0, cost, cost), means)
            windows += 1
        took.append(windows)
    assert took[0] < took[1] < took[2]
