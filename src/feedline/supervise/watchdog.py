"""One thread that notices when something lasts too long: a batch that is made where nobody else could look.

Takes: entries, each saying what is under way and since when, and what to do when that lasts. Gives: calls of it.
Promises: whoever is watched writes a few attributes and wakes nobody, so that a batch pays nothing for it; one thread
for the whole process, there only while something is watched, and never at the moment of a fork: a forked child begins
without one, and Python has no reason to warn of threads. It is back with the next batch. What is watched is not kept
alive by that.
Not its job: what is said (telling), ending what lasts (interrupt).
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
from typing import Any

from feedline.machine.finalizers import undisturbed

NAME = "feedline-watchdog"
IDLE_SECONDS = 0.2
"""So long the thread stays when nothing is watched any more: short epochs, one after the other, need not start one each
(0.2 ms on a busy machine, as long as a few dozen trivial samples)."""
OVERSLEPT = 1.0
"""Seconds; who wakes up so much later had been stopped together with all that is watched (Ctrl-Z)."""
JOIN_SECONDS = 0.5
"""A fork waits no longer for a report that is being made."""

Look = Callable[["WatchedLoop", float, float], float]
"""Called with the entry, the time and how long nobody could run; gives the moment to look again."""


class WatchedLoop:
    """What is under way, if anything. Who does it writes; the watchdog reads."""

    __slots__ = ("_look", "began", "period", "task", "thread")

    def __init__(self) -> None:
        self.began = 0
        """In nanoseconds of the monotonic clock; 0 while nothing is under way."""
        self.task: Any = None
        self.thread = 0
        """Which thread does it."""
        self.period = math.inf
        self._look: Callable[[], Look | None] = _nobody

    def watch(self, look: Look, period: float) -> None:
        """Have it looked at, by a bound method, as long as that method's object lives. Nothing that has lasted for less
        than `period` seconds is of interest."""
        self.period = period
        # A cycle through the set would keep a dropped loader alive: hence weak.
        self._look = weakref.WeakMethod(look, partial(_forget, self, _entries, _orders))
        _entries.add(self)
        if not _is_there() or resting:
            wake()
        elif time.monotonic() + period < _awake_at:
            _orders.put(True)

    def leave(self) -> None:
        """Nobody wants it looked at any more."""
        self._look = _nobody
        _forget(self, _entries, _orders, None)

    def look(self, now: float, stood_still: float) -> float:
        """In the watchdog's thread: when to look again."""
        soonest = now + self.period
        if self.began and (look := self._look()) is not None:
            return look(self, now, stood_still)
        return soonest


def _nobody() -> None:
    """Looks at an entry that is not watched."""


@undisturbed
def _forget(entry: WatchedLoop, entries: set[WatchedLoop], orders: queue.SimpleQueue[bool], look: object) -> None:
    # All is given: at the interpreter's end this module may be empty.
    entries.discard(entry)
    if not entries:
        orders.put(True)  # or it would sleep until something could have been due, and be there so long for nothing


_entries: set[WatchedLoop] = set()
_orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
"""True: look now. False: end."""
_thread: threading.Thread | None = None
_awake_at = math.inf
resting = False
"""It has made way for a fork: whoever begins something that is watched has to `wake` it."""
_starting = threading.Lock()


def _is_there() -> bool:
    """Does the thread run? One that Ctrl-C kept from being started, or that a fault has ended, does not."""
    return _thread is not None and _thread.is_alive()


def _start() -> None:
    # Nobody waits for this lock: who does not get it, in whatever thread or finalizer, need not start one.
    global _thread
    if sys.is_finalizing() or not _starting.acquire(blocking=False):  # at the end Python would wait for it for ever
        return
    try:
        if not _is_there():
            thread = threading.Thread(target=_run, args=(_orders,), name=NAME, daemon=True)
            _thread = thread
            try:
                thread.start()
            except RuntimeError:  # no more threads to be had, or the interpreter ends: nothing is watched
                _thread = None
    finally:
        _starting.release()


def wake() -> None:
    """Go on after a fork."""
    global resting
    resting = False
    if _entries and not _is_there():
        _start()


def _run(orders: queue.SimpleQueue[bool]) -> None:
    global _thread, _awake_at
    stood_still, wanted = 0.0, True
    while wanted:
        began, _awake_at = time.monotonic(), math.inf  # who comes while we look says so
        # A copy of its own: whoever allocates may be interrupted by the garbage collector, which drops entries.
        _awake_at = min([_looked_at(entry, began, stood_still) for entry in _entries.copy()], default=math.inf)
        idle = math.isinf(_awake_at)
        seconds = IDLE_SECONDS if idle else max(0.0, _awake_at - time.monotonic())
        began, stood_still = time.monotonic(), 0.0
        try:
            wanted = orders.get(timeout=seconds)
        except queue.Empty:
            overslept = time.monotonic() - began - seconds
            stood_still = overslept if overslept > OVERSLEPT else 0.0
            wanted = not idle or bool(_entries)
    _thread = None
    if _entries and orders is _orders and not resting:  # one has come since: who added it took us for awake
        _start()


def _looked_at(entry: WatchedLoop, now: float, stood_still: float) -> float:
    with contextlib.suppress(Exception):  # a fault of ours or of `warnings`: no reason to watch the others no more
        return entry.look(now, stood_still)
    return now + max(entry.period, OVERSLEPT)


def rest() -> None:
    """End the thread, now. It comes back with the next thing to watch."""
    thread, patient_until = _thread, time.monotonic() + JOIN_SECONDS
    if thread is not None and thread.is_alive() and thread is not threading.current_thread():
        _orders.put(False)
        thread.join(JOIN_SECONDS)
        # What Python takes for its end is a moment before the system does, which counts threads.
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
        wake()  # whatever is under way may be stuck, and then no batch comes that would


def _in_forked_child() -> None:
    global _orders, _thread, _starting, resting
    _orders, _thread, _starting, resting = queue.SimpleQueue(), None, threading.Lock(), False
    _entries.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)
