"""Measures the memory of worker processes regularly, and warns when it grows.

Takes: the processes, and calls at moments when there is time to measure. Gives: measurements, warnings.
Promises: it measures at the end of each epoch and every 10 s within one, but never for more than 1 % of the time, also
in a new loader's first epoch (if that is too short, it takes what can be read at once); each kind of growth is reported
once per loader; what cannot be read is left out.
Not its job: what counts as growth (growth), how the user is warned (loop).

The check for leaks reads /proc/<pid>/statm, which takes 35 µs. What a forked worker still shares is in smaps_rollup,
for which the kernel visits all its pages: 16 ms for a worker of 320 MB.
"""

from __future__ import annotations

import mmap
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from feedline.observe.stats import WorkerMemory
from feedline.supervise.growth import LEAST_COPIED, STEPS, STEPS_WITHIN, Growth, History, Point, copied, steady
from feedline.supervise.records import largest

EVERY = 10.0
"""Seconds between measurements within an epoch."""
SHARE = 0.01
"""The share of the time that may be spent on measuring."""
SECONDS_A_BYTE = 0.016 / (320 << 20)
"""What the first measurement is expected to take. It was 18 of 76 ms in the first epoch of 25 small batches, with two
workers of 200 MB."""
MB = 1 << 20

Processes = list[tuple[int, int]]
"""Worker number and pid."""


class MemorySetting(NamedTuple):
    """What a measurement needs to know about the loader."""

    dataset: Any
    stream: bool
    forked: bool


class MemoryWatch:
    """The memory of one loader's worker processes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latest: tuple[WorkerMemory, ...] = ()
        self._at_start: dict[int, int] = {}
        self._ends: dict[int, History] = {}
        self._within: dict[int, History] = {}
        self._epochs = 0
        self._quiet_until = clock() + EVERY
        self._looks = _LimitedByCost(clock)
        self._measurements = _LimitedByCost(clock)
        self._told: set[str] = set()

    def begin(self, processes: Processes) -> None:
        """An epoch begins, with these workers."""
        self._epochs += 1
        self._within = {}
        if not processes:
            self._ends, self._at_start = {}, {}
            return
        pids = {pid for _, pid in processes}
        self._ends = {pid: history for pid, history in self._ends.items() if pid in pids}
        self._at_start = {pid: self._at_start.get(pid) or own_memory(pid) for pid in pids}

    def now(self, processes: Processes) -> tuple[WorkerMemory, ...]:
        """Measurements now; the latest ones if no process is left."""
        found = [measure(number, pid) for number, pid in processes]
        self._latest = tuple(one for one in found if one is not None) or self._latest
        return self._latest

    def note(self, told: list[WorkerMemory]) -> None:
        """Workers on other machines have said what they use: their pids mean nothing here."""
        self._latest = tuple(told) or self._latest

    def look(self, processes: Callable[[], Processes], setting: MemorySetting, ended: bool) -> list[str]:
        """Measure if it is time, and return warnings."""
        now = self._clock()
        if not ended and now < self._quiet_until:  # the usual case, for every batch: 0.2 µs
            return []
        self._quiet_until = now + EVERY
        current = processes()
        warnings: list[str] = []
        if current and self._looks.due():
            with self._looks:
                warnings += self._growing(current, setting, ended)
        if current and self._measurements.due(SECONDS_A_BYTE * sum(resident(pid) for _, pid in current)):
            with self._measurements:
                self.now(current)
                warnings += self._copying(setting)
        elif ended and not self._latest:
            self._latest = self._estimates(current)
        return warnings

    def _estimates(self, processes: Processes) -> tuple[WorkerMemory, ...]:
        """What can be read in no time, for an epoch too short to measure in."""
        found = [(number, pid, resident(pid), own_memory(pid)) for number, pid in processes]
        return tuple(
            WorkerMemory(number, pid, total, max(own - self._at_start.get(pid, 0), 0), own)
            for number, pid, total, own in found
            if total
        )

    def _growing(self, processes: Processes, setting: MemorySetting, ended: bool) -> list[str]:
        worst: tuple[float, str] | None = None
        histories, steps, unit = (self._ends, STEPS, "epoch") if ended else (self._within, STEPS_WITHIN, "minute")
        when = self._epochs if ended else self._clock() / 60
        for number, pid in processes:
            history = histories.setdefault(pid, History())
            own = own_memory(pid)
            if not own or not history.add(Point(when, own)):
                continue
            growth = steady(history.points, steps)
            if growth is not None and (worst is None or growth.rate > worst[0]):
                worst = growth.rate, leak_words(number, pid, growth, unit, len(processes))
        # A dataset that keeps its samples on purpose grows in its first epoch like a leak.
        if worst is None or "leak" in self._told or not (ended or setting.stream or self._epochs > 1):
            return []
        self._told.add("leak")
        return [worst[1]]

    def _copying(self, setting: MemorySetting) -> list[str]:
        if not setting.forked or "copies" in self._told:
            return []
        for one in self._latest:
            at_fork = self._at_start.get(one.pid, 0)
            if not at_fork or copied(at_fork, one.own, one.private) < LEAST_COPIED:
                continue
            amount = copied(at_fork, one.own, private_own(one.pid))  # without batches and files, which are not copies
            if amount >= LEAST_COPIED:
                self._told.add("copies")  # whether a collection is found or not: the search is done once
                records = largest(setting.dataset)
                return [] if records is None else [copy_words(one, amount, records, len(self._latest))]
        return []


class _LimitedByCost:
    """A repeated measurement: the longer it takes, the less often it is done."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._ended = clock()

    def due(self, expected: float = 0) -> bool:
        """Has enough time passed since the last one for what that took, or since the beginning for what is expected?"""
        return self._clock() - self._ended >= max(self._ended - self._began, expected) / SHARE

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(self, *_: object) -> None:
        self._ended = self._clock()


