"""The number of workers, adjusted from batch to batch (`num_workers="auto"`).

Takes: when batches were asked for and given (from the meter), the workers' time, the limits of the machine or cluster.
Gives: new numbers of workers and of prefetched batches; what was chosen, and why.
Promises: what was learnt is kept for later epochs; a window of batches has a single setting and begins when its workers
are ready; the cost for a batch is one call and some additions, 2 µs.
Not its job: deciding (supervise.pace), owning workers (worker_set).
"""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

import numpy as np

from feedline.arena.limits import room
from feedline.machine.cpus import cpu_time, look
from feedline.observe.meter import Meter, Spent
from feedline.observe.stats import AutoWorkers, WorkerChange
from feedline.observe.window import Setting, error_of_mean
from feedline.options import Options
from feedline.options.worker_count import MOST_USUAL, AutoCount, most_workers
from feedline.supervise.pace import Means, Pace, WorkerWindow
from feedline.supervise.walking import Check, is_a, walk
from feedline.supervise.worker_memory import measure
from feedline.workers.job import Job
from feedline.workers.ray_cluster import Connection

KEPT = 100
"""How many changes are kept."""
SECONDS, FIRST_SECONDS = 0.25, 0.05
"""The shortest length of a window: shorter windows differed by more than a tenth on two busy cores. The first window is
shorter, because a cheap batch is recognised at once (benchmarks/auto_workers.py)."""
ROUNDS = 4
"""How many batches each worker makes in a window; the differences between these rounds give the window's error."""
STEPS = 1000
"""The median of at most this many steps of a window is used: a pause (a validation, a checkpoint) is not a step."""
UNKNOWN_WORKER = 1 << 26
"""Bytes that a worker is assumed to need before one is measured; a worker with NumPy needs half, a forked one less."""
MEASURED = 2
"""The memory of this many workers is measured before more are started: a worker of 320 MB takes 16 ms."""


class CannotStartWorkers(Exception):
    """No more workers can be started; the message says why."""


class Scaled(Protocol):
    """What scaling needs from a set of workers (worker_set)."""

    @property
    def count(self) -> int:
        """How many workers there should be."""

    def spent(self) -> Spent:
        """What the workers have spent their time on."""

    def processes(self) -> list[tuple[int, int]]:
        """Number and pid of each worker process."""

    def ready(self) -> int:
        """How many workers are ready for tasks, or at work."""

    def resize(self, count: int) -> None:
        """Have this many workers, or raise `CannotStartWorkers`."""

    def clean_up_ended(self) -> None:
        """The number does not change: clean up after workers that have left."""


