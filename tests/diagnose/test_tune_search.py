"""The search and the choice on simulated machines: the smallest setting that is fast enough, within the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few
from simulated import Machine, window

from feedline.diagnose.tune import search as searching
from feedline.diagnose.tune.candidates import (
    Bounds,
    TrialFacts,
    chosen,
    cost,
    enough,
    facts_of,
    fits,
    grid,
    most_workers,
)
from feedline.diagnose.tune.search import Search
from feedline.diagnose.tune.trial import Spending, Trial
from feedline.observe.window import Setting

TIMES = st.floats(0.0005, 0.3)
machines = st.builds(
    Machine,
    cpus=st.sampled_from([1.0, 1.5, 2.0, 4.0, 16.0]),
    computing=TIMES,
    waiting=st.one_of(st.just(0.0), TIMES),
    handing=st.floats(1e-5, 1e-3),
    holds_lock=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    step=st.one_of(st.just(0.0), st.floats(0.002, 0.2)),
    start=st.floats(0.01, 0.5),
    seed=st.integers(0, 999),
)


def searched(machine: Machine, seconds: float = 60.0, bounds: Bounds | None = None) -> Search:
    until = machine.now + seconds
    found = Search(machine.measure, lambda: until - machine.now, bounds or machine.bounds(), machine.step)
    found.run()
    return found


def everything(machine: Machine, facts: TrialFacts) -> dict[Setting, float]:
    return {setting: machine.rate(setting) for setting in grid(machine.bounds(), facts)}


@settings(max_examples=few(300))
@given(machines, st.sampled_from([0.0, 0.02]))
def test_within_a_tenth_of_the_best_of_the_whole_grid(machine: Machine, noise: float) -> None:
    machine.noise = noise
    found = searched(machine)
    assert found.finished
    assert found.best is not None
    best = max(everything(machine, found.facts).values())
    assert machine.rate(found.best.setting) >= 0.9 * best, found.best.setting


@settings(max_examples=few(300))
@given(machines)
def test_without_noise_nothing_smaller_is_fast_enough(machine: Machine) -> None:
    found = searched(machine)
    assert found.best is not None
    rates = everything(machine, found.facts)
    most = max(rates.values())
    least = enough([trial(Setting(1), most, machine.step)], machine.step)
    price = cost(found.best.setting, found.facts.computes)
    # GAIN and LITTLE are the same twentieth: what doubling did not gain may add up to as much again.
    slack = 1.0 if found.best.keeps_up else 1.06
    smaller = [
        setting
        for setting, rate in rates.items()
        if cost(setting, found.facts.computes) < price and rate > slack * least
    ]
    assert smaller == []


@settings(max_examples=few(200))
@given(machines, st.floats(0.1, 20.0))
def test_the_time_is_kept_to_and_no_setting_is_tried_without_need(machine: Machine, seconds: float) -> None:
    found = searched(machine, seconds)
    assert machine.now <= seconds + max(machine.start, searching.SHORTEST) + 1e-9
    assert len(found.trials) <= 24
    again = [setting for setting in machine.measured if machine.measured.count(setting) > 1]
    assert all(machine.measured.count(setting) <= 1 + searching.NOISY_ROUNDS for setting in again)
    if seconds < machine.start:
        assert len(machine.measured) <= 1


def test_when_the_time_is_short_the_search_says_so() -> None:
    found = searched(Machine(computing=0.3, cpus=16), seconds=1.2)
    assert not found.finished
    assert found.best is not None


def test_nothing_at_all_in_no_time() -> None:
    found = searched(Machine(), seconds=0.1)
    assert (found.best, found.trials, found.finished) == (None, {}, False)


# The course of a search


def test_a_step_that_no_worker_is_needed_for() -> None:
    machine = Machine(computing=0.0005, step=0.1)
    assert searched(machine).best.setting == Setting(0)  # type: ignore[union-attr]
    assert set(machine.measured) == {Setting(1), Setting(0)}, "nothing larger is tried"


def test_hopeless_numbers_are_passed_over() -> None:
    machine = Machine(computing=0.01, waiting=0.4, step=0.02, cpus=2)
    found = searched(machine)
    assert found.best.setting == Setting(20, kind="thread")  # type: ignore[union-attr]
    assert found.skipped == 13
    tried = {setting.workers for setting in found.trials}
    assert tried & set(range(2, 14)) == set()


def test_what_waits_is_read_by_threads_and_what_computes_by_processes() -> None:
    waits = searched(Machine(computing=0.001, waiting=0.05, step=0.02))
    assert waits.best.setting == Setting(3, kind="thread")  # type: ignore[union-attr]
    computes = searched(Machine(computing=0.03, step=0.02, holds_lock=0.0))
    assert computes.best.setting == Setting(2, kind="process")  # type: ignore[union-attr]


def test_the_other_kind_is_tried_only_where_it_would_be_smaller() -> None:
    machine = Machine(computing=0.001, waiting=0.05, step=0.02)
    found = searched(machine)
    assert {each.workers for each in found.trials if each.kind == "process" and each.workers > 1} == {2}


def test_without_a_step_the_smallest_that_is_as_fast_as_the_fastest() -> None:
    found = searched(Machine(computing=0.02, cpus=4))
    assert found.best.setting == Setting(4)  # type: ignore[union-attr]
    found = searched(Machine(computing=0.02, cpus=4, holds_lock=0.0), bounds=Bounds(4, kinds=("thread",)))
    assert found.best.setting == Setting(4, kind="thread")  # type: ignore[union-attr]


def test_threads_that_hold_the_lock_are_not_chosen() -> None:
    found = searched(Machine(computing=0.03, step=0.02))
    assert found.best.setting == Setting(2)  # type: ignore[union-attr]


def test_more_batches_ahead_instead_of_one_more_worker() -> None:
    machine = Machine(computing=0.015, step=0.02, uneven=0.5)
    found = searched(machine)
    assert machine.rate(Setting(1)) < 0.95 / 0.02 <= machine.rate(Setting(1, prefetch=4))
    assert found.best.setting == Setting(1, prefetch=4)  # type: ignore[union-attr]


def test_threads_per_worker_are_tried_where_a_library_uses_them() -> None:
    found = searched(Machine(computing=0.03, step=0.02, threaded=True, cpus=4))
    assert found.facts.threaded
    assert found.best.setting == Setting(1, threads=2)  # type: ignore[union-attr]
    assert not any(each.threads > 1 for each in searched(Machine(computing=0.03, step=0.02, cpus=4)).trials)


def test_a_kind_that_cannot_be_had_is_left_out() -> None:
    found = searched(Machine(computing=0.03, step=0.02, holds_lock=0.0, broken=("process",)))
    assert found.best.setting == Setting(2, kind="thread")  # type: ignore[union-attr]
    assert searched(Machine(broken=("process", "thread"))).best is None


def test_noise_is_met_by_measuring_again() -> None:
    machine = Machine(computing=0.03, step=0.02, noise=0.3)
    searched(machine)
    assert max(machine.measured.count(setting) for setting in machine.measured) > 1 + searching.ROUNDS
    quiet = Machine(computing=0.03, step=0.02)
    searched(quiet)
    assert max(quiet.measured.count(setting) for setting in quiet.measured) == 1 + searching.ROUNDS


# Where there is a GPU

gpus = st.builds(
    Machine,
    cpus=st.sampled_from([2.0, 4.0, 16.0]),
    computing=TIMES,
    waiting=st.one_of(st.just(0.0), TIMES),
    step=st.one_of(st.just(0.0), st.floats(0.002, 0.2)),
    copying=st.floats(0.0001, 0.05),
    pinned_copying=st.floats(0.0001, 0.02),
    pinning=st.floats(0.0, 0.02),
    seed=st.integers(0, 999),
)


def test_workers_that_wait_for_slow_copies_are_tried_with_pinned_memory() -> None:
    """Neither more workers nor pinned memory alone gains anything, only both."""
    machine = Machine(cpus=16.0, computing=0.25, copying=1 / 32, pinned_copying=1 / 64, step=0.0)
    found = searched(machine)
    assert found.best is not None
    assert (found.best.setting.workers, found.best.setting.pinned) == (16, True)


@settings(max_examples=few(200))
@given(gpus, st.sampled_from([0.0, 0.02]))
def test_with_a_gpu_within_a_tenth_of_the_best_of_the_grid_pinned_and_not(machine: Machine, noise: float) -> None:
    machine.noise = noise
    found = searched(machine, seconds=150)  # all is tried twice
    assert found.finished
    assert found.best is not None
    settings = [
        each._replace(pinned=pinned) for each in grid(machine.bounds(), found.facts) for pinned in (False, True)
    ]
    assert machine.rate(found.best.setting) >= 0.9 * max(map(machine.rate, settings)), found.best.setting
    assert {each.pinned for each in found.trials} == {False, True}, "both are tried"


def test_pinned_memory_is_chosen_where_copies_hold_up_the_step_and_not_elsewhere() -> None:
    slow = searched(Machine(computing=0.015, step=0.02, copying=0.01, pinned_copying=0.0005))
    assert slow.best.setting == Setting(1, pinned=True)  # type: ignore[union-attr]
    quick = searched(Machine(computing=0.015, step=0.02, copying=0.0002, pinned_copying=0.0001))
    assert quick.best.setting == Setting(1)  # type: ignore[union-attr]
    assert Setting(1, pinned=True) in quick.trials
    dear = searched(Machine(computing=0.015, step=0.02, copying=0.01, pinned_copying=0.0, pinning=0.05))
    assert not dear.best.setting.pinned  # type: ignore[union-attr]


def test_with_pinned_memory_the_number_of_workers_is_searched_for_again() -> None:
    machine = Machine(computing=0.05, step=0.01, copying=0.03, pinned_copying=0.001, cpus=16, holds_lock=0.0)
    found = searched(machine)
    assert found.best.setting == Setting(5, pinned=True)  # type: ignore[union-attr]
    unpinned = max(each.workers for each in found.trials if not each.pinned)
    assert machine.rate(Setting(unpinned)) == pytest.approx(1 / 0.04), "more workers gain nothing without it"


def test_more_than_eight_batches_ahead_are_tried_for_a_gpu_only_and_if_they_fit() -> None:
    uneven: dict[str, Any] = {"computing": 0.02, "uneven": 0.92, "cpus": 8.0}
    ahead = {
        name: max(each.prefetch for each in searched(Machine(**uneven), bounds=bounds).trials)
        for name, bounds in {
            "none": Bounds(8.0, max_workers=4, kinds=("process",)),
            "gpu": Bounds(8.0, max_workers=4, kinds=("process",), gpu=True),
            "small": Bounds(8.0, max_workers=4, kinds=("process",), gpu=True, memory=250_000_000),
        }.items()
    }
    assert ahead == {"none": 8, "gpu": 32, "small": 16}


def test_without_a_gpu_nothing_is_pinned() -> None:
    assert not any(each.pinned for each in searched(Machine(computing=0.03, step=0.02)).trials)


# What fits


def test_memory_bounds_the_workers() -> None:
    facts = TrialFacts(cpu_share=0.1, worker_memory=100, batch_bytes=10)
    assert fits(Setting(4), Bounds(2, memory=960), facts)
    assert not fits(Setting(4), Bounds(2, memory=950), facts)
    assert most_workers(Bounds(2, memory=960), facts, "process") == 4
    assert most_workers(Bounds(2, memory=960), facts, "thread") == 22
    machine = Machine(computing=0.001, waiting=0.4, step=0.02, worker_memory=10**9)
    found = searched(machine, bounds=Bounds(2, memory=8 * 10**9, kinds=("process",)))
    assert max(setting.workers for setting in found.trials) == 3


def test_the_users_limit_holds() -> None:
    found = searched(Machine(computing=0.001, waiting=0.4, step=0.02), bounds=Bounds(2, max_workers=5))
    assert max(setting.workers for setting in found.trials) == 5
    assert not found.best.keeps_up  # type: ignore[arg-type]


# The choice


def trial(setting: Setting, rate: float, step: float = 0.0) -> Trial:
    return Trial(setting, step, (window(100, 100 * (1 / rate - step), step),))


def test_enough_is_what_the_step_takes_or_else_the_fastest() -> None:
    some = [trial(Setting(1), 30, 0.02), trial(Setting(2), 49, 0.02)]
    assert enough(some, 0.02) == pytest.approx(0.95 * 50)
    assert enough(some[:1], 0.02) == pytest.approx(0.95 * 30)
    assert enough([trial(Setting(1), 100)], 0.02) == pytest.approx(47.5)
    assert enough([trial(Setting(1), 100)], 0) == pytest.approx(95)
    assert enough([], 0.02) == 0


def test_the_choice_is_the_smallest_of_the_fast() -> None:
    some = [
        trial(Setting(4), 100),
        trial(Setting(3), 96),
        trial(Setting(2), 90),
        replace(trial(Setting(0), 99), failed="x"),
    ]
    assert chosen(some, 0, computes=True) == some[1]
    assert chosen([], 0, computes=True) is None
    tied = [
        trial(Setting(2), 100),
        trial(Setting(2, kind="thread"), 100),
        trial(Setting(2, kind="thread", prefetch=4), 100),
    ]
    assert chosen(tied, 0, computes=True) == tied[0]
    assert chosen(tied, 0, computes=False) == tied[1]


@given(
    st.permutations(
        [
            Setting(0),
            Setting(1),
            Setting(2),
            Setting(1, threads=2),
            Setting(2, prefetch=4),
            Setting(3),
        ]
    )
)
def test_the_order_of_costs(some: list[Setting]) -> None:
    ordered = sorted(some, key=lambda setting: cost(setting, computes=True))
    assert [str(setting) for setting in ordered] == [
        *("no workers", "1 process", "1 process, 2 threads each", "2 processes", "2 processes, prefetch_factor=4"),
        "3 processes",
    ]


def kept(which: Any) -> Trial:
    return Trial(Setting(1), 0.02, tuple(window(10, each, 0.02) for each in which))


def test_a_trial_is_the_median_of_its_windows() -> None:
    assert kept([0.0, 0.0, 9.0]).batches_per_second == pytest.approx(50)
    assert kept([0.0, 0.0, 9.0]).waiting_share == 0
    assert kept([0.2, 0.2]).waiting_share == pytest.approx(0.5)
    assert (kept([]).batches_per_second, kept([]).waiting_share, kept([0.1]).spread) == (0, 1, 1)
    assert kept([0.0, 0.0, 0.0, 9.0]).spread == 0
    both = kept([0.0]).plus(kept([0.2, 0.2]))
    assert both.batches_per_second == pytest.approx(25)
    broken = Trial(Setting(1), 0.02, failed="no")
    assert kept([0.1]).plus(broken) == broken.plus(kept([0.1])) == kept([0.1])


def test_several_threads_are_seen_only_where_loading_is_waited_for() -> None:
    def alone(waited: float, cpu: float) -> TrialFacts:
        none = Trial(Setting(0), 0.02, (window(100, waited, 0.02),), Spending(cpu=cpu))
        return facts_of(kept([0.1]), none)

    assert alone(1.0, 1.5).threaded
    assert not alone(1.0, 1.2).threaded
    assert not alone(0.01, 0.1).threaded, "the loop's own work"
    assert not facts_of(kept([0.1]), None).threaded
    assert not facts_of(kept([0.1]), Trial(Setting(0), 0.02, failed="no")).threaded


@given(st.lists(st.floats(0.001, 0.2), min_size=1, max_size=8), st.floats(0.005, 0.1), st.booleans())
def test_if_anything_keeps_up_the_choice_does(waits: list[float], step: float, computes: bool) -> None:
    some = [Trial(Setting(place), step, (window(1, wait, step),)) for place, wait in enumerate(waits)]
    found = chosen(some, step, computes)
    assert found is not None
    assert found.keeps_up == any(each.keeps_up for each in some)
    cheaper = some[: found.setting.workers]
    assert all(each.batches_per_second < enough(some, step) for each in cheaper)


def test_what_turns_out_to_be_enough_opens_the_way_to_smaller_ones() -> None:
    machine = Machine(computing=0.001, waiting=0.16, step=0.025)
    first = {Setting(8, kind="thread")}

    def measure(setting: Setting, seconds: float) -> Trial:
        trial = machine.measure(setting, seconds)
        if setting in first:  # hit by noise, the first time
            first.remove(setting)
            return replace(trial, windows=(window(10, 0.02),))
        return trial

    found = Search(measure, lambda: 60 - machine.now, Bounds(2, kinds=("thread",)), machine.step)
    found.run()
    assert found.best is not None
    assert found.best.setting == Setting(7, kind="thread")
