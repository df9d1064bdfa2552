"""Where an epoch's time goes, counted while it runs.

Takes: the moments at which the user asks for a batch and gets it, and the workers' times. Gives: `EpochStats`.
Promises: two clock calls and a few additions a batch: 0.5 µs in the loop, and as much in a worker.
Not its job: what happened when (recording), the workers' memory (supervise).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import add, sub
from typing import Any, NamedTuple

from feedline.errors.foreign import ask
from feedline.messages.progress import COLLATED, FETCHED, SENT, Row, clock
from feedline.observe.epoch_stats import BETWEEN, DEVICE, STEPS, EpochStats
from feedline.observe.stepping import DeviceTimes, Steps

WEIGHED = 64
"""After the first two, only every Nth batch is measured: walking through a batch of many leaves takes time."""


class Spent(NamedTuple):
    """Nanoseconds that all workers together have spent since they started."""

    fetching: int = 0
    collating: int = 0
    sending: int = 0

    def minus(self, before: Spent) -> Spent:
        """The time spent since `before`."""
        return Spent._make(map(sub, self, before))


def spent_by(rows: Iterable[Row]) -> Spent:
    """The time spent by those workers."""
    fetching = collating = sending = 0
    for row in rows:
        fetching, collating, sending = fetching + row[FETCHED], collating + row[COLLATED], sending + row[SENT]
    return Spent(fetching, collating, sending)


class Sums(NamedTuple):
    """What one epoch has counted, or several together; times are in nanoseconds."""

    seconds: int = 0
    waiting: int = 0
    batches: int = 0
    samples: int = 0
    bytes: int = 0
    fetching: int = 0
    collating: int = 0
    sending: int = 0
    transferring: int = 0
    delivering: int = 0
    queued: int = 0
    restarts: int = 0
    staffed: int = 0
    steps: int = 0
    stepping: int = 0
    device_stepping: int = 0
    device_waiting: int = 0
    device_other: int = 0
    unstepped: int = 0
    """Batches of epochs that know no step, only the time between batches…"""
    on_host: int = 0
    """…and of those that know it by the host's clock alone."""

    def plus(self, other: Sums) -> Sums:
        """The sums of both. Each new epoch of a loader needs it, so it is not done with `EpochStats`, which takes as
        long as a batch of one number."""
        return Sums._make(map(add, self, other))

    def _basis(self) -> str:
        """The weakest of all the epochs."""
        if self.unstepped or not (self.device_stepping or self.steps or self.stepping):
            return BETWEEN
        return STEPS if self.on_host or not self.device_stepping else DEVICE

    def flow(self, number: int = 0, num_workers: int = 0) -> EpochStats:
        """The same for the user."""
        return EpochStats(
            number=number,
            num_workers=num_workers,
            seconds=self.seconds / 1e9,
            waiting=self.waiting / 1e9,
            batches=self.batches,
            samples=self.samples,
            bytes=self.bytes,
            fetching=self.fetching / 1e9,
            collating=self.collating / 1e9,
            sending=self.sending / 1e9,
            transferring=self.transferring / 1e9,
            delivering=self.delivering / 1e9,
            queued=self.queued / self.batches if self.batches else 0.0,
            restarts=self.restarts,
            staffed=self.staffed / 1e9,
            steps=self.steps,
            stepping=self.stepping / 1e9,
            device_stepping=self.device_stepping / 1e9,
            device_waiting=self.device_waiting / 1e9,
            device_other=self.device_other / 1e9,
            basis=self._basis(),
        )


