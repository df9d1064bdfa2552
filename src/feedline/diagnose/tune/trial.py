"""A setting of a loader, and what was measured with it. Plain data.

Takes: numbers. Gives: `TrialSetting`; `TrialWindow`, some batches; `Trial`, all that is known about a setting.
Promises: frozen; two trials of one setting can be combined; a trial's speed is the median of its windows, so that one
disturbance changes little.
Not its job: measuring (running), which settings exist (candidates), what follows (search, verdict).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any

USUAL_PREFETCH = 2
"""The default in torch and here."""


@dataclass(frozen=True)
class TrialSetting:
    """The number and kind of workers; batches ahead for each; threads of each for linear algebra.

    >>> print(TrialSetting(4), TrialSetting(1, "thread", prefetch=4), TrialSetting(0), sep="; ")
    4 processes; 1 thread, prefetch_factor=4; no workers
    """

    workers: int
    kind: str = "process"
    prefetch: int = USUAL_PREFETCH
    threads: int = 1

    def __str__(self) -> str:
        if not self.workers:
            return "no workers"
        word = {"process": "process", "thread": "thread"}[self.kind]
        plural = {"process": "processes", "thread": "threads"}[self.kind]
        parts = [f"{self.workers} {word if self.workers == 1 else plural}"]
        if self.prefetch != USUAL_PREFETCH:
            parts.append(f"prefetch_factor={self.prefetch}")
        if self.threads != 1:
            parts.append(f"{self.threads} threads each")
        return ", ".join(parts)


@dataclass(frozen=True)
class TrialWindow:
    """Some consecutive batches."""

    batches: int
    waited: float
    """Seconds that the consumer waited for them, in total."""

    def rate(self, step: float) -> float:
        """Batches per second with a step of exactly `step` seconds and that waiting."""
        return 1 / max(step + self.waited / max(1, self.batches), 1e-9)


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


@dataclass(frozen=True)
class Trial:
    """What was measured with a setting.

    >>> trial = Trial(TrialSetting(2), 0.02, (TrialWindow(50, 0.0), TrialWindow(50, 0.1), TrialWindow(40, 4.0)))
    >>> round(trial.batches_per_second, 1), round(trial.waiting_share, 2)
    (45.5, 0.09)
    """

    setting: TrialSetting
    step: float
    """Seconds; 0: the consumer only asks for the next batch."""
    windows: tuple[TrialWindow, ...] = ()
    spending: Spending = Spending()
    memory: int = 0
    """Bytes: the workers' own memory, and the batches made ahead."""
    first_batch: float = 0.0
    """Seconds from the loader's start to its first batch."""
    batch_bytes: int = 0
    failed: str = ""
    """Why it could not be measured; empty if it was."""

    @property
    def batches_per_second(self) -> float:
        """The median of the windows; 0 if there are none."""
        return median(window.rate(self.step) for window in self.windows) if self.windows else 0.0

    @property
    def waiting_share(self) -> float:
        """The share of its time that the consumer waits."""
        return max(0.0, 1 - self.step * self.batches_per_second) if self.windows else 1.0

    @property
    def waited(self) -> float:
        """Seconds of waiting, in all windows."""
        return sum(window.waited for window in self.windows)

    @property
    def spread(self) -> float:
        """How far the windows' rates differ, as a share of the median: half the interquartile range."""
        rates = sorted(window.rate(self.step) for window in self.windows)
        if len(rates) < 2:
            return 1.0
        low, high = rates[len(rates) // 4], rates[-1 - len(rates) // 4]
        return (high - low) / 2 / self.batches_per_second

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
        spent = self.spending
        return {
            "num_workers": self.setting.workers,
            "workers": self.setting.kind,
            "prefetch_factor": self.setting.prefetch,
            "threads_per_worker": self.setting.threads,
            "batches_per_second": self.batches_per_second,
            "waiting_share": self.waiting_share,
            "spread": self.spread,
            "windows": [window.rate(self.step) for window in self.windows],
            "memory_bytes": self.memory,
            "first_batch_seconds": self.first_batch,
            "utilisation": self.utilisation,
            "cpus_used": self.cpus_used,
            "spent": {each.name: getattr(spent, each.name) for each in fields(spent)},
            "failed": self.failed,
        }
