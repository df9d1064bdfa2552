"""A task's samples, several at a time: which reader reads which sample, and a pool of threads that read.

Takes: a dataset, a task and the samples wanted from it. Gives: the samples in order, and the errors.
Promises: samples are begun in order, and at most `limit` are read at a time; each draws its own random numbers, in any
reader; the row shows which sample is waited for; no sample is still being read when the next task begins.
Not its job: coroutines (fetch_coroutines), what to do about an error (fetch, salvage), which samples (fetch).
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple, Protocol

from feedline.machine.worker_info import place_of_thread, work_for
from feedline.messages.progress import PLACE, SINCE, Row, among, clock, unwatched
from feedline.messages.task import Task
from feedline.randomness.redirection import BySample, SampleGenerators
from feedline.randomness.rng import Key, enter_sample, enter_task, leave_task, task_seed

log = logging.getLogger("feedline")
NOTICE_SECONDS = 1.0
"""If Ctrl-C comes just as the loop goes to sleep, it is noticed after this many seconds at most."""
STOP_SECONDS = 0.5
"""The time for all readers together: a sample that is being read may finish, but Ctrl-C must not take long."""


class Wanted(NamedTuple):
    """A sample of a task."""

    position: int
    index: Any
    key: Key
    """The key of the sample's `rng()`."""


class ConcurrentReading:
    """One task's samples; several readers take them in order."""

    def __init__(self, dataset: Any, task: Task, wanted: Sequence[Wanted], row: Row, to_the_end: bool) -> None:
        self.dataset = dataset
        self.task = task
        self.wanted = wanted
        self.seed = task_seed(task.seed, task.epoch, task.draw)
        self.samples: list[Any] = [None] * len(wanted)
        self.errors: dict[int, BaseException] = {}
        self.limit = 1
        self._row = row
        self._to_the_end = to_the_end  # are the other samples wanted if one fails?
        self._lock = threading.Lock()
        self._over = threading.Lock()
        self._over.acquire()
        self._next = self._first = self._running = 0
        self._joined = 1
        self._end = len(wanted)
        self._began = [0] * len(wanted)
        self._by: list[Any] = [None] * len(wanted)
        self._finished = bytearray(len(wanted))

    def take(self, reader: Any, finished: int = -1) -> int:
        """The number of the next sample for a reader, which may have finished another; -1 if there is none."""
        with self._lock:
            if finished >= 0:
                self._finish(finished)
            number = self._next
            if number >= self._end:
                if not self._running and self._over.locked():
                    self._over.release()
                return -1
            self._next += 1
            self._running += 1
            self._by[number], self._began[number] = reader, clock()
            if number == self._first:
                self._show(number)
            return number

    def wants_another(self) -> bool:
        """Is there work for one more reader? If so, the caller must start one."""
        with self._lock:
            if self._joined >= self.limit or self._next >= self._end:
                return False
            self._joined += 1
            return True

    def fail(self, number: int, error: BaseException) -> list[Any]:
        """A sample has raised. Returns the readers to stop, because their samples are no longer of use."""
        with self._lock:
            self.errors[number] = error
            is_end = not isinstance(error, Exception)
            if self._to_the_end and not is_end:
                return []
            self._end = min(self._end, number)
            # Earlier samples continue: the task's error is the first in the order of samples, not in time.
            rest = range(0 if is_end else number + 1, self._next)
            return [self._by[other] for other in rest if other != number and not self._finished[other]]

    def is_useless(self, number: int) -> bool:
        """Has an earlier sample failed, or was the reading abandoned?"""
        return number > self._end or self._end < 0

    def wait(self) -> None:
        """Wait until all samples are read."""
        try:
            # Python notices a signal that comes just before a thread goes to sleep only when the thread wakes up.
            while not self._over.acquire(timeout=NOTICE_SECONDS):
                pass
        except BaseException:  # Ctrl-C, or told to leave: the readers find no more samples
            self.abandon()
            raise

    def abandon(self) -> None:
        """Nobody waits for these samples any more."""
        with self._lock:
            self._end, self._row = -1, unwatched()

    def first_reader(self) -> Any:
        """The reader of the first sample that is not finished; None if there is none."""
        # Without the lock: a signal handler calls this, and may have interrupted the thread that holds the lock.
        first = self._first
        return self._by[first] if first < self._next else None

    def _finish(self, number: int) -> None:
        self._running -= 1
        self._finished[number] = True
        if number == self._first:
            while self._first < self._next and self._finished[self._first]:
                self._first += 1
            if self._first < self._next:
                self._show(self._first)

    def _show(self, number: int) -> None:
        position = self.wanted[number].position
        self._row[PLACE] = position if self.limit == 1 else among(position)
        self._row[SINCE] = self._began[number]


