"""The planned loading that the machine is checked against.

Takes: the user's plan, and the CPUs. Gives: `WorkerPlan`, and its memory in bytes.
Not its job: checking it against anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from feedline.errors.counting import counted
from feedline.machine.cpus import Cpus

HELD = 2
"""Batches that a loop holds: the current one, and the one before until its name is assigned again."""
GENEROSITY = 5 / 4
"""A slot grows by at least a quarter (arena/slots), and a worker's slot grows after its first task."""


@dataclass(frozen=True)
class WorkerPlan:
    """The number of workers, of batches made ahead, and the size of a batch.

    >>> plan = WorkerPlan(Cpus(host=8, allowed=8), num_workers=2, prefetch_factor=2, batch_bytes=1000)
    >>> plan.bytes_of_batches  # 2 × 2 ahead and 2 in the loop's hands
    7500
    """

    cpus: Cpus
    num_workers: int
    """Given, or one for each usable CPU."""
    given: bool = True
    """Did the user give the number of workers?"""
    prefetch_factor: int = 2
    batch_bytes: int | None = None

    @property
    def bytes_of_batches(self) -> int | None:
        """Shared memory of all batches at a time, as measured in tests/diagnose/test_preflight.py. None if unknown.

        A batch made by several workers takes up to twice that for a moment; without room, one worker makes it.
        """
        if self.batch_bytes is None:
            return None
        if not self.num_workers:
            return HELD * self.batch_bytes
        return int((self.num_workers * self.prefetch_factor + HELD) * self.batch_bytes * GENEROSITY)

    @property
    def workers(self) -> str:
        """The number in words."""
        return counted(self.num_workers, "worker")
