"""A machine that exists in numbers only: how fast a loader would be on it, and what a trial of it would show."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from feedline.diagnose.tune.candidates import Bounds
from feedline.diagnose.tune.trial import Spending, Trial
from feedline.observe.window import Setting, Window


def window(batches: int, waited: float, step: float = 0.0) -> Window:
    """Batches for which the loop waited so long in total, and took a step of so many seconds each."""
    return Window(batches, waited, waited).with_step(step)


@dataclass
class Machine:
    """Reading a batch computes for `computing` seconds and waits for `waiting`; the main process takes `handing`."""

    cpus: float = 2.0
    computing: float = 0.01
    waiting: float = 0.0
    handing: float = 1e-4
    holds_lock: float = 1.0
    """The share of the computing that no other thread can do meanwhile."""
    threaded: bool = False
    """Can the computing be shared among threads of one worker?"""
    uneven: float = 0.0
    """What a worker loses for want of batches ahead, at the usual prefetch_factor."""
    copying: float = 0.0
    """Seconds of a batch's copy to a GPU, for which the step waits; 0: there is none."""
    pinned_copying: float = 0.0
    """The same from pinned memory…"""
    pinning: float = 0.0
    """…and what one thread takes to pin a batch."""
    worker_memory: int = 10_000_000
    batch_bytes: int = 1_000_000
    start: float = 0.2
    step: float = 0.0
    noise: float = 0.0
    seed: int = 0
    broken: tuple[str, ...] = ()
    """Kinds of workers that cannot be had."""
    now: float = 0.0
    measured: list[Setting] = field(default_factory=list)

    def rate(self, setting: Setting) -> float:
        """Batches a second that the step gets, without noise."""
        step = max(self.step + (self.pinned_copying if setting.pinned else self.copying), 1e-9)
        if not setting.workers:
            alone = self.computing / (min(self.cpus, 8) if self.threaded else 1) + self.waiting
            return 1 / (step + alone)
        threads = min(setting.threads, self.cpus) if self.threaded else 1
        one = self.computing / threads + self.waiting
        idle = 1 + self.uneven * 2 / setting.prefetch
        limits = [setting.workers / (one * idle), self.cpus / max(self.computing, 1e-9), 1 / self.handing]
        if setting.pinned:
            limits.append(1 / max(self.pinning, 1e-9))
        if setting.kind == "thread":
            limits.append(1 / max(self.computing * self.holds_lock, 1e-9))
        return 1 / max(step, 1 / min(limits))

    def measure(self, setting: Setting, seconds: float) -> Trial:
        """As running.Runner does, on a clock of its own."""
        self.measured.append(setting)
        if setting.workers and setting.kind in self.broken:
            self.now += 0.01
            return Trial(setting, self.step, failed="ShippingError: no")
        self.now += min(self.start + seconds, max(seconds, self.start))
        rng, rate = random.Random(f"{self.seed} {len(self.measured)}"), self.rate(setting)
        windows = tuple(
            window(10, 10 * max(0.0, 1 / (rate * (1 + rng.uniform(-self.noise, self.noise))) - self.step), self.step)
            for _ in range(3)
        )
        batches = max(1, round(rate * seconds))
        cpu = batches * self.computing
        work = batches * (self.computing + self.waiting)
        if self.threaded and not setting.workers:
            work = batches * (self.computing / min(self.cpus, 8) + self.waiting)
            cpu = sum(each.waited for each in windows) * min(self.cpus, 8)
        spending = Spending(seconds=batches / rate, batches=batches, fetching=work, cpu=cpu, cpu_of_work=cpu)
        own = self.worker_memory if setting.kind == "process" else 0
        memory = setting.workers * (own + setting.prefetch * self.batch_bytes)
        return Trial(setting, self.step, windows, spending, memory, self.start, self.batch_bytes)

    def bounds(self, **more: object) -> Bounds:
        return Bounds(self.cpus, **({"gpu": True, "pins": True} if self.copying else {}) | more)  # type: ignore[arg-type]
