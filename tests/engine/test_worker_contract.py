"""Every kind of worker keeps the contract, and that has ten members."""

from __future__ import annotations

import inspect

import pytest
from kinds import thorough
from worker_contract import WorkerContract

from feedline.engine.contract import Workers
from feedline.engine.ledger import Ledger
from feedline.workers.inline import InlineWorkers
from feedline.workers.job import Job
from feedline.workers.processes import ProcessWorkers
from feedline.workers.threads import ThreadWorkers


class TestInline(WorkerContract):
    def make(self, job: Job, ledger: Ledger) -> Workers:
        return InlineWorkers(job)


class TestThreads(WorkerContract):
    def make(self, job: Job, ledger: Ledger) -> Workers:
        return ThreadWorkers(job, ledger)


class TestFork(WorkerContract):
    def make(self, job: Job, ledger: Ledger) -> Workers:
        return ProcessWorkers(job, ledger, "fork")


class TestSpawn(WorkerContract):
    def make(self, job: Job, ledger: Ledger) -> Workers:
        return ProcessWorkers(job, ledger, "spawn")


@thorough
class TestForkserver(WorkerContract):
    def make(self, job: Job, ledger: Ledger) -> Workers:
        return ProcessWorkers(job, ledger, "forkserver")


@pytest.mark.parametrize("kind", [InlineWorkers, ThreadWorkers, ProcessWorkers])
def test_nothing_else_is_asked_of_them(kind: type) -> None:
    asked = {*Workers.__annotations__, *(name for name in vars(Workers) if not name.startswith("_"))}
    assert len(asked) == 10
    offered = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    by_the_loop = {"make"} if kind is InlineWorkers else set()  # which sends nothing if there are no workers
    assert offered <= asked | by_the_loop
