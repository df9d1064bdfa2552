"""A task's samples by coroutines: `async def __getitem__` and `__getitems__`, on an event loop of each worker's own.

Takes: a `ConcurrentReading`. Gives: its samples; at most `count` of them are awaited at a time.
Promises: one loop for all tasks of a worker, so what the dataset opens on it (a client's session) stays open. The loop
never runs between tasks, and it works where another loop is running already (a notebook). Samples that are useless
because an earlier one failed are cancelled before the next task begins.
Not its job: which sample is next (fetch_threads). asyncio takes long to import, so this file is imported when needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import queue
import sys
import threading
from _thread import start_new_thread
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import CoroutineType, FrameType
from typing import Any

from feedline.machine.worker_info import place_of_thread as worker_of_thread
from feedline.machine.worker_info import work_for
from feedline.randomness.redirection import BySample, SampleGenerators
from feedline.randomness.rng import enter_in_coroutine, follow, place_of_thread, task_seed
from feedline.reading.fetch_threads import STOP_SECONDS, ConcurrentReading, line_of, lines_of

COROUTINES = 64
"""How many samples are awaited at a time by default. More would save no CPU time per sample (benchmarks/latency.py, 256
samples a batch: 47 µs each with 8 at a time, 30 with 32, 24 with 64 and with 256). More would still be faster, but a
server may refuse hundreds of connections."""
_of_parents: list[asyncio.AbstractEventLoop] = []
"""Loops inherited by a fork. Closing one would close the parent's, too: both share what they wait on."""


