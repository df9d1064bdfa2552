"""The simulated epoch: every sample once, no worker does two things at once, and the rules of both loaders."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few
from paced_machine import Simulated
from simulated import Machine

from feedline.diagnose.explorer.costs import Costs, sample_costs
from feedline.diagnose.simulation import Epoch, Work, Workers, simulate
from feedline.observe.window import Setting

WORKS = st.builds(
    Work,
    st.lists(st.lists(st.integers(0, 20_000), min_size=1, max_size=9), max_size=12),
    st.integers(0, 3000),
    st.integers(0, 20_000),
)
WORKERS = st.builds(
    Workers,
    st.integers(0, 5),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["feedline", "torch"]),
    st.one_of(st.none(), st.floats(0, 0.02)),
    st.integers(0, 500),
)


@settings(max_examples=few(300))
@given(WORKS, WORKERS)
def test_every_batch_is_made_and_given_once_and_a_worker_does_one_thing_at_a_time(work, workers):
    epoch = simulate(work, workers)
    made = Counter[int]()
    for span in epoch.spans:
        made[span.batch] += span.samples
    assert made == {number: len(samples) for number, samples in enumerate(work.batches)}
    assert sorted(one.batch for one in epoch.given) == list(range(len(work.batches)))
    if workers.in_order:
        assert [one.batch for one in epoch.given] == list(range(len(work.batches)))
    for worker in {span.worker for span in epoch.spans}:
        own = [span for span in epoch.spans if span.worker == worker]
        assert all(one.end <= other.start for one, other in pairwise(own))
    ends = {number: max(span.end for span in epoch.spans if span.batch == number) for number in made}
    assert all(one.asked <= one.gave and ends[one.batch] <= one.gave for one in epoch.given)
    assert epoch.end == epoch.waited + work.step * len(work.batches)


@settings(max_examples=few(100))
@given(WORKS, WORKERS)
def test_no_more_batches_are_out_than_there_is_room_for(work, workers):
    epoch = simulate(work, workers)
    if not workers.count:
        return
    for span in epoch.spans:
        begun = {one.batch for one in epoch.spans if one.start <= span.start}
        given = {one.batch for one in epoch.given if one.gave <= span.start}
        assert len(begun - given) <= workers.count * workers.prefetch


def even(workers: Workers, step: int = 5000) -> Epoch:
    return simulate(Work([[1000] * 8] * 40, step=step), workers)


def test_more_workers_wait_less_and_enough_of_them_hardly_at_all():
    shares = [even(Workers(count)).waiting_share for count in range(4)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(8 / 13)
    assert shares[2] < 0.1


def test_the_first_batch_is_divided_among_the_workers_and_torch_waits_for_one():
    assert even(Workers(4, known=0.001)).given[0].gave == 2000
    assert even(Workers(4)).given[0].gave == 2000
    assert even(Workers(4, splits=False)).given[0].gave == even(Workers(4, rules="torch")).given[0].gave == 8000


def test_samples_of_no_cost_are_never_divided_once_that_is_known():
    epoch = simulate(Work([[1] * 8] * 40), Workers(4, known=1e-6))
    assert len(epoch.spans) == 40


def test_a_straggler_holds_up_a_loop_in_torchs_order_and_less_in_ours():
    costs = sample_costs(Costs(2000, stragglers=0.02, factor=50), 40 * 32, key=7)
    work = Work([costs[at : at + 32] for at in range(0, len(costs), 32)], step=10_000)
    ours, torchs = simulate(work, Workers(4, known=0.004)), simulate(work, Workers(4, rules="torch"))
    assert ours.end < 0.85 * torchs.end
    assert simulate(work, Workers(4, rules="torch", in_order=False)).end < torchs.end
    assert any(span.samples < 32 for span in ours.spans[-40:]), "after a batch was overtaken, later ones are divided"


def test_as_they_come_a_short_batch_overtakes_a_long_one():
    work = Work([[9000], [1000], [1000]])
    assert [one.batch for one in simulate(work, Workers(2, in_order=False)).given] == [1, 2, 0]
    assert [one.batch for one in simulate(work, Workers(2)).given] == [0, 1, 2]


def test_torchs_batches_wait_for_the_worker_whose_turn_it_is():
    work = Work([[9000], [1000], [1000], [1000]])
    torchs, ours = simulate(work, Workers(2, rules="torch")), simulate(work, Workers(2))
    assert [span.worker for span in sorted(torchs.spans, key=lambda span: span.batch)] == [0, 1, 0, 1]
    assert [span.worker for span in sorted(ours.spans, key=lambda span: span.batch)] == [0, 1, 1, 1]


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize("step", [0.0, 0.004, 0.02])
def test_the_machines_of_the_tests_of_tune_and_auto_are_as_fast_as_the_simulation(workers, step):
    """They know only how fast a long epoch is, and so can be asked thousands of times."""
    batches, batch = 400, 0.024
    work = Work([[int(batch / 8 * 1e6)] * 8] * batches, step=int(step * 1e6))
    seconds = simulate(work, Workers(workers, known=batch / 8)).end / 1e6 / batches
    setting = Setting(workers, 2)
    assert 1 / Machine(cpus=8, computing=0, waiting=batch, step=step).rate(setting) == pytest.approx(seconds, rel=0.03)
    machine = Simulated(cpus=8, computing=0, waiting=batch, step=step, handing=0)
    assert machine.cost(setting) == pytest.approx(seconds, rel=0.03)


def test_without_workers_too():
    seconds = simulate(Work([[3000] * 8] * 50, step=4000), Workers(0)).end / 1e6 / 50
    assert 1 / Machine(computing=0, waiting=0.024, step=0.004).rate(Setting(0)) == pytest.approx(seconds)
