"""How much of its time a thread holds the GIL, the lock that lets one thread at a time run Python.

Takes: the moments at which the thread begins and ends its work. Gives: `Looks`: how often it was looked, how often the
GIL was held, how long the work took and how much of that was on a CPU.
Promises: a look needs no clock, so a busy machine hardly changes what is seen. A rival thread sleeps, wakes at a
moment that has nothing to do with the work, and asks for the GIL. If it had to wait for that, the kernel counts one
more switch than the sleep alone costs. A look costs about 10 µs, and the thread at work one switch of threads.
Not its job: what follows from it (the doctor).
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
"""Seconds between two looks: 32 of them take 45 ms beside work that releases the GIL, and 210 ms beside work that holds
it, since Python's own interval for a switch (5 ms) is then waited for (benchmarks/kinds_of_workers.py)."""
LEAST_LOOKS = 8
"""On fewer nothing is built."""
MOST_WANTED = 0.5
"""Of the GIL's time, by all workers together: from there on they wait for one another, and the training loop for them
(benchmarks/kinds_of_workers.py)."""
_RARELY = 0.01
_GOLDEN = 0.6180339887498949
_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)


class Looks(NamedTuple):
    """What was seen of a thread at work.

    >>> both = Looks(30, 3, 2.0, 1.0).plus(Looks(10, 1, 2.0, 1.0))
    >>> both.held_share, both.on_cpu
    (0.1, 0.5)
    """

    looked: int = 0
    held: int = 0
    """Looks at which it held the GIL."""
    seconds: float = 0.0
    """At work; waiting for a CPU that others have does not count."""
    computing: float = 0.0
    """Of these, on a CPU: it, or threads of its process that it waits for."""

    @property
    def held_share(self) -> float:
        """The share of its time that it holds the GIL; 0 if nobody has looked."""
        return self.held / self.looked if self.looked else 0.0

    @property
    def on_cpu(self) -> float:
        """The share of its time that it computes; the rest it waits, for a disk or a network."""
        return min(1.0, self.computing / self.seconds) if self.seconds else 0.0

    def plus(self, other: Looks) -> Looks:
        """Both together."""
        return Looks(
            self.looked + other.looked,
            self.held + other.held,
            self.seconds + other.seconds,
            self.computing + other.computing,
        )


def gil_is_on() -> bool:
    """Does one thread at a time run Python? Not in a free-threaded build, unless a module has switched it on.

    >>> gil_is_on() or sys.version_info >= (3, 13)
    True
    """
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def wanted(looks: Looks, workers: int, cpus: float) -> float:
    """The share of the GIL's time that so many workers want together, were they threads: of those that compute at once.

    >>> wanted(Looks(20, 5, seconds=1.0, computing=1.0), workers=8, cpus=2)
    0.5
    """
    at_once = min(workers, cpus / max(looks.on_cpu, _RARELY))
    return looks.held_share * at_once


class Rival:
    """Looks on while the thread that made it is at work.

    >>> rival = Rival()
    >>> rival.begin()
    >>> while rival.looked < 4:
    ...     _ = sum(range(10_000))
    >>> rival.end()
    >>> rival.stop()
    >>> rival.take().held > 0 or not gil_is_on()
    True
    """

    def __init__(self) -> None:
        self._at_work = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._seen = self._taken = (0, 0)  # looks, and those at which it was held; replaced whole, by the rival alone
        self._seconds = self._computing = 0.0
        self._began = (0.0, 0.0)
        self._times = (math.inf, -math.inf)  # when work last began, and ended; replaced whole, by the worker alone

    def begin(self) -> None:
        """Work begins."""
        if self._thread is None and _THREAD is not None:
            self._thread = threading.Thread(target=self._look_on, name="feedline-rival", daemon=True)
            self._thread.start()
        self._began = now(), time.process_time()
        self._times = time.monotonic(), self._times[1]
        self._at_work.set()

    def end(self) -> None:
        """Work ends, for the time being."""
        self._at_work.clear()
        self._times = self._times[0], time.monotonic()
        began, computed = self._began
        self._seconds += since(began)
        self._computing += time.process_time() - computed

    @property
    def looked(self) -> int:
        """How often, so far."""
        return self._seen[0]

    def take(self) -> Looks:
        """What was seen since it was last asked for."""
        before, self._taken = self._taken, self._seen
        looks = Looks(self._taken[0] - before[0], self._taken[1] - before[1], self._seconds, self._computing)
        self._seconds = self._computing = 0.0
        return looks

    def stop(self) -> None:
        """No more looks."""
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
    """Was it looked while there was work? What holds the GIL between two tasks is none.

    >>> counts(3, began=2, ended=1), counts(3, began=2, ended=4), counts(3, began=4, ended=2)
    (True, True, False)
    """
    return due < ended or ended < began <= due


def _had_to_wait(seconds: float) -> bool:
    """Sleep, and then: was the GIL held?"""
    before = _switches()
    time.sleep(seconds)
    return _switches() - before > 1


def _switches() -> int:
    """How often this thread has let go of its CPU of itself."""
    assert _THREAD is not None
    return resource.getrusage(_THREAD).ru_nvcsw
