"""One setting, measured: a loader with real workers, and a consumer that takes a step for every batch.

Takes: a subject, a setting, a step. Gives: a `Trial`.
Promises: starting the workers and the first batches of each are left out; short windows are measured until they agree
or the time is over, but at least one; a small dataset is read epoch after epoch by the same workers. If something
hangs, it ends with an error that names it. A setting without enough memory, or whose data cannot be sent, is a failed
trial, and so is a kind of workers that cannot read what another can; any other sample that fails is an error.
Not its job: which settings (search), counting batches and seconds (consumer).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

from feedline.diagnose.consumer import Consumer, clock
from feedline.diagnose.quiet import quietly
from feedline.diagnose.tune.trial import Spending, Trial, usage_of
from feedline.diagnose.tune.tune_subject import TuneSubject
from feedline.errors import FeedlineError, MemoryShortage, ShippingError, WorkerTimeout
from feedline.observe.epoch_stats import EpochStats
from feedline.observe.stats import Stats
from feedline.observe.window import Setting, Window, spread_of
from feedline.supervise import watchdog

WINDOW = 0.2
"""Seconds of a window: long compared with momentary noise, and three of them are a trial."""
WINDOWS = 3
AGREE = 0.03
"""If the windows spread less than this, no more are needed; half of what a choice tolerates (LITTLE_WAITING)."""
PATIENCE = 10.0
"""Seconds that a batch may always take, after others have come."""
_BLOCK = bytes(1 << 16)


def wait_for(step: float) -> float:
    """A step like a GPU's: the main thread waits for it without using CPU. Returns the CPU seconds it used: none."""
    time.sleep(step)
    return 0.0


def compute_for(step: float) -> float:
    """A step on a CPU: it uses one CPU, without holding Python's lock. Returns the CPU seconds it used."""
    began, until = time.thread_time(), clock() + step
    while clock() < until:
        hashlib.blake2b(_BLOCK).digest()  # releases the lock for a block this large
    return time.thread_time() - began


class Runner:
    """Measures settings of one subject, one after the other, until a given time."""

    def __init__(
        self,
        subject: TuneSubject,
        step: float,
        busy_step: bool,
        until: float,
        arrive: Callable[[Any], Any] | None = None,
    ) -> None:
        self._subject = subject
        self._arrive = arrive
        """Puts a batch where the step needs it."""
        self._arriving = 0.0
        """Seconds that this took in a trial."""
        self._step = step
        self._busy_step = busy_step
        self._until = until
        self._count = 0
        self._burned = 0.0
        """CPU seconds that steps of this trial used."""
        self._longest = 0.0
        """Seconds until a first batch, in the trials so far."""
        self._working: set[str] = set()
        """Kinds of workers that have given batches."""

    def measure(self, setting: Setting, seconds: float) -> Trial:
        """Measure for about that many seconds after the first batch, or more if one window takes longer."""
        self._count += 1
        patience = self._patience()
        try:
            with quietly(), _threads_joined(self._until), _alarm(patience if not setting.workers else 0) as wind:
                with self._subject.loader(setting, self._count, patience) as loader:
                    trial = self._run(loader, wind, setting, seconds)
                    self._longest = max(self._longest, trial.first_batch)
                    self._working.add(setting.kind)
                    return trial
        except (MemoryShortage, ShippingError) as error:
            return Trial(setting, self._step, failed=_first_line(error))
        except WorkerTimeout as error:
            if setting.threads > 1:  # a forked worker hangs if it uses OpenMP's threads after its parent has
                return Trial(setting, self._step, failed="it hung: try multiprocessing_context='spawn'")
            if self._longest and patience < min(PATIENCE, 20 * self._longest):
                return Trial(setting, self._step, failed="the time was up before its first batch")
            raise FeedlineError(_too_slow(error, patience)) from error
        except FeedlineError as error:
            return self._only_so(setting, error, f"with {setting}: {error}")
        except Exception as error:
            words = f"reading failed: {_placed(error)}. `feedline doctor` shows more such samples"
            return self._only_so(setting, error, words)

    def _only_so(self, setting: Setting, error: Exception, words: str) -> Trial:
        """Some datasets cannot be read by threads, or not by processes (SQLite's connections, say): the others can."""
        if self._working and setting.kind not in self._working:
            return Trial(setting, self._step, failed=_placed(error))
        raise FeedlineError(words) from error

    def _patience(self) -> float:
        """How long to wait for a batch: all the remaining time, until it is known how long one takes."""
        left = max(0.1, self._until - clock())
        return min(left, max(PATIENCE, 20 * self._longest)) if self._longest else left

    def _take_step(self) -> None:
        if self._step:
            self._burned += (compute_for if self._busy_step else wait_for)(self._step)

    def _run(self, loader: Any, wind: Callable[[bool], None], setting: Setting, seconds: float) -> Trial:
        began, consumer = clock(), Consumer(_WithAlarm(loader, wind, self._arrived), self._take_step)
        first = waited = consumer.take()
        count, soft = 1, clock() + seconds
        for _ in range(max(1, setting.workers)):  # each worker's first batch: it may import, open, connect
            self._take_step()
            if clock() > soft:
                break
            waited, count = waited + consumer.take(), count + 1
        since, before, self._burned, self._arriving = clock(), loader.stats(), 0.0, 0.0
        usage, windows = _UsageSince(before), list[Window]()
        while not self._done(windows, soft):
            window = consumer.window(WINDOW, max(2, setting.workers), self._until)
            if not window.batches:
                break
            windows.append(window.with_step(self._step))
        used, lasted, after = usage.until_now(self._burned), clock() - since, loader.stats()
        spent = Spending(seconds=lasted, **used, **_flow(before.total, after.total))
        spent = replace(spent, transferring=spent.transferring + self._arriving)
        if not windows:  # slower than all the time given: count everything, including the start
            windows = [Window(count, since - began, waited).with_step(self._step)]
            spent = Spending(seconds=since - began, **_flow(EpochStats(), after.total))
        bytes_ = after.total.bytes // max(1, after.total.batches)
        memory = sum(worker.private for worker in after.workers) if setting.kind == "process" else 0
        memory += max(1, setting.workers * setting.prefetch) * bytes_
        return Trial(setting, self._step, tuple(windows), spent, memory, first, bytes_)

    def _arrived(self, batch: Any) -> Any:
        if self._arrive is None:
            return batch
        began = clock()
        there = self._arrive(batch)
        self._arriving += clock() - began
        return there

    def _done(self, windows: list[Window], soft: float) -> bool:
        if clock() >= (min(soft, self._until) if windows else self._until):
            return True
        return len(windows) >= WINDOWS and spread_of([each.batches_per_second for each in windows]) <= AGREE


