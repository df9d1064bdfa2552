"""What was measured with a setting. Plain data, and the system's accounting that it is made from.

Takes: numbers; process numbers. Gives: `Usage`, what processes have used; `Spending`, where the time went; `Trial`, all
that is known about a setting.
Promises: frozen; two trials of one setting can be combined; a trial's speed is the median of its windows, so that one
disturbance changes little. A process that has ended, or accounting that cannot be read, counts as nothing.
Not its job: measuring (running), which settings exist (candidates), what follows (search, verdict).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from statistics import median
from typing import Any, NamedTuple

from feedline.machine.cgroups import numbers_of, text_of
from feedline.machine.cpus import cpu_time
from feedline.observe.window import LITTLE_WAITING, Setting, Window, spread_of


class Usage(NamedTuple):
    """What processes have used, with all their threads."""

    cpu: float = 0.0
    queued: float = 0.0
    """Seconds in which a thread was ready to run, but had to wait for a CPU."""
    read: int = 0
    """Bytes from storage."""

    def minus(self, before: Usage) -> Usage:
        """Usage since `before`; never negative: when a thread ends, its part of the sum disappears."""
        cpu, queued = max(0.0, self.cpu - before.cpu), max(0.0, self.queued - before.queued)
        return Usage(cpu, queued, max(0, self.read - before.read))


def usage_of(pids: Iterable[int], proc: str = "/proc") -> Usage:
    """The usage of these processes up to now.

    >>> usage_of([os.getpid()]).cpu > 0
    True
    """
    total = Usage()
    for pid in pids:
        cpu, queued = _times(f"{proc}/{pid}")
        read = numbers_of(f"{proc}/{pid}/io", "read_bytes: ").get("read_bytes", 0)
        total = Usage(total.cpu + cpu, total.queued + queued, total.read + read)
    return total


def _times(process: str) -> tuple[float, float]:
    ran = queued = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"{process}/task"):
            words = text_of(f"{process}/task/{thread}/schedstat").split()
            if len(words) >= 2:
                ran, queued = ran + int(words[0]), queued + int(words[1])
    return (ran / 1e9, queued / 1e9) if ran else (cpu_time(process), 0.0)


@dataclass(frozen=True)
class Spending:
    """Where the time of a trial went. Seconds, summed over all workers."""

    seconds: float = 0.0
    """The seconds measured."""
    batches: int = 0
    fetching: float = 0.0
    collating: float = 0.0
    sending: float = 0.0
    transferring: float = 0.0
    """Waiting for pinned memory or a device…"""
    delivering: float = 0.0
    """…and the main process's own work on batches: both are part of the waiting."""
    cpu: float = 0.0
    """CPU seconds that loading used, in all processes…"""
    cpu_of_work: float = 0.0
    """…and in those that do the work."""
    queued_for_cpu: float = 0.0
    """Seconds in which those were ready to run, but other programs had the CPUs."""
    read: int = 0
    """Bytes that came from storage, and not from the system's cache."""

    def plus(self, other: Spending) -> Spending:
        """The sum of both."""
        return Spending(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    @property
    def work(self) -> float:
        """Seconds that the workers worked."""
        return self.fetching + self.collating + self.sending

    @property
    def work_per_batch(self) -> float:
        """Seconds that one worker needs for one batch."""
        return self.work / self.batches if self.batches else 0.0

    @property
    def cpu_share(self) -> float:
        """The share of computing in the time in which workers worked and could have a CPU; 1: all of it.

        Above 1: several threads computed at the same time.
        """
        free = self.work - self.queued_for_cpu
        return self.cpu_of_work / free if free > 0 else 1.0

    @property
    def queued_share(self) -> float:
        """The share of the workers' time in which they were ready to compute, but other programs had the CPUs."""
        return self.queued_for_cpu / self.work if self.work else 0.0


@dataclass(frozen=True)
class Trial:
    """What was measured with a setting.

    >>> windows = Window(50, 1.0, 0.0), Window(50, 1.1, 0.1), Window(40, 4.8, 4.0)
    >>> trial = Trial(Setting(2), 0.02, windows)
    >>> round(trial.batches_per_second, 1), round(trial.waiting_share, 2)
    (45.5, 0.09)
    """

    setting: Setting
    step: float
    """Seconds; 0: the consumer only asks for the next batch."""
    windows: tuple[Window, ...] = ()
    spending: Spending = Spending()
    memory: int = 0
    """Bytes: the workers' own memory, and the prefetched batches."""
    first_batch: float = 0.0
    """Seconds from the loader's start to its first batch."""
    batch_bytes: int = 0
    failed: str = ""
    """Why it could not be measured; empty if it was."""

    @property
    def batches_per_second(self) -> float:
        """The median of the windows; 0 if there are none."""
        return median(window.batches_per_second for window in self.windows) if self.windows else 0.0

    @property
    def waiting_share(self) -> float:
        """The share of its time that the consumer waits."""
        return max(0.0, 1 - self.step * self.batches_per_second) if self.windows else 1.0

    @property
    def keeps_up(self) -> bool:
        """Does it keep the step busy? Without a step the answer is no."""
        return self.step > 0 and self.batches_per_second >= (1 - LITTLE_WAITING) / self.step

    @property
    def waited(self) -> float:
        """Seconds of waiting, in all windows."""
        return sum(window.waited for window in self.windows)

    @property
    def spread(self) -> float:
        """How far the windows differ, as a share of the median."""
        return spread_of([window.batches_per_second for window in self.windows])

    @property
    def utilisation(self) -> float:
        """The share of their time that workers worked; without workers, 0."""
        there = self.spending.seconds * self.setting.workers
        return min(1.0, self.spending.work / there) if there else 0.0

    @property
    def cpus_used(self) -> float:
        """CPUs that were busy with loading, on average."""
        return self.spending.cpu / self.spending.seconds if self.spending.seconds else 0.0

    def plus(self, other: Trial) -> Trial:
        """Both measurements of the same setting, combined."""
        if self.failed or other.failed:
            return other if self.failed else self
        return replace(
            self,
            windows=self.windows + other.windows,
            spending=self.spending.plus(other.spending),
            memory=max(self.memory, other.memory),
            first_batch=min(self.first_batch, other.first_batch),
        )

    def to_json(self) -> dict[str, Any]:
        """As strings and numbers."""
        return {
            "num_workers": self.setting.workers,
            "workers": self.setting.kind,
            "prefetch_factor": self.setting.prefetch,
            "threads_per_worker": self.setting.threads,
            "pin_memory": self.setting.pinned,
            "batches_per_second": self.batches_per_second,
            "waiting_share": self.waiting_share,
            "spread": self.spread,
            "windows": [window.batches_per_second for window in self.windows],
            "memory_bytes": self.memory,
            "first_batch_seconds": self.first_batch,
            "utilisation": self.utilisation,
            "cpus_used": self.cpus_used,
            "spent": asdict(self.spending),
            "failed": self.failed,
        }
