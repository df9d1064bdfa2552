"""One thread that notices when a loop without workers takes too long for a batch.

Takes: entries, each with the current task, its start, and a function to call if it takes long. Gives: calls of it.
Promises: a watched loop only writes a few attributes and wakes no thread, so a batch costs nothing extra. There is one
thread for the whole process, only while something is watched (and half a second longer), and never during a fork: a
forked child begins without it, and Python has no reason to warn about threads. It starts again with the next batch.
Watching an object does not keep it alive.
Not its job: the sentences (telling), ending a batch (interrupt).
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from feedline.machine.finalizers import undisturbed

NAME = "feedline-watchdog"
IDLE_SECONDS = 0.2
"""The thread stays this long after nothing is watched any more, so that short epochs do not start one thread each (0.2
ms on a busy machine, as long as a few dozen trivial samples)."""
LONGEST_SLEEP = 0.5
"""Seconds. The thread looks this often whether anything is still watched: telling it so at the end of each epoch took
as long as 20 trivial batches (benchmarks/grid, epochs of 25 batches)."""
OVERSLEPT = 1.0
"""Seconds; if the thread wakes up this much too late, the whole process had been stopped (Ctrl-Z)."""
JOIN_SECONDS = 0.5
"""A fork waits at most this long for a report that is being made."""


class Watch(Protocol):
    """Knows what to do if a batch takes long."""

    def look(self, entry: WatchedLoop, now: float, stood_still: float) -> float:
        """Called with the entry, the time, and how long the process was stopped; returns when to look again."""


class WatchedLoop:
    """What a loop is doing. The loop writes; the watchdog reads."""

    __slots__ = ("_watch", "began", "period", "task", "thread")

    def __init__(self) -> None:
        self.began = 0
        """When the batch began, in nanoseconds of the monotonic clock; 0 while no batch is being made."""
        self.task: Any = None
        self.thread = 0
        """The thread that makes the batch."""
        self.period = math.inf
        self._watch: Callable[[], Watch | None] = _nobody

    def watch(self, watch: Watch, period: float) -> None:
        """Have the watchdog call `watch.look` as long as that object lives. Batches that have taken less than `period`
        seconds do not matter."""
        self.period = period
        # Weak, because a cycle through the set would keep a dropped loader alive.
        self._watch = weakref.ref(watch, partial(_forget, self, _entries))
        _entries.add(self)
        if not _is_there() or resting:
            wake()
        elif time.monotonic() + period < _awake_at:
            _orders.put(True)

    def leave(self) -> None:
        """Stop watching this loop."""
        self._watch = _nobody
        _entries.discard(self)

    def look(self, now: float, stood_still: float) -> float:
        """Called in the watchdog's thread. Returns when to look again."""
        soonest = now + self.period
        if self.began and (watch := self._watch()) is not None:
            return watch.look(self, now, stood_still)
        return soonest


def _nobody() -> None:
    """Stands for the watch of an entry that is not watched."""


@undisturbed
def _forget(entry: WatchedLoop, entries: set[WatchedLoop], watch: object) -> None:
    # All objects are arguments, because this module's globals may be gone when the interpreter exits.
    entries.discard(entry)


_entries: set[WatchedLoop] = set()
_orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
"""True: look now. False: end."""
_thread: threading.Thread | None = None
_awake_at = math.inf
resting = False
"""The thread has ended for a fork: a loop that begins a watched batch has to `wake` it."""
_starting = threading.Lock()


def _is_there() -> bool:
    """Does the thread run? It does not if Ctrl-C interrupted its start, or a bug ended it."""
    return _thread is not None and _thread.is_alive()


def _start() -> None:
    # No caller waits for this lock: if another thread holds it, that thread is starting the watchdog.
    global _thread
    if sys.is_finalizing() or not _starting.acquire(blocking=False):  # at exit Python would wait for it forever
        return
    try:
        if not _is_there():
            thread = threading.Thread(target=_run, args=(_orders,), name=NAME, daemon=True)
            _thread = thread
            try:
                thread.start()
            except RuntimeError:  # no more threads are possible, or the interpreter exits: nothing is watched
                _thread = None
    finally:
        _starting.release()


def wake() -> None:
    """Start the thread again after a fork."""
    global resting
    resting = False
    if _entries and not _is_there():
        _start()


def _run(orders: queue.SimpleQueue[bool]) -> None:
    global _thread, _awake_at
    stood_still, wanted = 0.0, True
    while wanted:
        began, _awake_at = time.monotonic(), math.inf  # an entry added meanwhile sends an order
        # A copy, because an allocation may start the garbage collector, which may remove entries.
        _awake_at = min([_looked_at(entry, began, stood_still) for entry in _entries.copy()], default=math.inf)
        idle = math.isinf(_awake_at)
        # An entry added meanwhile is seen then, so it need not wake this thread.
        _awake_at = min(_awake_at, time.monotonic() + (IDLE_SECONDS if idle else LONGEST_SLEEP))
        seconds = max(0.0, _awake_at - time.monotonic())
        began, stood_still = time.monotonic(), 0.0
        try:
            wanted = orders.get(timeout=seconds)
        except queue.Empty:
            overslept = time.monotonic() - began - seconds
            stood_still = overslept if overslept > OVERSLEPT else 0.0
            wanted = not idle or bool(_entries)
    _thread = None
    if _entries and orders is _orders and not resting:  # added just now, while we still seemed to run
        _start()


def _looked_at(entry: WatchedLoop, now: float, stood_still: float) -> float:
    with contextlib.suppress(Exception):  # a bug of ours or of `warnings` must not end the watch of others
        return entry.look(now, stood_still)
    return now + max(entry.period, OVERSLEPT)


def rest() -> None:
    """End the thread now. It starts again with the next watched batch."""
    thread, patient_until = _thread, time.monotonic() + JOIN_SECONDS
    if thread is not None and thread.is_alive() and thread is not threading.current_thread():
        _orders.put(False)
        thread.join(JOIN_SECONDS)
        # Python reports the thread's end a moment before the system, which counts threads, does.
        while os.path.exists(f"/proc/self/task/{thread.native_id}") and time.monotonic() < patient_until:
            time.sleep(0)


@undisturbed
def _before_fork() -> None:
    global resting
    if _thread is not None:
        resting = True  # until the next batch: Python 3.13 counts threads a moment after the fork
        rest()


@undisturbed
def _after_fork() -> None:
    if resting and any(entry.began for entry in _entries.copy()):
        wake()  # a batch that is being made may be stuck, and then no next batch would wake it


def _in_forked_child() -> None:
    global _orders, _thread, _starting, resting
    _orders, _thread, _starting, resting = queue.SimpleQueue(), None, threading.Lock(), False
    _entries.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)
