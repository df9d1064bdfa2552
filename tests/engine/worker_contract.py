"""What every kind of worker has to pass (feedline.engine.contract). A new kind subclasses `WorkerContract` and names a
factory:

    class TestRay(WorkerContract):
        def make(self, job, ledger): return RayWorkers(job, ledger)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feedline.engine.contract import Workers
from feedline.engine.ledger import Ledger, Part
from feedline.messages.task import Task
from feedline.supervise.watch import Death
from feedline.workers.job import Job

LONG = 600.0
"""Seconds; only something that is broken takes so long."""


class Data:
    """Ten samples, which say who has read them. Number 7 fails, and number 8 waits until a file is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise ValueError("seven")
        if index == 8:
            (self.folder / "reached").touch()
            while not (self.folder / "go").exists():
                threading.Event().wait(0.005)
        return np.array([index, os.getpid(), threading.get_native_id()])


class WorkerContract:
    """The suite."""

    def make(self, job: Job, ledger: Ledger) -> Workers:
        raise NotImplementedError

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def ledger(self) -> Ledger:
        ledger = Ledger()
        ledger.begin()
        return ledger

    @pytest.fixture
    def workers(self, folder: Path, ledger: Ledger) -> Iterator[Workers]:
        yield from self.started(self.job(folder), ledger)

    @pytest.fixture
    def in_turn(self, folder: Path, ledger: Ledger) -> Iterator[Workers]:
        yield from self.started(self.job(folder, in_turn=True), ledger)

    @pytest.fixture
    def one_worker(self, folder: Path, ledger: Ledger) -> Iterator[Workers]:
        """What it takes first it answers first."""
        yield from self.started(self.job(folder), ledger, 1)

    def started(self, job: Job, ledger: Ledger, count: int = 2) -> Iterator[Workers]:
        workers = self.make(job, ledger)
        try:
            workers.resize(count)
            yield workers
        finally:
            (job.dataset.folder / "go").touch()
            workers.stop()
            workers.stop()

    def job(self, folder: Path, **more: Any) -> Job:
        return Job(Data(folder), False, True, 2, False, None, None, 0, 1, num_workers=2, **more)

    def send(self, workers: Workers, ledger: Ledger, seq: int, *indices: int, first: bool = False) -> Part:
        part = ledger.whole(ledger.add(Task(seq, 0, 1, np.array(indices))))
        workers.send(part, first)
        return part

    def answers(self, workers: Workers, ledger: Ledger, count: int) -> list[Part]:
        """So many of them; each is taken by the ledger."""
        found: list[Part] = []
        while len(found) < count:
            events = workers.receive(LONG)
            assert events, "nothing has come"
            for event in events:
                assert isinstance(event, Part), event
                ledger.take(event)
                found.append(event)
        return found

    def test_every_part_has_one_answer(self, workers: Workers, ledger: Ledger) -> None:
        parts = [self.send(workers, ledger, seq, seq, seq + 1) for seq in range(6)]
        answers = {done.serial: done.outcome for done in self.answers(workers, ledger, 6)}
        for seq, part in enumerate(parts):
            outcome = answers.pop(part.serial)
            assert outcome is not None
            assert (outcome.seq, outcome.size, outcome.batch[:, 0].tolist()) == (seq, 2, [seq, seq + 1])
        assert not workers.receive(0)
        assert not ledger.out

    def test_an_error_is_an_answer_too(self, workers: Workers, ledger: Ledger) -> None:
        self.send(workers, ledger, 0, 7)
        (done,) = self.answers(workers, ledger, 1)
        assert done.outcome is not None
        assert done.outcome.failure is not None
        with pytest.raises(ValueError, match="seven"):
            raise done.outcome.failure.exception()

    def test_what_nobody_wants_any_more_is_answered_all_the_same(self, workers: Workers, ledger: Ledger) -> None:
        for seq in range(5):
            self.send(workers, ledger, seq, seq)
        ledger.begin()
        workers.drop_before(ledger.run)
        self.send(workers, ledger, 9, 3)
        while ledger.following is None or ledger.out:
            self.answers(workers, ledger, 1)
        assert ledger.following.outcome is not None
        assert ledger.following.outcome.batch[:, 0].tolist() == [3]

    def test_the_first_goes_before_what_nobody_has_taken(
        self, one_worker: Workers, ledger: Ledger, folder: Path
    ) -> None:
        expected: list[Part] = []
        if one_worker.traits.work_ahead:
            expected.append(self.send(one_worker, ledger, 0, 8))
            self.until(lambda: any(at.place == 0 for at in one_worker.standing()))
        later = [self.send(one_worker, ledger, seq, 1) for seq in (1, 2, 3)]
        expected += [self.send(one_worker, ledger, 4, 2, first=True), *later]
        (folder / "go").touch()
        order = [done.serial for done in self.answers(one_worker, ledger, len(expected))]
        assert order == [part.serial for part in expected]

    def test_where_each_stands_and_its_stack(self, workers: Workers, ledger: Ledger, folder: Path) -> None:
        if not workers.traits.work_ahead:
            assert workers.standing() == []
            return
        self.send(workers, ledger, 3, 0, 8)
        self.until(lambda: any(at.place == 1 for at in workers.standing()))
        standings = workers.standing()
        assert len(standings) == 2
        (at,) = [each for each in standings if each.task is not None]
        assert at.task is not None
        assert (at.task.seq, at.place) == (3, 1)
        workers.stacks(ask=True)
        self.until(lambda: "__getitem__" in workers.stacks().get(at.worker, ""))

    def test_there_are_as_many_as_are_asked_for(self, workers: Workers, ledger: Ledger) -> None:
        if not workers.traits.work_ahead:
            return
        for count in (1, 2, 0, 2):
            workers.resize(count)
            while len(workers.standing()) > count:
                assert not workers.receive(0.05)
            assert len(workers.standing()) == count

    def test_a_worker_that_is_ended_is_a_death_and_loses_nothing(
        self, workers: Workers, ledger: Ledger, folder: Path
    ) -> None:
        if not workers.traits.work_ahead:
            workers.kill(0)
            workers.revive(0, elsewhere=False)
            assert not workers.receive(0)
            return
        part = self.send(workers, ledger, 3, 0, 8)
        self.until(lambda: any(at.place == 1 for at in workers.standing()))
        (at,) = [each for each in workers.standing() if each.task is not None]
        workers.kill(at.worker)
        (death,) = workers.receive(LONG)
        assert isinstance(death, Death)
        assert (death.worker, death.part, death.place, death.task) == (at.worker, part, 1, part.entry.task)
        assert part in death.lost
        (folder / "go").touch()
        workers.revive(death.worker, elsewhere=False)
        ledger.recall(part.entry)
        workers.send(ledger.whole(part.entry), first=True)
        while ledger.following is None:
            for event in workers.receive(LONG):
                assert isinstance(event, Part)
                ledger.take(event)
        assert ledger.following.task.seq == 3

    def test_in_turn_each_makes_its_own(self, in_turn: Workers, ledger: Ledger) -> None:
        for seq in range(8):
            self.send(in_turn, ledger, seq, 1)
        made_by: dict[int, set[tuple[int, int]]] = {0: set(), 1: set()}
        for done in self.answers(in_turn, ledger, 8):
            assert done.outcome is not None
            made_by[done.outcome.seq % 2].add(tuple(done.outcome.batch[0, 1:].tolist()))
        assert len(made_by[0]) == len(made_by[1]) == 1
        assert not in_turn.traits.work_ahead or made_by[0] != made_by[1]

    def test_what_they_spent_is_known(self, workers: Workers, ledger: Ledger) -> None:
        self.send(workers, ledger, 0, 1)
        self.answers(workers, ledger, 1)
        assert sum(workers.traits.spent()) > 0

    def until(self, condition: Any) -> None:
        waited = threading.Event()
        for _ in range(int(LONG / 0.005)):
            if condition():
                return
            waited.wait(0.005)
        pytest.fail("it has not come to that")
