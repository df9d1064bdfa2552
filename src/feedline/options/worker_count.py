"""`num_workers="auto"`, as a number.

Takes: what the user passed as num_workers. Gives: a whole number; one that says of itself that it is only the usual.
Promises: it stays "auto" wherever the number goes: through torch's own checks, and to a loader that Lightning or
Accelerate makes again from this one's attributes.
Not its job: how many there really are, from moment to moment (supervise.pace).
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from feedline.errors.checks import check_whole
from feedline.machine.cpus import look

MOST_USUAL = 8
"""For a stream, whose number of workers stays what it was; more need memory that nobody has measured yet."""
LEAST_MOST, MOST_PER_CPU = 32, 4
"""There may be so many workers, or so many for each CPU: more than CPUs, because many wait for a disk or network. The
benchmark's case of 5 ms latency (benchmarks/auto_workers.py) still gains from 16 to 32 on two CPUs."""


class AutoCount(int):
    """As many as are usual on this machine: one for each CPU. Workers for data with indices come and go.

    >>> count = AutoCount.here(prefetches=True)
    >>> 1 <= count <= MOST_USUAL, count.prefetches
    (True, True)
    """

    prefetches: bool = True
    """Is the number of batches ahead left to feedline, too?"""

    @classmethod
    def here(cls, prefetches: bool) -> AutoCount:
        """On this machine."""
        count = cls(min(MOST_USUAL, look().workers))
        count.prefetches = prefetches
        return count


def check_count(name: str, value: Any) -> int | str:
    """A number of workers, or "auto"."""
    if isinstance(value, AutoCount) or (isinstance(value, str) and value == "auto"):
        return value
    return check_whole(name, value, least=0, otherwise=', or "auto"')


def as_number(count: Any, prefetch_factor: int | None) -> Any:
    """The usual number for "auto", or else the number that was given, which may be one that torch refuses.

    >>> as_number(2, None), type(as_number("auto", None)).__name__
    (2, 'AutoCount')
    """
    if isinstance(count, Integral):
        return count
    check_count("num_workers", count)
    return AutoCount.here(prefetch_factor is None)


def most_workers(cpus: int) -> int:
    """The most there may be."""
    return max(LEAST_MOST, MOST_PER_CPU * cpus)