class Readers(Protocol):
    """The readers of one worker."""

    count: int

    def read(self, reading: ConcurrentReading) -> None:
        """Read the samples, all of them or up to the first that fails."""

    def finish(self, coroutine: Any) -> list[Any]:
        """The result of a coroutine that reads many samples at once."""

    def stack(self) -> str:
        """Where the sample that is waited for is being read, in faulthandler's format; empty if that is unknown."""

    def close(self) -> None:
        """End the readers."""

    def leave(self) -> None:
        """The process ends, and the readers with it: do what the dataset wants done before that."""


class FetchThreads:
    """A worker's pool of threads, which start when there is something to read.

    Each thread takes the next sample by itself and wakes one more thread if there is more to do: handing over each
    sample would cost one wake-up per sample (benchmarks/latency.py).
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._owner = os.getpid()
        self._threads: list[threading.Thread] = []
        self._waiting: queue.SimpleQueue[ConcurrentReading | None] = queue.SimpleQueue()
        self._generators = BySample()
        self._current: ConcurrentReading | None = None

    def read(self, reading: ConcurrentReading) -> None:
        self._start(min(reading.limit, len(reading.wanted)))
        self._current = reading
        try:
            self._waiting.put(reading)
            reading.wait()
        finally:
            self._current = None

    def finish(self, coroutine: Any) -> list[Any]:
        raise AssertionError("nobody here awaits")

    def stack(self) -> str:
        reading = self._current
        ident = None if reading is None else reading.first_reader()
        return "" if ident is None else lines_of(sys._current_frames().get(ident))

    def close(self) -> None:
        threads, self._threads = self._threads, []
        self._generators.close()
        if not threads or self._owner != os.getpid():
            return
        self._waiting.put(None)
        deadline = time.monotonic() + STOP_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            log.warning(
                "threads of fetch_threads=%d are still busy with a sample; the loader does not wait for them",
                self.count,
            )

    def leave(self) -> None:
        pass

    def _start(self, count: int) -> None:
        if self._owner != os.getpid():  # a forked copy of the process has none of the threads
            self._owner, self._threads, self._waiting = os.getpid(), [], queue.SimpleQueue()
        self._generators.open()
        while len(self._threads) < count:
            # The arguments are only what the thread needs: it must not keep a dropped loader alive.
            arguments = (self._waiting, self._generators, place_of_thread())
            name = f"feedline-fetch-{len(self._threads)}"
            thread = threading.Thread(target=_serve, args=arguments, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)


def _serve(waiting: queue.SimpleQueue[ConcurrentReading | None], generators: BySample, place: Any) -> None:
    """What a thread of the pool does from start to end."""
    work_for(place)
    own = SampleGenerators()
    generators.follow(own)
    while (reading := waiting.get()) is not None:
        _read_on(reading, own, waiting)
        del reading  # it refers to the dataset
    waiting.put(None)


def _read_on(
    reading: ConcurrentReading, own: SampleGenerators, waiting: queue.SimpleQueue[ConcurrentReading | None]
) -> None:
    """Read one sample after the other, as long as there are any."""
    reader, dataset, samples = threading.get_ident(), reading.dataset, reading.samples
    number = reading.take(reader)
    if number >= 0 and reading.wants_another():
        waiting.put(reading)
    enter_task(reading.task.seed, reading.task.epoch)
    while number >= 0:
        position, index, key = reading.wanted[number]
        enter_sample(*key)
        own.enter(reading.seed, position)
        try:
            samples[number] = dataset[index]
        except BaseException as error:  # the thread that waits raises it
            reading.fail(number, error)
        number = reading.take(reader, number)
    leave_task()


READS = _read_on.__name__
"""The name of the function that calls `__getitem__`."""


def lines_of(frame: FrameType | None) -> str:
    """A stack in faulthandler's format, most recent call first."""
    lines = []
    while frame is not None:
        lines.append(line_of(frame))
        frame = frame.f_back
    return "".join(lines)


def line_of(frame: FrameType) -> str:
    """One call of a stack."""
    return f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}\n'
