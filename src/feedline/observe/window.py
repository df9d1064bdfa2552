"""A setting of a loader, and a window: batches that a loop took one after the other with it, and how long that took.

Takes: counts and seconds. Gives: `Setting`, `Window`, and the statistics of several measurements.
Promises: plain data, the same for `feedline tune`, `feedline bench` and num_workers="auto".
Not its job: taking the batches (diagnose/consumer, engine/scaling), what follows from them (diagnose/tune,
diagnose/bench, supervise/pace).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np

from feedline.errors.counting import counted

USUAL_PREFETCH = 2
"""The default in torch and here."""
LITTLE_WAITING = 0.05
"""A loop that waits for at most this share of its time is said to be kept busy: less is not worth a worker."""

AnyWindow = TypeVar("AnyWindow", bound="Window")


class Setting(NamedTuple):
    """The number and kind of workers; prefetched batches for each; threads of each for linear algebra; pinned memory.

    >>> print(Setting(4), Setting(1, prefetch=4, kind="thread"), Setting(0, pinned=True), sep="; ")
    4 processes; 1 thread, prefetch_factor=4; no workers, pinned
    """

    workers: int
    prefetch: int = USUAL_PREFETCH
    kind: str = "process"
    threads: int = 1
    pinned: bool = False

    def __str__(self) -> str:
        pinned = ", pinned" if self.pinned else ""
        if not self.workers:
            return f"no workers{pinned}"
        prefetch = f", prefetch_factor={self.prefetch}" if self.prefetch != USUAL_PREFETCH else ""
        threads = f", {self.threads} threads each" if self.threads != 1 else ""
        return f"{counted(self.workers, self.kind)}{prefetch}{threads}{pinned}"


@dataclass(frozen=True)
class Window:
    """Successive batches with one setting.

    >>> window = Window(batches=10, seconds=0.5, waited=0.1, samples=320)
    >>> window.batches_per_second, window.samples_per_second, window.waiting_share, window.keeps_up
    (20.0, 640.0, 0.2, False)
    >>> window.with_step(0.25).seconds
    2.6
    """

    batches: int
    seconds: float
    """From the first step to the last batch…"""
    waited: float
    """…of which the loop waited for batches so long."""
    samples: int = 0
    """0 if they were not counted."""

    @property
    def seconds_per_batch(self) -> float:
        """A step, and the waiting for the next batch."""
        return self.seconds / max(1, self.batches)

    @property
    def step(self) -> float:
        """Seconds of the loop's own work for a batch."""
        return (self.seconds - self.waited) / max(1, self.batches)

    @property
    def batches_per_second(self) -> float:
        """The throughput."""
        return self.batches / max(self.seconds, 1e-9)

    @property
    def samples_per_second(self) -> float:
        """The throughput in samples."""
        return self.samples / max(self.seconds, 1e-9)

    @property
    def waiting_share(self) -> float:
        """The share of its time that the loop waits."""
        return self.waited / self.seconds if self.seconds else 0.0

    @property
    def keeps_up(self) -> bool:
        """Is the loop kept busy?"""
        return self.waiting_share <= LITTLE_WAITING

    def with_step(self: AnyWindow, step: float) -> AnyWindow:
        """The same batches and waiting, as if every step had taken exactly that many seconds."""
        return replace(self, seconds=self.batches * step + self.waited)


def spread_of(values: Sequence[float]) -> float:
    """How far measurements of the same thing differ: half the interquartile range, as a share of the median.

    >>> spread_of([9.0, 10.0, 11.0]), spread_of([10.0])
    (0.1, 1.0)
    """
    if len(values) < 2:
        return 1.0
    ranked = sorted(values)
    return (ranked[-1 - len(ranked) // 4] - ranked[len(ranked) // 4]) / 2 / median(ranked)


def error_of_mean(values: Sequence[float]) -> float:
    """The standard error of the mean, as a share of the mean; 0 if there are not two values.

    >>> round(error_of_mean([1.0, 3.0]), 3), error_of_mean([1.0])
    (0.5, 0.0)
    """
    if len(values) < 2 or not any(values):
        return 0.0
    return float(np.std(values, ddof=1) / np.mean(values) / len(values) ** 0.5)