class _WithAlarm:
    """A loader; while a batch of it is waited for, an alarm runs."""

    def __init__(self, loader: Any, wind: Callable[[bool], None], arrived: Callable[[Any], Any]) -> None:
        self._loader, self._wind, self._arrived = loader, wind, arrived

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            self._wind(False)
            yield self._arrived(batch)
            self._wind(True)


class _UsageSince:
    """What the main process and the workers use from now on."""

    def __init__(self, stats: Stats) -> None:
        self._pids = [os.getpid()], [worker.pid for worker in stats.workers]
        self._before = [usage_of(pids) for pids in self._pids]

    def until_now(self, burned: float) -> dict[str, Any]:
        """What was used, by the names of `Spending`, without the CPU seconds that the step itself used."""
        main, workers = (usage_of(pids).minus(then) for pids, then in zip(self._pids, self._before, strict=True))
        main = main._replace(cpu=max(0.0, main.cpu - burned))
        working = workers if self._pids[1] else main
        return {
            "cpu": main.cpu + workers.cpu,
            "cpu_of_work": working.cpu,
            "queued_for_cpu": working.queued,
            "read": main.read + workers.read,
        }


def _flow(before: EpochStats, after: EpochStats) -> dict[str, Any]:
    names = ("batches", "fetching", "collating", "sending", "transferring", "delivering")
    return {name: max(0, getattr(after, name) - getattr(before, name)) for name in names}


@contextlib.contextmanager
def _threads_joined(until: float) -> Iterator[None]:
    """Wait for threads that a loader left in the middle of a batch: they would slow down the next trial."""
    before = set(threading.enumerate())
    yield
    watchdog.rest()
    for thread in set(threading.enumerate()) - before:
        thread.join(max(0.0, until - clock()))


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[Callable[[bool], None]]:
    """Without workers nothing else limits the time, so a signal does, if this is the main thread.

    Gives a function that restarts the alarm for the next batch, or stops it.
    """
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield lambda on: None
        return

    def wind(on: bool) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds if on else 0)

    def ring(signum: int, frame: FrameType | None) -> None:
        raise WorkerTimeout("a sample is stuck, or slower than all the time there is")

    before = signal.signal(signal.SIGALRM, ring)
    wind(True)
    try:
        yield wind
    finally:
        wind(False)
        signal.signal(signal.SIGALRM, before)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _placed(error: Exception) -> str:
    """The error, with the sample that raised it."""
    notes = [note.removeprefix("feedline: ") for note in getattr(error, "__notes__", ())]
    return _first_line(error) + (f" ({'; '.join(notes)})" if notes else "")


def _too_slow(error: WorkerTimeout, patience: float) -> str:
    told = [line for line in str(error).splitlines() if line.startswith("  ")]
    said = "\n" + "\n".join(told) if told else ""
    return (
        f"no batch came within the {patience:.3g} s that were left: give more (--seconds), or smaller batches "
        f"(--batch-size), if samples may be that slow{said}"
    )