class Scaling:
    """Scales the workers of one loader, in all its epochs."""

    def __init__(self, pace: Pace, most: int, on_cluster: bool = False) -> None:
        self._pace = pace
        self._on_cluster = on_cluster
        self.most = most
        """The most workers that there may ever be."""
        cpus = look()
        self._cpus = most if on_cluster else cpus.workers
        self._usable = float(most) if on_cluster else cpus.usable
        self._worker_bytes = 0
        self._changes: deque[WorkerChange] = deque(maxlen=KEPT)
        self._total = self._began = 0
        self._is_short = False
        self._is_first = True
        self._unfinished = False
        self._cpu_before: float | None = None
        self._clear()

    @property
    def setting(self) -> Setting:
        """The setting in use."""
        return self._pace.setting

    def chosen(self) -> AutoWorkers:
        """The setting in use, and why it was chosen."""
        pace = self._pace
        return AutoWorkers(*pace.setting[:2], pace.reason, pace.settled, tuple(self._changes))

    def begin(self, workers: Scaled) -> None:
        """An epoch begins with these workers. Its first batches are not counted: they are not typical."""
        if self._unfinished:  # the last epoch was left before its end, at an unknown moment
            self._clear()
        self._began = self._total
        # If epochs are so short that no batch would be counted, only the first batch is skipped.
        self._skip = 1 if self._is_short else 1 + workers.count
        self._unfinished = True
        self._look(workers)

    def end(self, workers: Scaled) -> None:
        """The epoch is over; a window that has begun continues in the next one."""
        if not self._skip:
            self._add(workers)
        self._is_short = self._total - self._began <= 1 + workers.count
        self._unfinished = False

    def gave(self, meter: Meter, workers: Scaled) -> bool:
        """The loop got a batch. Has the setting changed?"""
        self._total += 1
        step = meter.whole_step()
        if self._skip:
            self._pass_over(workers)
            return False
        wait = meter.given - meter.latest
        self._batches += 1
        self._waited += wait
        self._elapsed += step + wait
        if self._batches <= STEPS:
            self._steps.append(step)
            if not self._batches % self._round:
                self._rounds.append(self._elapsed)
        if self._batches < self._least or self._elapsed < self._least_time:
            return False
        return self._judge(meter, workers)

    def _pass_over(self, workers: Scaled) -> None:
        self._skip -= 1
        if not self._skip:
            if workers.ready() >= workers.count:
                self._look(workers)
            else:
                self._skip = 1

    def _clear(self) -> None:
        self._batches = self._waited = self._elapsed = self._spent = 0
        self._computed = 0.0
        self._steps: list[int] = []
        self._before, self._cpu_before = Spent(), None
        self._skip = 1
        self._unfinished = False
        self._round = self._pace.setting.workers
        self._rounds = [0]  # when each round was over
        self._least = ROUNDS * self._round
        self._least_time = 1e9 * (FIRST_SECONDS if self._is_first else SECONDS)

    def _judge(self, meter: Meter, workers: Scaled) -> bool:
        before = self.chosen()
        self._pace.judge(self._window(workers), self._means(meter, workers))
        self._is_first = False
        return self._follow(before, meter, workers)

    def _follow(self, before: AutoWorkers, meter: Meter, workers: Scaled) -> bool:
        """Have as many workers as was decided, and begin a new window. Has the setting changed?"""
        try:
            if self.setting.workers != workers.count:
                workers.resize(self.setting.workers)
            if self._pace.settled:
                workers.clean_up_ended()
        except CannotStartWorkers as why:
            self._pace.refuse(workers.count, str(why))
        after = self.chosen()
        has_changed = (after.workers, after.prefetch_factor) != (before.workers, before.prefetch_factor)
        if has_changed or (after.settled and not before.settled):
            self._changes.append(WorkerChange(self._total, *self.setting[:2], after.reason))
        self._clear()
        self._unfinished, self._skip = True, 0
        self._look(workers)
        if has_changed:
            meter.set_workers(workers.count)
            # Batches that are out belong to the old setting, and the first batch of each worker is not typical.
            self._skip = before.prefetch_factor * before.workers + workers.count + 1
        return has_changed

    def _look(self, workers: Scaled) -> None:
        """Time that workers spend counts from now on."""
        self._before, self._cpu_before = workers.spent(), self._cpu_time(workers)

    def _add(self, workers: Scaled) -> None:
        """Add the time that workers have spent up to now."""
        self._spent += sum(workers.spent().minus(self._before))
        now = self._cpu_time(workers)
        if now is not None and self._cpu_before is not None:
            self._computed += max(0.0, now - self._cpu_before)

    def _cpu_time(self, workers: Scaled) -> float | None:
        """CPU time of this process and its workers, until the setting is settled: reading it takes 30 µs per worker."""
        if self._pace.settled:
            return None
        return time.process_time() + sum(cpu_time(f"/proc/{pid}") for _, pid in workers.processes())

    def _window(self, workers: Scaled) -> WorkerWindow:
        self._add(workers)
        seconds = self._elapsed / 1e9
        seen = WorkerWindow(
            self._batches,
            seconds,
            self._waited / 1e9,
            work=self._spent / 1e9,
            utilisation=min(1.0, self._spent / (self._elapsed * workers.count)),
            cpu_utilisation=self._computed / seconds / self._usable if seconds else 0.0,
            error=error_of_mean(np.diff(self._rounds).tolist()),
        )
        return seen.with_step(float(np.median(self._steps)) / 1e9)

    def _means(self, meter: Meter, workers: Scaled) -> Means:
        if not self._pace.settled:
            seen = [measure(number, pid) for number, pid in workers.processes()[:MEASURED]]
            self._worker_bytes = max([self._worker_bytes, *(each.private for each in seen if each is not None)])
        left = room()
        free, limit = (None, None) if left is None else (left.free, left.limit)
        flow = meter.flow()
        worker = 0 if self._on_cluster else self._worker_bytes or UNKNOWN_WORKER  # others' memory is theirs
        return Means(self._cpus, free, limit, worker, flow.bytes // max(1, flow.batches))


def scaling_for(options: Options) -> Scaling:
    """The scaling that a loader with these options begins with."""
    assert isinstance(options.num_workers, AutoCount)
    on_cluster = options.workers == "ray"
    most = Connection().places(options.ray_options or {}) if on_cluster else most_workers(look().workers)
    setting = Setting(1, options.prefetch_factor, options.workers)
    return Scaling(Pace(setting, max(1, most), options.num_workers.prefetches), max(1, most), on_cluster)


def of_a_stream(options: Options) -> AutoWorkers:
    """The report for a stream, whose number of workers must not change."""
    usual = f"one for each CPU, {MOST_USUAL} at most"
    why = f"{usual}; a stream is divided by the number of workers, so that number does not change"
    return AutoWorkers(options.num_workers, options.prefetch_factor, why, settled=True)


def in_memory() -> AutoWorkers:
    """The report for data in memory, which needs no worker."""
    why = "rows of arrays in memory: the loop gathers them in less time than a worker takes to hand them over"
    return AutoWorkers(0, 0, why, settled=True)


def needs_no_workers(options: Options, job: Job) -> bool:
    """Is a batch only rows of arrays in memory? Then making it runs no user code, and the loop alone is as fast as with
    workers (benchmarks/auto_workers.py, in memory: 1.01 and 0.92 to 1.04)."""
    if options.timeout or options.error_policy.on_stall == "restart" or job.on_error != "raise":
        return False
    if job.stream or not job.batched or job.collate_fn is not None:
        return False
    reader = job.dialect.batch_reader(job.dataset)
    if reader is None or reader.draws or job.worker_init_fn is not None:
        return False
    return not walk(job.dataset, "dataset", _is_mapped)  # else it is a disk that is waited for


def _is_mapped(kind: type) -> Check[bool] | None:
    return (lambda array: array._mmap is not None or None) if is_a(kind, np.memmap) else None
