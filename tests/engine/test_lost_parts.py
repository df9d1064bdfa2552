"""What is lost with a worker process, and what is not: tickets nobody has read, places that it may yet write to."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.popen_fork import Popen
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_contract import LONG, Data, WorkerContract

from feedline.arena.joint import Joint
from feedline.engine.ledger import Ledger, Part
from feedline.messages.progress import IDLE
from feedline.messages.task import Task
from feedline.supervise.shutdown import WorkerProcess
from feedline.supervise.watch import Death, with_state
from feedline.workers import processes
from feedline.workers.job import Job
from feedline.workers.processes import ProcessWorkers

until: Callable[[Any], None] = WorkerContract().until


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.begin()
    return ledger


@pytest.fixture(params=["shared", "in turn"])
def workers(request: pytest.FixtureRequest, tmp_path: Path, ledger: Ledger) -> Iterator[ProcessWorkers]:
    in_turn = request.param == "in turn"
    job = Job(Data(tmp_path), False, True, 2, False, None, None, 0, 1, num_workers=2, in_turn=in_turn)
    workers = ProcessWorkers(job, ledger, "fork")
    try:
        workers.resize(2)
        until(lambda: all(at.place == IDLE for at in workers.standing()))
        yield workers
    finally:
        (tmp_path / "go").touch()
        workers.stop()


def send(workers: ProcessWorkers, ledger: Ledger, seq: int, *indices: int) -> Part:
    part = ledger.plan(Task(seq, 0, 1, np.array(indices)))
    workers.send(part)
    return part


def test_who_dies_at_rest_is_not_blamed_for_what_nobody_has_read(workers: ProcessWorkers, ledger: Ledger) -> None:
    pids = [at.pid for at in workers.standing() if at.pid is not None]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: all("SIGSTOP" in with_state(at).state for at in workers.standing()))
    parts = [send(workers, ledger, seq, 1) for seq in (0, 2)]  # both to the same worker, if it is in turn
    os.kill(pids[0], signal.SIGKILL)
    (death,) = workers.receive(LONG)
    os.kill(pids[1], signal.SIGCONT)
    assert isinstance(death, Death)
    assert (death.part, death.place, death.lost) == (None, IDLE, tuple(parts))
    assert not ledger.out  # nobody has it, so its place is free again


@pytest.mark.parametrize("workers", ["shared"], indirect=True)
def test_who_cannot_be_ended_is_done_without_and_keeps_its_places(
    workers: ProcessWorkers, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = workers.traits.pool
    assert pool is not None
    task = Task(0, 0, 1, np.array([8, 1]))
    rows = [(0, task._replace(indices=np.array([8]), rows=(0, 1, 2, 1)))]
    entry = ledger.add(task)
    (part,) = ledger.divide(entry, rows, Joint(pool))
    workers.send(part)
    until((tmp_path / "reached").exists)
    (at,) = [each for each in workers.standing() if each.task is not None]
    with monkeypatch.context() as unkillable:
        unkillable.setattr(WorkerProcess, "signal", lambda member, what: None)
        unkillable.setattr(processes, "KILL_SECONDS", 0.0)
        workers.kill(at.worker)
        (death,) = workers.receive(LONG)
    assert isinstance(death, Death)
    assert (death.worker, death.exitcode, death.part, death.place) == (at.worker, None, part, 0)
    assert death.lost == (part,)
    own, shared = part.slot.id, part.joint.slot.id
    ledger.recall(entry)  # as recovery does
    del death, part
    taken = [pool.take() for _ in range(8)]
    assert not {slot.id for slot in taken} & {own, shared}
    for slot in taken:
        pool.put(slot)
    workers.revive(at.worker, elsewhere=False)
    (tmp_path / "go").touch()  # now it answers after all
    again = ledger.whole(entry)
    workers.send(again, first=True)
    while ledger.following is None:
        for event in workers.receive(LONG):
            assert event is again
            ledger.take(again)
    assert not ledger.out
    assert not ledger.has_divided


def test_a_worker_that_the_system_refuses_is_not_there(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(Data(tmp_path), False, True, 2, False, None, None, 0, 1, num_workers=3)
    workers = ProcessWorkers(job, ledger, "fork")
    launch = Popen._launch  # type: ignore[attr-defined]

    def refuse(popen: Any, process: Any) -> None:
        if "1" in process.name:
            raise OSError(errno.EAGAIN, "no more processes")
        launch(popen, process)

    try:
        with monkeypatch.context() as refusing:
            refusing.setattr(Popen, "_launch", refuse)
            with pytest.raises(OSError, match="no more processes"):
                workers.resize(3)
        assert [at.worker for at in workers.standing()] == [0]
        workers.resize(3)
        assert [at.worker for at in workers.standing()] == [0, 1, 2]
    finally:
        workers.stop()
