"""Workers on a Ray cluster keep the contract of workers."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))

from worker_contract import WorkerContract

from feedline.engine.contract import Workers
from feedline.engine.ledger import Ledger
from feedline.workers.job import Job
from feedline.workers.ray import RayWorkers


class TestRay(WorkerContract):
    def make(self, job: Job, ledger: Ledger) -> Workers:
        return RayWorkers(job, ledger)
