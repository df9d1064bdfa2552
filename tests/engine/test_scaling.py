"""What a window of batches is, by a clock of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from feedline import DataLoader
from feedline.arena.limits import room
from feedline.engine.division import Division
from feedline.engine.scaling import FIRST_SECONDS, ROUNDS, SECONDS, Scaling
from feedline.engine.worker_set import WorkerSet
from feedline.machine.cpus import look
from feedline.messages.task import Task
from feedline.observe.meter import Meter, Spent
from feedline.observe.window import Setting
from feedline.supervise.pace import Means, Pace, WorkerWindow
from feedline.workers.job import Job

MS = 1_000_000


class Watched(Pace):
    """Stays as it is, and keeps what it was shown."""

    def __init__(self, start: Setting) -> None:
        super().__init__(start, most=4)
        self.shown: list[tuple[WorkerWindow, Means]] = []

    def judge(self, seen: WorkerWindow, means: Means) -> Setting:
        self.shown.append((seen, means))
        return self.setting


def of(count: int) -> WorkerSet:
    """So many, whose number may change."""
    job = Job(np.arange(40), False, True, 4, False, None, None, 0, 1, num_workers=4)
    with DataLoader(np.arange(40), num_workers="auto", workers="thread") as loader:
        return WorkerSet(job, loader.options, Division(), Scaling(Pace(Setting(count, 2), 4), 4))


@pytest.fixture
def workers() -> Iterator[WorkerSet]:
    made = of(1)
    made.start()
    while not made.ready():
        made.workers.receive(0.001)
    yield made
    made.stop()


@pytest.fixture
def pace() -> Watched:
    return Watched(Setting(1, 2))


def give(pacing: Scaling, workers: Any, times: list[tuple[float, float]], meter: Meter | None = None) -> Meter:
    """Batches for which the loop took and waited so many milliseconds."""
    meter = meter or Meter(0, 0, Spent())
    for step, wait in times:
        meter.step = round(step * MS)
        meter.latest = meter.given + meter.step
        meter.given = meter.latest + round(wait * MS)
        assert not pacing.gave(meter, workers)
    return meter


def test_first_batches_are_left_out_and_a_pause_is_no_step(pace: Watched, workers: WorkerSet) -> None:
    pacing = Scaling(pace, 4)
    pacing.begin(workers)
    give(pacing, workers, [(10**9, 700), (10**9, 700), (20, 30), (20, 30), (60_000, 0), (20, 30)])
    ((window, _),) = pace.shown
    assert (window.step, window.waited / window.batches) == (pytest.approx(0.020), pytest.approx(0.0225))
    assert window.error > 0.5  # the pause is in that


def test_a_window_has_its_time_and_its_rounds(pace: Watched, workers: WorkerSet) -> None:
    pacing = Scaling(pace, 4)
    pacing.begin(workers)
    meter = give(pacing, workers, [(0, 1), (0, 1), *[(0, 1000)] * (ROUNDS - 1)])
    assert not pace.shown  # long enough, and too few
    give(pacing, workers, [(0, 1000)], meter)
    assert len(pace.shown) == 1
    give(pacing, workers, [(0, 10)] * round(100 * SECONDS - 1), meter)
    assert len(pace.shown) == 1  # enough, and too short
    give(pacing, workers, [(0, 10)], meter)
    assert len(pace.shown) == 2
    assert pace.shown[1][0].error == 0.0


def test_the_first_window_is_short(pace: Watched, workers: WorkerSet) -> None:
    pacing = Scaling(pace, 4)
    pacing.begin(workers)
    give(pacing, workers, [(0, 10), (0, 10), *[(0, 10)] * round(100 * FIRST_SECONDS)])
    assert len(pace.shown) == 1


def epochs(pacing: Scaling, workers: Any, count: int, size: int, wait: float, slow: int = 1) -> None:
    """Of so many batches each, as the loop has them; the first ones come late."""
    meter = Meter(0, 0, Spent())
    for _ in range(count):
        pacing.begin(workers)
        for place in range(size):
            give(pacing, workers, [(0, wait) if place >= slow else (10**9, 500)], meter)
        pacing.end(workers)


class Four:
    """Workers, as far as a number of them matters here."""

    count = 4
    processes = staticmethod(list)
    spent = staticmethod(Spent)
    ready = clean_up_ended = staticmethod(lambda: 4)


@pytest.mark.parametrize(("size", "slow"), [(2, 1), (5, 1), (6, 5), (20, 5)])
def test_epochs_shorter_than_what_is_left_out_are_measured(size: int, slow: int) -> None:
    pace = Watched(Setting(4, 2))
    epochs(Scaling(pace, 4), Four(), 40, size, 100, slow)
    assert pace.shown
    assert {round(window.waited / window.batches, 4) for window, _ in pace.shown} == {0.1}


@pytest.mark.parametrize("ended", [True, False])
def test_a_window_goes_on_in_the_next_epoch_unless_the_last_was_left(
    pace: Watched, workers: WorkerSet, ended: bool
) -> None:
    pacing = Scaling(pace, 4)
    pacing.begin(workers)
    give(pacing, workers, [(0, 1), (0, 1), (0, 30), (0, 30), (0, 30)])
    if ended:
        pacing.end(workers)
    pacing.begin(workers)
    give(pacing, workers, [(10**9, 500), (10**9, 500), (0, 30)])
    assert len(pace.shown) == ended
    assert not ended or pace.shown[0][0].seconds_per_batch == pytest.approx(0.030)


def test_work_on_batches_that_are_left_out_is_left_out(pace: Watched, workers: WorkerSet) -> None:
    pacing = Scaling(pace, 4)
    pacing.begin(workers)
    workers.begin(in_order=True)
    workers.workers.send(workers.ledger.whole(workers.ledger.add(Task(0, 0, 1, np.arange(4)))))
    workers.workers.receive(None)
    assert sum(workers.spent())
    pacing.end(workers)
    pacing.begin(workers)
    give(pacing, workers, [(0, 100)] * (1 + ROUNDS))
    assert pace.shown[0][0].work == 0.0


def test_it_knows_how_busy_the_cpus_are(pace: Watched, workers: WorkerSet, monkeypatch: pytest.MonkeyPatch) -> None:
    used = 0.0
    monkeypatch.setattr("time.process_time", lambda: used)
    pacing, half = Scaling(pace, 4), 0.05 * ROUNDS * look().usable
    pacing.begin(workers)
    used = 1000.0  # before the window
    meter = give(pacing, workers, [(0, 1), (0, 1), *[(0, 100)] * (ROUNDS // 2)])
    used += half / 2
    pacing.end(workers)
    used += 1000.0  # between epochs
    pacing.begin(workers)
    give(pacing, workers, [(0, 1), (0, 1), *[(0, 100)] * (ROUNDS // 2 - 1)], meter)
    used += half / 2
    give(pacing, workers, [(0, 100)], meter)
    assert pace.shown[0][0].cpu_utilisation == pytest.approx(0.5)
    pace.settled = True  # then nobody needs it
    pacing._follow(pacing.chosen(), meter, workers)
    used += half
    give(pacing, workers, [(0, 100)] * ROUNDS, meter)
    assert pace.shown[-1][0].cpu_utilisation == 0.0


def test_it_knows_what_the_machine_has_and_what_a_batch_takes(pace: Watched, workers: WorkerSet) -> None:
    pacing, meter = Scaling(pace, 4), Meter(0, 0, Spent())
    pacing.begin(workers)
    meter.asked()
    meter.gave(4, np.zeros(1000))
    give(pacing, workers, [(0, 100)] * (2 + ROUNDS), meter)
    ((_, means),) = pace.shown
    assert (means.cpus, means.batch, means.worker) == (look().workers, 8000, 1 << 26)
    left = room()
    assert means.limit == (None if left is None else left.limit)


def test_a_worker_that_is_not_ready_is_not_measured() -> None:
    pace = Watched(Setting(2, 2))
    workers = of(2)  # and not started yet
    pacing = Scaling(pace, 4)
    pacing.begin(workers)
    meter = give(pacing, workers, [(0, 100)] * 30)
    assert not pace.shown
    workers.start()
    while workers.ready() < 2:
        workers.workers.receive(0.001)
    try:
        give(pacing, workers, [(0, 100)] * (1 + 2 * ROUNDS), meter)
        assert len(pace.shown) == 1
    finally:
        workers.stop()
