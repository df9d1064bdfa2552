"""Measures the share of its time that a thread holds the GIL, the lock that lets one thread at a time run Python.

Takes: when the thread begins and ends its work. Gives: `Looks`: how many checks there were, how often the GIL was held,
how long the work took and how much of that was on a CPU.
Promises: a check needs no clock, so a busy machine hardly changes the result. A rival thread sleeps, wakes at a moment
that is independent of the work, and requests the GIL. If it has to wait, the kernel counts one more context switch than
for the sleep alone. A check costs about 10 µs, and the working thread one context switch.
Not its job: what it means (the doctor).
"""

from __future__ import annotations

import math
import resource
import sys
import threading
import time
from typing import NamedTuple

from feedline.machine.cpu_clock import now, since

SHORTEST, LONGEST = 0.0003, 0.0023
"""Seconds between two checks: 32 checks take 45 ms beside work that releases the GIL, and 210 ms beside work that holds
it, because each then waits for Python's switch interval (5 ms) (benchmarks/kinds_of_workers.py)."""
LEAST_LOOKS = 8
"""With fewer checks no conclusion is drawn."""
MOST_WANTED = 0.5
"""The share of the GIL's time that all workers together may need: above it they wait for one another, and the training
loop for them (benchmarks/kinds_of_workers.py)."""
_RARELY = 0.01
_GOLDEN = 0.6180339887498949
_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)


class Looks(NamedTuple):
    """What was measured of a working thread.

    >>> both = Looks(30, 3, 2.0, 1.0).plus(Looks(10, 1, 2.0, 1.0))
    >>> both.held_share, both.on_cpu
    (0.1, 0.5)
    """

    looked: int = 0
    held: int = 0
    """How many checks found that it held the GIL."""
    seconds: float = 0.0
    """Seconds of work; waiting for a busy CPU does not count."""
    computing: float = 0.0
    """How many of these it, or threads of its process that it waits for, were on a CPU."""

    @property
    def held_share(self) -> float:
        """The share of its time that it holds the GIL; 0 if there was no check."""
        return self.held / self.looked if self.looked else 0.0

    @property
    def on_cpu(self) -> float:
        """The share of its time that it computes; in the rest it waits, for a disk or a network."""
        return min(1.0, self.computing / self.seconds) if self.seconds else 0.0

    def plus(self, other: Looks) -> Looks:
        """The sum of both."""
        return Looks(
            self.looked + other.looked,
            self.held + other.held,
            self.seconds + other.seconds,
            self.computing + other.computing,
        )


def gil_is_on() -> bool:
    """Can only one thread at a time run Python? Not in a free-threaded build, unless a module has enabled the GIL.

    >>> gil_is_on() or sys.version_info >= (3, 13)
    True
    """
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def wanted(looks: Looks, workers: int, cpus: float) -> float:
    """The share of the GIL's time that this many workers would need as threads. Only those that run at once count.

    >>> wanted(Looks(20, 5, seconds=1.0, computing=1.0), workers=8, cpus=2)
    0.5
    """
    at_once = min(workers, cpus / max(looks.on_cpu, _RARELY))
    return looks.held_share * at_once


class Rival:
    """Checks the GIL while the thread that made this object works.

    >>> rival = Rival()
    >>> rival.begin()
    >>> while gil_is_on() and not rival.take().held:
    ...     _ = sum(range(10_000))
    >>> rival.end()
    >>> rival.stop()
    """

    def __init__(self) -> None:
        self._at_work = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._seen = self._taken = (0, 0)  # checks, and how many found it held; only the rival replaces the tuple
        self._seconds = self._computing = 0.0
        self._began = (0.0, 0.0)
        self._times = (math.inf, -math.inf)  # when work last began and ended; only the worker replaces the tuple

    def begin(self) -> None:
        """Work begins."""
        if self._thread is None and _THREAD is not None:
            self._thread = threading.Thread(target=self._look_on, name="feedline-rival", daemon=True)
            self._thread.start()
        self._began = now(), time.process_time()
        self._times = time.monotonic(), self._times[1]
        self._at_work.set()

    def end(self) -> None:
        """Work ends for now."""
        self._at_work.clear()
        self._times = self._times[0], time.monotonic()
        began, computed = self._began
        self._seconds += since(began)
        self._computing += time.process_time() - computed

    @property
    def looked(self) -> int:
        """How many checks there were so far."""
        return self._seen[0]

    def take(self) -> Looks:
        """The measurements since the last call."""
        before, self._taken = self._taken, self._seen
        looks = Looks(self._taken[0] - before[0], self._taken[1] - before[1], self._seconds, self._computing)
        self._seconds = self._computing = 0.0
        return looks

    def stop(self) -> None:
        """End the checks."""
        self._stopped = True
        self._at_work.set()
        if self._thread is not None:
            self._thread.join()

    def _look_on(self) -> None:
        place, count, held = 0.0, 0, 0
        while True:
            self._at_work.wait()
            place = (place + _GOLDEN) % 1
            seconds = SHORTEST + (LONGEST - SHORTEST) * place
            due = time.monotonic() + seconds
            waited = _had_to_wait(seconds)
            if self._stopped:
                return
            if counts(due, *self._times):
                count, held = count + 1, held + waited
                self._seen = count, held


def counts(due: float, began: float, ended: float) -> bool:
    """Was the check during work? Code that holds the GIL between two tasks does not count.

    >>> counts(3, began=2, ended=1), counts(3, began=2, ended=4), counts(3, began=4, ended=2)
    (True, True, False)
    """
    return due < ended or ended < began <= due


def _had_to_wait(seconds: float) -> bool:
    """Sleep; was the GIL held when the sleep ended?"""
    before = _switches()
    time.sleep(seconds)
    return _switches() - before > 1


def _switches() -> int:
    """The number of voluntary context switches of this thread."""
    assert _THREAD is not None
    return resource.getrusage(_THREAD).ru_nvcsw