def leak_words(number: int, pid: int, growth: Growth, unit: str, count: int) -> str:
    """The warning about a leak."""
    span = growth.until.when - growth.since.when
    return (
        f"worker {number} (pid {pid}) grows by {growth.rate / MB:.1f} MB per {unit}: from {growth.since.own / MB:.0f} "
        f"to {growth.until.own / MB:.0f} MB in the last {span:.3g} "
        f"{unit}s{f', and there are {count} workers' if count > 1 else ''}. Something keeps the samples that it reads: "
        "look for a cache without a limit in the dataset (a dict or list that is only added to, "
        "lru_cache(maxsize=None)) and limit it. Until then, persistent_workers=False begins each epoch with new "
        "workers. loader.stats() shows the memory of each worker."
    )


def copy_words(one: WorkerMemory, amount: int, records: str, count: int) -> str:
    """The warning about copies made by reading."""
    return (
        f"worker {one.worker} (pid {one.pid}) has copied {amount / MB:.0f} MB that it shared with this process when it "
        f"was forked{f', and there are {count} workers' if count > 1 else ''}. Reading a Python object changes its "
        f"reference count, so the system copies the page it is on. The largest collection is {records}. Make it a "
        "feedline.SharedList(…), which is read in the same way and stays shared."
    )


def measure(worker: int, pid: int, proc: str = "/proc") -> WorkerMemory | None:
    """Read one process's memory; None if it has ended."""
    facts = _facts(f"{proc}/{pid}/smaps_rollup")
    if "Rss" in facts and "Anonymous" in facts:
        private = facts.get("Private_Clean", 0) + facts.get("Private_Dirty", 0)
        return WorkerMemory(worker, pid, facts["Rss"], private, facts["Anonymous"])
    pages = _statm(pid, proc)
    if pages is None:
        return None
    own = (pages[0] - pages[1]) * mmap.PAGESIZE
    return WorkerMemory(worker, pid, pages[0] * mmap.PAGESIZE, own, own)


def private_own(pid: int, proc: str = "/proc") -> int:
    """The private part of a process's anonymous memory, summed over its mappings: that takes some milliseconds."""
    total, anonymous = 0, False
    for line in _read(f"{proc}/{pid}/smaps").splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):  # "7f…-7f… rw-p 00000000 00:00 0   [heap]": no inode, no file
            anonymous = len(words := line.split()) >= 5 and words[4] == "0"
        elif anonymous and name == "Private_Dirty:":
            total += int(rest.split()[0]) * 1024
    return total


def own_memory(pid: int, proc: str = "/proc") -> int:
    """A process's anonymous memory, read the fast way; 0 if it has ended."""
    pages = _statm(pid, proc)
    return 0 if pages is None else (pages[0] - pages[1]) * mmap.PAGESIZE


def resident(pid: int, proc: str = "/proc") -> int:
    """All the memory of a process that is resident, read the fast way; 0 if it has ended."""
    pages = _statm(pid, proc)
    return 0 if pages is None else pages[0] * mmap.PAGESIZE


def _statm(pid: int, proc: str) -> tuple[int, int] | None:
    words = _read(f"{proc}/{pid}/statm").split()
    return (int(words[1]), int(words[2])) if len(words) >= 3 else None


def _facts(path: str) -> dict[str, int]:
    return {name: int(kilobytes) * 1024 for name, kilobytes in re.findall(r"^(\w+): +(\d+) kB$", _read(path), re.M)}


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):  # it has ended, or we may not read it
        return ""
