"""How many CPUs this process may really use.

Takes: affinity, cgroup quotas, the machine's count. Gives: `Cpus`, and how many workers they allow.
Promises: the tightest of all limits: affinity (which includes cpusets), and the quotas of our cgroup and all its parent
cgroups, version 1 or 2. It never raises.
Not its job: what is reported about it (diagnose/preflight_checks, observe/report).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

from feedline.machine.cgroups import folders, numbers_of, text_of

LEAST_QUOTA = 0.01
"""CPUs: the kernel refuses quotas below 1 ms in 100 ms."""


@dataclass(frozen=True)
class Cpus:
    """The host's CPUs, those this process may run on, and how much of their time it may use.

    >>> Cpus(host=64, allowed=64, quota=2.5).workers
    2
    """

    host: int
    allowed: int
    """CPUs allowed by affinity: taskset, cpusets, `docker run --cpuset-cpus`."""
    quota: float | None = None
    """In CPUs: `docker run --cpus`, a pod's limit. None: no limit."""
    version: int = 0
    """The version of the cgroup with the quota."""
    throttled: float | None = None
    """The share of periods in which the quota was used up, since that cgroup was made."""

    @property
    def usable(self) -> float:
        """How many CPUs this process can keep busy at once, on average."""
        return self.allowed if self.quota is None else min(self.allowed, self.quota)

    @property
    def workers(self) -> int:
        """How many workers can run at once."""
        return max(1, math.floor(self.usable + 0.01))  # a quota of 1.999 is meant to be 2


def look(proc: str = "/proc") -> Cpus:
    """The CPUs of this process now.

    >>> look().usable > 0
    True
    """
    host = _host()
    quota, version, throttled = min(_quotas(proc), default=(None, 0, None))
    return Cpus(host, _allowed(host), quota, version, throttled)


def _host() -> int:
    try:
        return max(1, os.sysconf("SC_NPROCESSORS_ONLN"))  # PYTHON_CPU_COUNT changes what os.cpu_count() says
    except (ValueError, OSError, AttributeError):
        return os.cpu_count() or 1


def _allowed(host: int) -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        return host


def _quotas(proc: str) -> Iterator[tuple[float, int, float]]:
    for path, version in folders("cpu", proc):
        if version == 2:
            words = text_of(f"{path}/cpu.max").split()
        else:
            words = [text_of(f"{path}/cpu.cfs_{which}_us").strip() for which in ("quota", "period")]
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):  # "max" and -1: no limit
            yield max(int(words[0]) / int(words[1]), LEAST_QUOTA), version, _throttled(path)


def _throttled(path: str) -> float:
    counts = numbers_of(f"{path}/cpu.stat", "nr_periods ", "nr_throttled ")
    return counts.get("nr_throttled", 0) / max(1, counts.get("nr_periods", 0))


def cpu_time(process: str) -> float:
    """Seconds of CPU time that a process (`/proc/…`) with all its threads has used, to a hundredth; 0 if it has ended.

    >>> cpu_time("/proc/self") >= 0
    True
    """
    words = text_of(f"{process}/stat").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK") if len(words) > 12 else 0.0
