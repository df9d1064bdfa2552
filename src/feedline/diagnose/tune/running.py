"""One setting, measured: a loader with real workers, and a consumer that takes a step for every batch.

Takes: a subject, a setting, a step. Gives: a `Trial`.
Promises: starting the workers and the first batches of each are left out; short windows are measured until they agree
or the time is over, but at least one; a small dataset is read epoch after epoch by the same workers. If something
hangs, it ends with an error that names it. A setting without enough memory, or whose data cannot be sent, is a failed
trial, and so is a kind of workers that cannot read what another can; any other sample that fails is an error.
Not its job: which settings (search).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from feedline.diagnose.tune.accounts import Account, account_of
from feedline.diagnose.tune.trial import Spending, Trial, TrialSetting, TrialWindow
from feedline.diagnose.tune.tune_subject import TuneSubject
from feedline.errors import FeedlineError, MemoryShortage, ShippingError, WorkerTimeout
from feedline.observe.stats import EpochStats, Stats
from feedline.supervise import watchdog

WINDOW = 0.2
"""Seconds of a window: long compared with momentary noise, and three of them are a trial."""
WINDOWS = 3
AGREE = 0.03
"""If the windows spread less than this, no more are needed; half of what a choice tolerates (choice.LITTLE)."""
PATIENCE = 10.0
"""Seconds that a batch may always take, after others have come."""
NOTHING = "the dataset gives no batches: it is empty, or drop_last leaves none"
ONCE = "the dataset gives its batches only once, and then an empty epoch: let each __iter__ begin anew"
_BLOCK = bytes(1 << 16)

clock = time.perf_counter


def wait_for(step: float) -> Callable[[], float]:
    """A step like a GPU's: the main thread waits for it without using CPU. Returns the CPU seconds it used: none."""

    def wait() -> float:
        time.sleep(step)
        return 0.0

    return wait


def compute_for(step: float) -> Callable[[], float]:
    """A step on a CPU: it uses one CPU, without holding Python's lock."""

    def compute() -> float:
        began, until = time.thread_time(), clock() + step
        while clock() < until:
            hashlib.blake2b(_BLOCK).digest()  # releases the lock for a block this large
        return time.thread_time() - began

    return compute


class Runner:
    """Measures settings of one subject, one after the other, until a given time."""

    def __init__(self, subject: TuneSubject, step: float, busy_step: bool, until: float) -> None:
        self._subject = subject
        self._step = step
        self._take_step = (compute_for if busy_step else wait_for)(step) if step else lambda: 0.0
        self._until = until
        self._count = 0
        self._longest = 0.0
        """Seconds until a first batch, in the trials so far."""
        self._working: set[str] = set()
        """Kinds of workers that have given batches."""

    def measure(self, setting: TrialSetting, seconds: float) -> Trial:
        """Measure for about that many seconds after the first batch, or more if one window takes longer."""
        self._count += 1
        patience = self._patience()
        try:
            with _quiet(), _threads_joined(self._until), _alarm(patience if not setting.workers else 0) as wind:
                with self._subject.loader(setting, self._count, patience) as loader:
                    trial = self._run(_endless(loader, wind), loader, setting, seconds)
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

    def _only_so(self, setting: TrialSetting, error: Exception, words: str) -> Trial:
        """Some datasets cannot be read by threads, or not by processes (SQLite's connections, say): the others can."""
        if self._working and setting.kind not in self._working:
            return Trial(setting, self._step, failed=_placed(error))
        raise FeedlineError(words) from error

    def _patience(self) -> float:
        """How long to wait for a batch: all the remaining time, until it is known how long one takes."""
        left = max(0.1, self._until - clock())
        return min(left, max(PATIENCE, 20 * self._longest)) if self._longest else left

    def _run(self, batches: Iterator[Any], loader: Any, setting: TrialSetting, seconds: float) -> Trial:
        began = clock()
        held = next(batches)
        first = clock() - began
        count, soft = 1, clock() + seconds
        for _ in range(max(1, setting.workers)):  # each worker's first batch: it may import, open, connect
            self._take_step()
            if clock() > soft:
                break
            held, count = next(batches), count + 1
        since, before = clock(), loader.stats()
        books, burned = _Books(before), 0.0
        windows: list[TrialWindow] = []
        while not self._done(windows, soft, setting):
            window, took = self._window(batches, setting)
            burned += took
            if window is None:
                break
            windows.append(window)
        accounts, lasted, after = books.since(burned), clock() - since, loader.stats()
        spent = Spending(seconds=lasted, **accounts, **_flow(before.total, after.total))
        if not windows:  # slower than all the time given: count everything, including the start
            windows = [TrialWindow(count, since - began - (count - 1) * self._step)]
            spent = Spending(seconds=since - began, **_flow(EpochStats(), after.total))
        bytes_ = after.total.bytes // max(1, after.total.batches)
        memory = sum(worker.private for worker in after.workers) if setting.kind == "process" else 0
        memory += max(1, setting.workers * setting.prefetch) * bytes_
        del held
        return Trial(setting, self._step, tuple(windows), spent, memory, first, bytes_)

    def _window(self, batches: Iterator[Any], setting: TrialSetting) -> tuple[TrialWindow | None, float]:
        """Measure at least as many batches as workers: they come in bursts. None if the time ends before."""
        count, waited, burned, until = 0, 0.0, 0.0, clock() + WINDOW
        least = max(2, setting.workers)
        held = None
        while count < least or clock() < until:
            burned += self._take_step()
            asked = clock()
            if asked > self._until:
                return (TrialWindow(count, waited) if count else None), burned
            held = next(batches)
            waited += clock() - asked
            count += 1
        del held
        return TrialWindow(count, waited), burned

    def _done(self, windows: list[TrialWindow], soft: float, setting: TrialSetting) -> bool:
        if not windows:
            return clock() >= self._until
        if clock() >= min(soft, self._until):
            return True
        return len(windows) >= WINDOWS and Trial(setting, self._step, tuple(windows)).spread <= AGREE


def _endless(loader: Any, wind: Callable[[bool], None]) -> Iterator[Any]:
    """Epoch after epoch. An alarm runs while a batch is waited for."""
    given = 0
    while True:
        before = given
        for batch in loader:
            wind(False)
            given += 1
            yield batch
            wind(True)
        if given == before:
            raise FeedlineError(ONCE if given else NOTHING)


class _Books:
    """What the main process and the workers use from now on."""

    def __init__(self, stats: Stats) -> None:
        self._workers = [worker.pid for worker in stats.workers]
        self._before = self._now()

    def since(self, burned: float) -> dict[str, Any]:
        """What was used, by the names of `Spending`, without what the step itself used."""
        main, workers = (now.minus(then) for now, then in zip(self._now(), self._before, strict=True))
        main = main._replace(cpu=max(0.0, main.cpu - burned))
        working = workers if self._workers else main
        read = main.read + workers.read
        whole = main.cpu + workers.cpu
        return {"cpu": whole, "cpu_of_work": working.cpu, "queued_for_cpu": working.queued, "read": read}

    def _now(self) -> tuple[Account, Account]:
        return account_of([os.getpid()]), account_of(self._workers)


def _flow(before: EpochStats, after: EpochStats) -> dict[str, Any]:
    names = ("batches", "fetching", "collating", "sending", "transferring", "delivering")
    return {name: max(0, getattr(after, name) - getattr(before, name)) for name in names}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No warnings: what is wrong with the data is for the doctor to say, once, and not for every trial."""
    log = logging.getLogger("feedline")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.addFilter(_nothing)
        try:
            yield
        finally:
            log.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False


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
