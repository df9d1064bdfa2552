"""`num_workers="auto"`, as a number.

Takes: what the user passed as num_workers. Gives: an integer; for "auto", one that knows it is only the usual number.
Promises: it stays "auto" wherever the number goes: through torch's own checks, and to a loader that Lightning or
Accelerate rebuilds from this one's attributes.
Not its job: the current number of workers (supervise.pace).
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from feedline.errors.checks import check_whole
from feedline.machine.cpus import look

MOST_USUAL = 8
"""The largest number that "auto" takes without measuring. A stream keeps it for good, and more workers might need more
memory than there is: how much one needs has not been measured yet. (Data with indices begins with one worker.)"""
LEAST_MOST, MOST_PER_CPU = 32, 4
"""The largest number of workers, or of workers per CPU: more than CPUs, because many wait for a disk or network. The
benchmark's case of 5 ms latency (benchmarks/auto_workers.py) still gains from 16 to 32 on two CPUs."""


class AutoCount(int):
    """The usual number on this machine: one for each CPU, at most 8. For data with indices the real number changes.

    >>> count = AutoCount.here(prefetches=True)
    >>> 1 <= count <= MOST_USUAL, count.prefetches
    (True, True)
    """

    prefetches: bool = True
    """Does feedline also choose the number of batches made ahead?"""

    @classmethod
    def here(cls, prefetches: bool) -> AutoCount:
        """The usual number on this machine."""
        count = cls(min(MOST_USUAL, look().workers))
        count.prefetches = prefetches
        return count


def check_count(name: str, value: Any) -> int | str:
    """A number of workers, or "auto"."""
    if isinstance(value, AutoCount) or (isinstance(value, str) and value == "auto"):
        return value
    return check_whole(name, value, least=0, otherwise=', or "auto"')


def as_number(count: Any, prefetch_factor: int | None) -> Any:
    """The usual number for "auto", else the given number, which torch may still refuse.

    >>> as_number(2, None), type(as_number("auto", None)).__name__
    (2, 'AutoCount')
    """
    if isinstance(count, Integral):
        return count
    check_count("num_workers", count)
    return AutoCount.here(prefetch_factor is None)


def most_workers(cpus: int) -> int:
    """The largest number of workers."""
    return max(LEAST_MOST, MOST_PER_CPU * cpus)
