"""What one epoch has counted, or several together, for the user.

Takes: nothing. Gives: `EpochStats`. Promises: frozen; new fields come with defaults; a share is never more than all.
Not its job: counting (meter), what else a loader knows (stats), what follows from it (report).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

BETWEEN, STEPS, DEVICE = "time between batches", "loader.step()", "device events"
"""What the time of a step is based on, from the weakest to the strongest."""


@dataclass(frozen=True)
class EpochStats:
    """How batches flowed in an epoch, or in several. Times are in seconds.

    >>> counts = {"batches": 100, "samples": 3200, "bytes": 64_000_000, "num_workers": 2}
    >>> flow = EpochStats(seconds=10.0, waiting=4.0, fetching=8.0, **counts)
    >>> flow.samples_per_second, flow.waiting_share, flow.utilisation
    (320.0, 0.4, 0.4)
    >>> print(flow)
    320 samples/s, 10 batches/s, 6.4 MB/s; the loop waited 40 % of the time; workers busy 40 %
    """

    number: int = 0
    """The number of the (latest) epoch."""
    num_workers: int = 0
    """The number of workers; at the end, if it has changed."""
    seconds: float = 0.0
    """From the first request for a batch to the latest batch delivered, including the start of workers."""
    waiting: float = 0.0
    """The part of `seconds` in which the loop waited for batches."""
    batches: int = 0
    samples: int = 0
    bytes: int = 0
    """Bytes of arrays, tensors and texts in the batches; estimated from every 64th."""
    fetching: float = 0.0
    """Reading samples, summed over all workers…"""
    collating: float = 0.0
    """…collating them…"""
    sending: float = 0.0
    """…and packing batches for the main process."""
    transferring: float = 0.0
    """Waiting until pinned memory or a device is filled (feedline.torch)."""
    delivering: float = 0.0
    """The main process's own work on batches; part of `waiting`."""
    queued: float = 0.0
    """The average number of batches that were ready when one was requested."""
    restarts: int = 0
    """Workers that died or were stuck, and were replaced."""
    staffed: float = 0.0
    """Workers × seconds; not `num_workers` × `seconds` if the number of workers changed."""
    steps: int = 0
    """How often `with loader.step():` was entered."""
    stepping: float = 0.0
    """The time inside `with loader.step():`, by the host's clock, without waiting for batches in it."""
    device_stepping: float = 0.0
    """By the device's events: its time in steps…"""
    device_waiting: float = 0.0
    """…the time it had nothing to do because a batch was missing…"""
    device_other: float = 0.0
    """…and the time between steps, for other reasons; as far as events were read."""
    basis: str = BETWEEN
    """What a step's time is based on: "device events", "loader.step()" or "time between batches" (docs/step.md)."""

    @property
    def samples_per_second(self) -> float:
        """Samples per second, including the loop's own work."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def batches_per_second(self) -> float:
        """Batches per second."""
        return self.batches / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def waiting_share(self) -> float:
        """The share of its time that the loop waited: what a faster loader could save."""
        return min(1.0, self.waiting / self.seconds) if self.seconds else 0.0

    @property
    def step(self) -> float:
        """The loop's time in steps: inside `loader.step()`; without it, all the time between batches."""
        is_said = (self.steps or self.stepping) and self.basis != BETWEEN  # in all the epochs that are summed up here
        return self.stepping if is_said else max(0.0, self.seconds - self.waiting)

    @property
    def other(self) -> float:
        """The rest of the loop's time, if `loader.step()` says what a step is: neither a step nor waiting."""
        return max(0.0, self.seconds - self.waiting - self.step)

    @property
    def starved_share(self) -> float:
        """The share of its time that the device waited for batches; without its events, that the loop did."""
        return self._share(self.device_waiting, self.waiting_share)

    @property
    def step_share(self) -> float:
        """The share of the device's time in steps; without its events, of the loop's."""
        return self._share(self.device_stepping, self.step / self.seconds if self.seconds else 0.0)

    @property
    def other_share(self) -> float:
        """The share of neither: logging, validation, saving between two steps."""
        return self._share(self.device_other, self.other / self.seconds if self.seconds else 0.0)

    @property
    def shares(self) -> str:
        """Step, waiting and the rest in words, and what they are based on.

        >>> print(EpochStats(seconds=10.0, waiting=2.0, steps=5, stepping=7.0, basis="loader.step()").shares)
        step 70 % of the time, waiting 20 %, other 10 % (loader.step())
        """
        whose = " of the device's time" if self.basis == DEVICE else " of the time"
        told = f"step {self.step_share:.0%}{whose}, waiting {self.starved_share:.0%}, other {self.other_share:.0%}"
        return f"{told} ({self.basis})".replace("%", " %")

    def _share(self, on_device: float, on_host: float) -> float:
        whole = self.device_stepping + self.device_waiting + self.device_other
        return on_device / whole if self.basis == DEVICE and whole else min(1.0, on_host)

    @property
    def utilisation(self) -> float:
        """The share of their time that workers worked; without workers, 0."""
        spent = self.fetching + self.collating + self.sending
        available = self.staffed or self.seconds * self.num_workers
        return min(1.0, spent / available) if self.num_workers and available else 0.0

    def __str__(self) -> str:
        busy = f"; workers busy {self.utilisation:.0%}" if self.num_workers else ""
        return (
            f"{self.samples_per_second:,.0f} samples/s, {self.batches_per_second:,.3g} batches/s, "
            f"{self.bytes_per_second / 1e6:,.3g} MB/s; the loop waited {self.waiting_share:.0%} of the time{busy}"
        ).replace("%", " %")

    def plus(self, other: EpochStats) -> EpochStats:
        """The sum of both."""
        batches = self.batches + other.batches
        queued = (self.queued * self.batches + other.queued * other.batches) / batches if batches else 0.0
        sums = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        known = [each.basis for each in (self, other) if each.batches]
        basis = min(known, key=(BETWEEN, STEPS, DEVICE).index, default=BETWEEN)
        return replace(other, queued=queued, basis=basis, **sums)


_ADDED = (
    *("seconds", "waiting", "batches", "samples", "bytes", "restarts"),
    *("fetching", "collating", "sending", "transferring", "delivering", "staffed"),
    *("steps", "stepping", "device_stepping", "device_waiting", "device_other"),
)
