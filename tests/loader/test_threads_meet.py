"""What threads share in the main process, with as many switches between them as Python can make."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import feedline
from feedline import DataLoader
from feedline.arena.slots import MAX_LEASED, SlotPool, Writer
from feedline.collate.counted import Collated
from feedline.engine.ledger import Ledger
from feedline.engine.session import KEPT, Session
from feedline.messages.outcome import BadSample, Outcome, Tally
from feedline.observe.meter import Meter, Spent
from feedline.randomness.redirection import ThreadGenerators, switch
from feedline.reading.bad_samples import BadSamples
from feedline.supervise import lifeline
from feedline.workers.crew import Crew
from feedline.workers.job import Job
from feedline.workers.processes import ProcessWorkers

THREADS = 4


@pytest.fixture(autouse=True)
def manyswitches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Said(str):
    """Python's own code runs whenever it is looked up: a moment for others to come in between."""

    __slots__ = ()

    def __hash__(self) -> int:
        return sum(map(ord, self))


class Slowly(int):
    """The same when it is added to something."""

    def __radd__(self, other: int) -> int:
        time.sleep(0)  # lets go of the GIL
        return int(other) + int(self)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What they give, begun at the same moment in threads of their own; what one raises is raised."""
    barrier, found, errors = threading.Barrier(len(calls)), [None] * len(calls), []

    def run(place: int, call: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            found[place] = call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def test_one_lifeline_for_all() -> None:
    before, lifeline._ends = lifeline._ends, None
    try:
        for _ in range(30):
            assert len(set(at_once(*[lifeline.reading_end] * THREADS))) == 1
            for end in lifeline._ends or ():
                os.close(end)
            lifeline._ends = None
    finally:
        lifeline._ends = before


def test_a_warning_is_said_once() -> None:
    for number in range(20):
        session = Session()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            at_once(*[partial(session.tell_once, Said(f"number {number}"))] * THREADS)
        assert len(told) == 1


def test_stats_can_be_asked_for_while_epochs_begin() -> None:
    session, begun = Session(), [0]

    def begin() -> None:
        for epoch in range(2 * KEPT):
            begun[0] += 1
            meter = session.new_meter(Meter(epoch, 1, Spent()))
            meter.asked()
            meter.gave(1, None)

    def ask() -> None:
        for _ in range(100):
            assert session.stats().total.batches <= begun[0], "none is counted twice"

    at_once(begin, ask, ask)
    assert session.stats().total.batches == 2 * KEPT


def test_where_workers_are_can_be_asked_while_they_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(list(range(8)), False, True, 2, False, None, None, 0, 1, num_workers=2)
    workers = ProcessWorkers(job, Ledger(), "fork")
    workers.resize(2)
    pids = {at.pid for at in workers.standing()}
    row = Crew.row

    def ended_meanwhile(crew: Crew, number: int) -> Any:
        monkeypatch.undo()
        crew.end()  # as if by another thread, in this very moment
        return row(crew, number)

    monkeypatch.setattr(Crew, "row", ended_meanwhile)
    assert {at.pid for at in workers.standing()} == pids
    assert workers.standing() == []


def test_bad_samples_are_counted_in_several_threads() -> None:
    bad_samples, care = BadSamples(), feedline.options.ErrorPolicy()
    outcome = Outcome(0, None, 3, bad=(BadSample(1, 0, "", "ValueError"),))

    def count() -> None:
        for _ in range(200):
            bad_samples.take(outcome, care)
            assert bad_samples.samples

    at_once(*[count] * THREADS)
    assert bad_samples.count == len(bad_samples.samples) == 200 * THREADS
    assert bad_samples._read == 4 * 200 * THREADS


def test_what_collators_say_is_counted_in_several_threads() -> None:
    collated = Collated()

    def count() -> None:
        for _ in range(200):
            collated.take(Tally(places=10, padding=1, cut=Slowly(1)))

    def ask() -> None:
        for _ in range(300):
            assert collated.stats().padding in (None, pytest.approx(0.1))

    at_once(count, count, count, ask)
    assert collated.stats().cut == 600


def test_theswitch_is_thrown_back_when_the_last_lets_go() -> None:
    def live() -> None:
        for _ in range(5):
            generators = ThreadGenerators()
            generators.open()
            generators.enter(7)
            drawn.append(float(np.random.rand()))
            generators.close()

    drawn: list[float] = []
    original, before = np.random.rand, switch.holders  # of threads that an earlier test had to leave behind
    at_once(*[live] * THREADS)
    assert len(set(drawn)) == 1
    assert np.random.rand == original
    assert switch.holders == before


def test_slots_that_end_while_others_are_taken_are_never_written_under_a_view() -> None:
    pool = SlotPool()

    def hold(value: int) -> None:
        kept: list[Any] = []
        for number in range(60):
            slot = pool.take()
            array = Writer(slot, leased=True).empty((70_000,), np.dtype(np.uint8))
            array[:] = (value + number) % 251
            pool.put(slot)
            kept.append((array, (value + number) % 251))
            assert all((each == expected).all() for each, expected in kept)
            if len(kept) > 2 * MAX_LEASED:
                del kept[:: 1 + number % 3]

    at_once(*[partial(hold, start) for start in (0, 60, 120)])
    gc.collect()
    working, held, _ = pool.occupancy()
    assert (working, held) == (0, 0)
    pool.close()


def test_pages_of_slots_that_are_used_again_have_been_given_back() -> None:
    pool = SlotPool()
    slots = [pool.take() for _ in range(3)]
    views = [slot.lease(0, slot.room(70_000).size) for slot in slots]
    for slot in slots:
        # as if each leaf had ended between two steps of its slot's retiring
        slot.retire()
        slot.retired = False
    del views
    before = os.fstat(pool.segment.fd).st_blocks
    pool._retired = list(slots)
    pool._sweep()
    assert before > 0
    assert os.fstat(pool.segment.fd).st_blocks == 0
    assert pool._retired == []
    pool.close()


class Numbers:
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return np.full(20_000, index + feedline.rng().random() + np.random.rand(), np.float32)


def test_several_loops_over_one_loader_do_not_meet() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, workers="thread", seed=2)

    def loop() -> list[Any]:
        return [batch.copy() for batch in loader]

    loops = at_once(*[loop] * 3)
    single = DataLoader(Numbers(), batch_size=4, seed=2)
    epochs = [[batch.copy() for batch in single] for _ in range(3)]
    for found in loops:  # each has had an epoch of its own
        assert sum(all(map(np.array_equal, found, epoch)) for epoch in epochs) == 1
