"""The loading that the machine is to be checked against.

Takes: what the user means to do, and the CPUs there are. Gives: `WorkerPlan`, and what follows from it in bytes.
Not its job: checking it against anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from feedline.machine.cpus import Cpus

HELD = 2
"""Batches that a loop has in hand: the one it works on, and the one before until the name is bound anew."""
GENEROSITY = 5 / 4
"""A slot that grows does so by a quarter at least (arena/slots), and a worker's slot grows after its first task."""


@dataclass(frozen=True)
class WorkerPlan:
    """How many workers, how far ahead, how large a batch.

    >>> plan = WorkerPlan(Cpus(host=8, allowed=8), num_workers=2, prefetch_factor=2, batch_bytes=1000)
    >>> plan.bytes_of_batches  # 2 × 2 ahead and 2 in the loop's hands
    7500
    """

    cpus: Cpus
    num_workers: int
    """Given, or one for each usable CPU."""
    given: bool = True
    """Did the user say how many workers?"""
    prefetch_factor: int = 2
    batch_bytes: int | None = None

    @property
    def bytes_of_batches(self) -> int | None:
        """Shared memory that batches take at once, as tests/diagnose/test_preflight.py sees it. None if not known.

        For a moment, batches that several workers make together take up to twice that; if it is not there, one does.
        """
        if self.batch_bytes is None:
            return None
        if not self.num_workers:
            return HELD * self.batch_bytes
        return int((self.num_workers * self.prefetch_factor + HELD) * self.batch_bytes * GENEROSITY)

    @property
    def workers(self) -> str:
        """The number in words."""
        return f"{self.num_workers} worker{'' if self.num_workers == 1 else 's'}"
