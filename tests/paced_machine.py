"""A machine in numbers only, on which a loader's pace can be tried: what a window of batches would show there."""

from __future__ import annotations

import random
from dataclasses import dataclass

from feedline.observe.window import Setting
from feedline.supervise.pace import Means, Pace, WorkerWindow


def window(step: float, wait: float, work: float, **more: float) -> WorkerWindow:
    """A window of one batch, for which the loop took and waited so many seconds, and a worker worked so many."""
    return WorkerWindow(1, step + wait, wait, work=work, **more)  # type: ignore[arg-type]


@dataclass
class Simulated:
    """Making a batch computes and waits; the loop takes a step, and some time to take a batch from a worker."""

    cpus: int = 4
    computing: float = 0.01
    waiting: float = 0.0
    step: float = 0.0
    handing: float = 1e-4
    uneven: float = 0.0
    """What is lost for want of batches ahead, at a prefetch_factor of 1."""
    noise: float = 0.0
    seed: int = 0
    limit: int = 16 << 30
    used: int = 0
    worker: int = 100 << 20
    batch: int = 1 << 20
    told: bool = True
    """Does the machine say how busy its CPUs are?"""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def cost(self, setting: Setting) -> float:
        """Seconds for a batch, without noise."""
        one = self.computing + self.waiting
        supply = max(one / setting.workers, self.computing / self.cpus) * (1 + self.uneven / setting.prefetch)
        return self.handing + max(self.step, supply - self.handing)

    def memory(self, setting: Setting) -> int:
        """Bytes in use."""
        return self.used + setting.workers * (self.worker + setting.prefetch * self.batch)

    def window(self, setting: Setting) -> WorkerWindow:
        """What would be seen."""
        cost = self.cost(setting) * (1 + self._random.uniform(-self.noise, self.noise))
        one = self.computing + self.waiting
        making = max(one, setting.workers * self.computing / self.cpus if one > self.step else one)
        busy = min(1.0, making / (cost * setting.workers))
        computing = min(1.0, self.computing / (cost * self.cpus)) if self.told else 0.0
        return window(self.step, max(0.0, cost - self.step), making, utilisation=busy, cpu_utilisation=computing)

    def means(self, setting: Setting) -> Means:
        return Means(self.cpus, self.limit - self.memory(setting), self.limit, self.worker, self.batch)

    def best(self, most: int) -> float:
        """What the best fixed number of workers would cost."""
        counts = [count for count in range(1, most + 1) if self.memory(Setting(count, 2)) <= self.limit / 2]
        return min(self.cost(Setting(count, prefetch)) for count in counts for prefetch in (2, 4, 8))

    def run(self, pace: Pace, windows: int) -> list[Setting]:
        """The settings, window by window."""
        went = []
        for _ in range(windows):
            went.append(pace.judge(self.window(pace.setting), self.means(pace.setting)))
        return went
