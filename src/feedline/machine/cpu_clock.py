"""A clock that does not count the time in which this thread waits for a CPU.

Gives: `now` and `since`, in seconds. Promises: a busy machine does not make work seem longer, if the kernel says how
long a thread has waited for a CPU; otherwise it is an ordinary clock.
Not its job: how many CPUs there are (cpus).
"""

from __future__ import annotations

import time

from feedline.machine.cgroups import text_of

TRIES = 8
"""Readings of which two must agree: one takes some µs, and a thread runs for some ms before another is let in."""


def now() -> float:
    """The time now.

    >>> now() - now() < 1
    True
    """
    waited = _waited()
    for _ in range(TRIES):
        clock, before, waited = time.perf_counter(), waited, _waited()
        if waited == before:  # Otherwise the thread waited in between, and the two do not belong together.
            break
    return clock - waited


def _waited() -> float:
    """Seconds that this thread has waited for a CPU, if the kernel says so."""
    words = text_of("/proc/thread-self/schedstat").split()
    return int(words[1]) / 1e9 if len(words) == 3 else 0.0


def since(began: float) -> float:
    """Seconds of that clock since `began`.

    >>> since(now() + 60)
    0.0
    """
    return max(0.0, now() - began)