class FetchLoop:
    """A worker's event loop; it is made when there is something to await."""

    def __init__(self, count: int) -> None:
        self.count = count or COROUTINES
        self._owner = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._generators = BySample()
        self._spare: list[SampleGenerators] = []
        self._current: ConcurrentReading | None = None
        self._task: asyncio.Task[Any] | None = None
        self._thread = 0  # the thread that runs the loop

    def read(self, reading: ConcurrentReading) -> None:
        self._current = reading
        try:
            self._ready()  # before the coroutine exists: if we are told to leave here, no coroutine is left un-awaited
            self._run(self._read_all(reading))
        except BaseException:
            reading.abandon()
            raise
        finally:
            self._current = None

    def finish(self, coroutine: Any) -> list[Any]:
        place, own = place_of_thread(), self._spare.pop() if self._spare else SampleGenerators()
        assert place.task is not None
        own.enter(task_seed(*place.task, *place.sample), 0)
        try:
            samples: list[Any] = self._run(self._follow(coroutine, place, own))
            return samples
        finally:
            self._spare.append(own)

    def stack(self) -> str:
        reading = self._current
        task = self._task if reading is None else reading.first_reader()
        if task is None:
            return ""
        frames, waits = _awaiting(task.get_coro())
        if waits:
            return "".join(line_of(frame) for frame in reversed(frames))
        # The sample is running. If this thread runs it, the caller has interrupted it.
        is_here = self._thread == threading.get_ident()
        return "" if is_here else lines_of(sys._current_frames().get(self._thread))

    def leave(self) -> None:
        self.close()

    def close(self) -> None:
        loop, self._loop = self._loop, None
        self._generators.close()
        if loop is None or loop.is_closed() or self._owner != os.getpid():
            return
        if loop.is_running():  # in a thread that was left behind
            loop.call_soon_threadsafe(loop.stop)
            return
        _end_elsewhere(loop) if asyncio._get_running_loop() else _end(loop)

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        loop = self._ready()
        if asyncio._get_running_loop() is None:
            return self._drive(loop, coroutine)
        return _in_thread_of_its_own(lambda: self._drive(loop, coroutine), lambda: _cancel_all(loop))

    def _drive(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> Any:
        self._thread = threading.get_ident()
        task = self._task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)  # after Ctrl-C the rest is cancelled when the loop is closed
        finally:
            self._task = None

    def _ready(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None and self._owner != os.getpid():
            _of_parents.append(self._loop)
            self._loop, self._owner = None, os.getpid()
        if self._loop is None:
            self._generators.open()
            self._loop = asyncio.new_event_loop()
            # For asyncio.to_thread: Python's default pool has few threads on a machine with few CPUs.
            self._loop.set_default_executor(ThreadPoolExecutor(self.count, "feedline-to-thread"))
        return self._loop

    async def _follow(self, coroutine: Any, place: Any, own: SampleGenerators) -> Any:
        follow(place)
        self._generators.follow(own)
        return await coroutine

    async def _read_all(self, reading: ConcurrentReading) -> None:
        ended = _Ended(count := min(reading.limit, len(reading.wanted)))
        start = asyncio.get_running_loop().create_task
        readers = [start(self._read_on(reading, ended)) for _ in range(count)]
        try:
            await ended.all
        except asyncio.CancelledError:  # Ctrl-C, or the worker is told to leave
            reading.abandon()
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            raise

    async def _read_on(self, reading: ConcurrentReading, ended: _Ended) -> None:
        """Read one sample after the other, as long as there are any."""
        own = self._spare.pop() if self._spare else SampleGenerators()
        try:
            self._generators.follow(own)
            reader, task = asyncio.current_task(), (reading.task.seed, reading.task.epoch)
            number = reading.take(reader)
            while number >= 0:
                position, index, key = reading.wanted[number]
                enter_in_coroutine(task, key)
                own.enter(reading.seed, position)
                try:
                    sample = reading.dataset[index]
                    reading.samples[number] = await (sample if type(sample) is CoroutineType else _settled(sample))
                except BaseException as error:
                    if not (isinstance(error, asyncio.CancelledError) and reading.is_useless(number)):
                        for other in reading.fail(number, _raisable(error, index)):
                            other.cancel()
                number = reading.take(reader, number)
        finally:
            self._spare.append(own)
            ended.one()


class _Ended:
    """Counts the readers that have not ended. asyncio.wait is slower: one call for each (benchmarks/latency.py)."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.all = asyncio.get_running_loop().create_future()

    def one(self) -> None:
        self._left -= 1
        if not self._left and not self.all.done():
            self.all.set_result(None)


async def _settled(sample: Any) -> Any:
    """The sample without coroutines: datasets side by side may give a tuple with a coroutine in some places."""
    if inspect.isawaitable(sample):
        return await sample
    if type(sample) is dict:
        return dict(zip(sample, await _settled(tuple(sample.values())), strict=True))
    if type(sample) is not tuple or CoroutineType not in map(type, sample):
        return sample
    try:
        # One after the other, because they share the sample's random numbers.
        return tuple([await part if inspect.isawaitable(part) else part for part in sample])
    except BaseException:
        for part in sample:
            if isinstance(part, CoroutineType):
                part.close()
        raise


def _raisable(error: BaseException, index: Any) -> BaseException:
    if not isinstance(error, asyncio.CancelledError):
        return error
    told = RuntimeError(f"dataset[{index!r}] was cancelled, and not by feedline")
    told.__cause__ = error
    return told


def _in_thread_of_its_own(work: Any, interrupted: Any = None) -> Any:
    """The result of `work`, run in a new thread that counts as the same worker."""
    found: list[Any] = []
    worker = worker_of_thread()

    def serve() -> None:
        work_for(worker)
        try:
            found.append((True, work()))
        except BaseException as error:
            found.append((False, error))

    thread = threading.Thread(target=copy_context().run, args=(serve,), name="feedline-loop", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:  # Ctrl-C
        if interrupted is not None:
            interrupted()
        thread.join(STOP_SECONDS)
        raise
    ((is_well, what),) = found
    if is_well:
        return what
    raise what


def _end_elsewhere(loop: asyncio.AbstractEventLoop) -> None:
    """End a loop while another is running. The garbage collector may call this, so no `threading.Thread` is used."""
    ended: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def serve() -> None:
        try:
            _end(loop)
        finally:
            ended.put(True)

    start_new_thread(serve, ())
    with contextlib.suppress(queue.Empty):
        ended.get(timeout=2 * STOP_SECONDS)  # cancelling what the dataset left running may take half of it


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended in the meantime
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what the dataset has left running, and close the loop."""
    try:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=STOP_SECONDS))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _awaiting(coroutine: Any) -> tuple[list[FrameType], bool]:
    """The frames of a coroutine and of what it awaits, outermost first; and whether the last one waits or runs."""
    frames: list[FrameType] = []
    is_running = False
    while coroutine is not None:
        frame = next((found for name in _FRAMES if (found := getattr(coroutine, name, None)) is not None), None)
        if frame is not None:
            frames.append(frame)
        is_running = any(getattr(coroutine, name, False) for name in _RUNNING)
        coroutine = next((found for name in _AWAITED if (found := getattr(coroutine, name, None)) is not None), None)
    return frames, bool(frames) and not is_running


_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_RUNNING = ("cr_running", "gi_running", "ag_running")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")
