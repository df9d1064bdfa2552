"""A clock that does not count the time in which this thread waits for a CPU.

Gives: `now` and `since`, in seconds. Promises: a busy machine does not make work seem longer, if the kernel says how
long a thread has waited for a CPU; otherwise it is an ordinary clock.
Not its job: how many CPUs there are (cpus).
"""

from __future__ import annotations

import time

from feedline.machine.cgroups import text_of


def now() -> float:
    """The time now. It may go back a little if the thread has to wait between the two readings.

    >>> now() - now() < 1
    True
    """
    words = text_of("/proc/thread-self/schedstat").split()
    return time.perf_counter() - (int(words[1]) / 1e9 if len(words) == 3 else 0.0)


def since(began: float) -> float:
    """Seconds of that clock since `began`.

    >>> since(now() + 60)
    0.0
    """
    return max(0.0, now() - began)
