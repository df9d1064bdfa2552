"""The machine on which is measured: the facts to compare with its numbers, and how much of it other programs used.

Takes: the session of the processes that measured. Gives: a dict of plain facts; the share of all cores' time that was
used outside that session (or taken by the host), on Linux, elsewhere None; the processes of a session.
Not its job: what follows from it (comparison); whether the machine is suitable for loading (preflight).
Why: a second busy process does not slow both sides equally. torch's threads wait for each other at every large
copy, so with one core taken, its loader without workers dropped from 3,500 to 130 samples/s.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedline.machine import cpus

BUSY = 0.10
"""From this share on, a ratio cannot be trusted."""

_STAT = Path("/proc/stat")
_WAITING = (3, 4)  # columns of /proc/stat: idle, waiting for a disk
_GUEST = 8  # from here on the columns repeat time that was counted before


class Noise:
    """Starts watching when made."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._started = time.monotonic()
        self._before = self._others()

    def share(self) -> float | None:
        """The others' share of the machine since then."""
        after = self._others()
        if self._before is None or after is None:
            return None
        ticks = (time.monotonic() - self._started) * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (after - self._before) / ticks))

    def _others(self) -> int | None:
        """Ticks used so far by everything outside the session."""
        if not _STAT.exists():
            return None
        columns = [int(column) for column in _STAT.read_text().split("\n", 1)[0].split()[1:]]
        busy = sum(ticks for place, ticks in enumerate(columns[:_GUEST]) if place not in _WAITING)
        # CPU time of the session's processes and of their ended children
        return busy - sum(int(ticks) for _, fields in _processes(self._session) for ticks in fields[11:15])


def members(session: int) -> list[int]:
    """The processes of a session, if the system tells.

    >>> os.getpid() in members(os.getsid(0)) or not _STAT.exists()
    True
    """
    return [process for process, _ in _processes(session)]


def _processes(session: int) -> Iterator[tuple[int, list[str]]]:
    """Each process with its numbers from /proc, beginning with the state."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[3]) == session:
            yield int(entry.parent.name), fields


def wait_for_quiet(limit: float) -> None:
    """Return when nothing else is running, or after `limit` seconds."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        noise = Noise(session=os.getsid(0))
        time.sleep(0.3)
        if (noise.share() or 0.0) < BUSY:
            return


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system, and how busy it was before.

    >>> machine()["cores"] >= 1
    True
    """
    return {
        "cpu": _first_line("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": cpus.look().allowed,
        "memory": _first_line("/proc/meminfo", "MemTotal"),
        "kernel": platform.platform(),
        "load before": os.getloadavg()[0],
    }


def _first_line(path: str, field: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), None)
