"""What processes have used so far, from the system's accounting.

Takes: process numbers. Gives: `Account`: CPU time, time spent waiting for a CPU, bytes read from storage.
Promises: never an exception: a process that has ended, or a file that cannot be read, counts as nothing.
Not its job: what follows from it (trial, verdict).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

from feedline.machine.cgroups import numbers_of, text_of
from feedline.machine.cpus import cpu_time


class Account(NamedTuple):
    """Sums over processes and all their threads."""

    cpu: float = 0.0
    queued: float = 0.0
    """Seconds in which a thread was ready to run, but had to wait for a CPU."""
    read: int = 0

    def minus(self, before: Account) -> Account:
        """Usage since `before`; never negative: when a thread ends, its part of the sum disappears."""
        cpu, queued = max(0.0, self.cpu - before.cpu), max(0.0, self.queued - before.queued)
        return Account(cpu, queued, max(0, self.read - before.read))


def account_of(pids: Iterable[int], proc: str = "/proc") -> Account:
    """The usage of these processes up to now.

    >>> account_of([os.getpid()]).cpu > 0
    True
    """
    total = Account()
    for pid in pids:
        cpu, queued = _times(f"{proc}/{pid}")
        read = numbers_of(f"{proc}/{pid}/io", "read_bytes: ").get("read_bytes", 0)
        total = Account(total.cpu + cpu, total.queued + queued, total.read + read)
    return total


def _times(process: str) -> tuple[float, float]:
    ran = waited = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"{process}/task"):
            words = text_of(f"{process}/task/{thread}/schedstat").split()
            if len(words) >= 2:
                ran, waited = ran + int(words[0]), waited + int(words[1])
    return (ran / 1e9, waited / 1e9) if ran else (cpu_time(process), 0.0)