class Meter:
    """The meter of one epoch.

    >>> meter = Meter(epoch=0, workers=2, spent=Spent())
    >>> meter.asked(); meter.gave(32, [0.5])
    >>> meter.take(Spent(1_000, 500, 0))
    >>> flow = meter.flow()
    >>> flow.batches, flow.samples, flow.fetching
    (1, 32, 1e-06)
    """

    # Defaults are class attributes, because each epoch has a meter.
    blocked = 0
    """Nanoseconds that the user waited for a worker. Without workers it stays 0: `spent` says how long it took."""
    restarts = 0
    """The number of workers that had to be replaced."""
    starting = 0
    """Nanoseconds that starting workers took: the user waits for that, too, in `iter()`."""
    latest = given = queued = 0
    step = 0
    """The time from `given`, when a batch was last delivered, to `latest`, when the user last asked."""
    steps: Steps | None = None
    """What `loader.step()` has measured, if it is used…"""
    device: DeviceTimes | None = None
    """…and what a device's events say, if there is one."""
    _transferring = _away = _waited = 0
    _worker_time = _workers_since = _batches = _samples = _queued = _first = _waiting = 0
    _bytes = _bytes_each = 0.0

    def __init__(self, epoch: int, workers: int, spent: Spent) -> None:
        self._epoch = epoch
        self._workers = workers
        self._before = self._spent = spent

    def asked(self, queued: int = 0) -> None:
        """The user asks for a batch; `queued` batches were ready."""
        latest = self.latest = clock()
        self.step = latest - self.given
        self.queued = queued
        if queued:
            self._queued += queued
        if not self._first:
            self.latest -= self.starting
            self.blocked += self.starting
            self._first = self.latest

    def gave(self, size: int, batch: Any) -> None:
        """The user has got the batch."""
        batches = self._batches = self._batches + 1
        self._samples += size
        if batches <= 2 or not batches % WEIGHED:
            self._bytes_each = weight(batch) / size
        self._bytes += size * self._bytes_each  # a counter must not decrease: its reader would see a restart
        given = self.given = clock()
        self._waiting += given - self.latest

    def moved(self, nanoseconds: int) -> None:
        """The user waited until a finished batch was moved to where it is needed."""
        self._transferring += nanoseconds
        self._waiting += nanoseconds
        now = clock()
        if self._first:  # if the next batch is asked for at once, the step was before this one was moved
            self._away += max(0, now - nanoseconds - self.given)
        self.given = now

    def whole_step(self) -> int:
        """The latest step, with the part of it that was before a batch was moved: the next one is then asked for at
        once. To be asked for once for each batch."""
        whole, self._away = self.step + self._away, 0
        return whole

    def gave_none(self) -> None:
        """No batch was given: there are no more, the user stopped, or there was an error."""
        if self.latest > self.given:
            self.given = clock()
            self._waiting += self.given - self.latest

    @property
    def waited(self) -> int:
        """Nanoseconds that the user has waited so far, including the start of workers."""
        return self._waiting if self._first else self.starting

    @property
    def first_asked(self) -> int:
        """When the user asked for the first batch; 0 as long as that has not happened."""
        return self._first + self.starting if self._first else 0

    def stepped(self, began: int, ended: int, waited: int, is_new: bool = True) -> None:
        """The user has left `loader.step()`, and had waited so long when it was entered. What was before the first
        request is not of this epoch, and waiting is no step."""
        if (steps := self.steps) is None:
            steps = self.steps = Steps()
        steps.count += is_new
        began = max(began, self.first_asked) if self._first else ended
        before = self.given - began - (self._waiting - waited) if self.given > began else 0
        steps.ended(max(0, before), max(0, ended - max(began, self.given)), self.given)

    def waited_since_mark(self) -> int:
        """Those since this was last asked: a device's event is recorded now."""
        since, self._waited = self._waiting - self._waited, self._waiting
        return since

    def set_workers(self, workers: int) -> None:
        """From the latest batch on there are this many workers."""
        self._worker_time += self._workers * (self.given - max(self._first, self._workers_since))
        self._workers, self._workers_since = workers, self.given

    def take(self, spent: Spent) -> None:
        """Set what the workers have spent so far."""
        self._spent = spent

    def flow(self) -> EpochStats:
        """What has been counted, up to the latest batch."""
        return self.sums().flow(self._epoch, self._workers)

    def sums(self) -> Sums:
        """The same as sums, which can be added to those of other epochs."""
        used = self._spent.minus(self._before)
        blocked = self.blocked if self._workers else self.blocked + sum(used)
        steps = (0, 0) if self.steps is None else (self.steps.count, self.steps.until(self.given))
        device = (0, 0, 0) if (at := self.device) is None or at.failed else (at.step, at.waiting, at.other)
        return Sums(
            max(0, self.given - self._first),
            self._waiting,
            self._batches,
            self._samples,
            round(self._bytes),
            *used,
            self._transferring,
            max(0, self._waiting - blocked - self._transferring),
            self._queued,
            self.restarts,
            self._worker_time + self._workers * max(0, self.given - max(self._first, self._workers_since)),
            *steps,
            *device,
            0 if any(steps) or device[0] else self._batches,
            self._batches if any(steps) and not device[0] else 0,
        )


def weight(batch: Any, deepest: int = 8) -> int:
    """The size in bytes of a batch's arrays, tensors and texts.

    >>> import numpy as np
    >>> weight({"x": np.zeros((2, 3), np.float32), "names": ["a", "bc"]})
    27
    """
    try:
        return _weight(batch, deepest)
    except Exception:  # a user's container that fails when it is searched
        return 0


def _weight(batch: Any, deepest: int) -> int:
    size = ask(batch, "nbytes")
    if isinstance(size, int):
        return size
    if isinstance(batch, (str, bytes)):
        return len(batch)
    if not deepest:
        return 0
    if isinstance(batch, Mapping):
        return sum(weight(value, deepest - 1) for value in batch.values())
    if isinstance(batch, (list, tuple)):
        return sum(weight(value, deepest - 1) for value in batch)
    return _weight_of_object(batch, deepest)


def _weight_of_object(batch: Any, deepest: int) -> int:
    fields: Iterable[Any] = ask(batch, "__dataclass_fields__", ())
    return sum(weight(ask(batch, name), deepest - 1) for name in fields)
