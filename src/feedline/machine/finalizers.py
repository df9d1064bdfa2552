"""For code that the garbage collector runs: `__del__`, `weakref.finalize`, callbacks of weak references.

Python runs it at any moment, in any thread, while that thread may hold any lock, even one of `threading`. So such code
waits only for reentrant locks (`RLock`, `SimpleQueue`), starts no `threading.Thread`, and joins only daemon threads,
for a limited time: for other threads CPython's `join` and `is_alive` take `threading._shutdown_locks_lock`.
Takes: functions that are run there. Gives: the same functions, protected from Ctrl-C.
Promises: Python prints and drops what such a function raises (and what is raised in hooks around a fork), but Ctrl-C is
not lost: it is sent again after the function.
Not its job: what has to be released (arena, engine, workers, sources).
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import time
import weakref
from _thread import interrupt_main, start_new_thread
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Work = TypeVar("Work", bound=Callable[..., None])

LOOK_SECONDS = 0.01
"""Seconds between two checks of where the main thread is."""


def undisturbed(work: Work) -> Work:
    """Protects a function for the garbage collector: if Ctrl-C interrupts it, it runs again, and Ctrl-C comes later."""

    @functools.wraps(work)
    def call(*args: Any) -> None:
        try:
            work(*args)
        except KeyboardInterrupt:
            _send_again()
            work(*args)  # finish the work

    _CODES.add(call.__code__)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def by_hand(finalizer: weakref.finalize[..., Any]) -> None:
    """Run a finalizer now instead of later, once. If Ctrl-C interrupts it, it is finished before Ctrl-C is raised."""
    found = finalizer.detach()
    if found is None:
        return
    work, args = found[1].__wrapped__, found[2]  # type: ignore[attr-defined]
    try:
        work(*args)
    except KeyboardInterrupt:
        work(*args)
        raise


_CODES = {weakref.finalize.__call__.__code__, by_hand.__code__}


def is_within(frame: FrameType | None) -> bool:
    """Is that frame inside such a function? An exception raised there is lost, and leaves the work half done."""
    while frame is not None:
        if frame.f_code in _CODES:
            return True
        frame = frame.f_back
    return False


def _send_again() -> None:
    # In a new thread: otherwise Python would handle the signal in this function, and drop what the handler raises.
    with contextlib.suppress(RuntimeError):  # no thread can be started: the interpreter exits anyway
        start_new_thread(_interrupt_outside, ())


def _interrupt_outside() -> None:
    main = threading.main_thread().ident or 0
    while is_within(sys._current_frames().get(main)):
        time.sleep(LOOK_SECONDS)
    was_at = _place_of(main)
    _interrupt(main)
    time.sleep(LOOK_SECONDS)
    if _place_of(main) == was_at:  # Python misses a signal that comes just before a thread begins to wait
        _interrupt(main)


def _place_of(thread: int) -> tuple[FrameType | None, int]:
    frame = sys._current_frames().get(thread)
    return frame, -1 if frame is None else frame.f_lasti


def _interrupt(main: int) -> None:
    if not callable(signal.getsignal(signal.SIGINT)):  # Ctrl-C has been disabled meanwhile
        return
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)  # also interrupts a wait, as Ctrl-C does
    else:
        interrupt_main()


def is_main_thread() -> bool:
    """Is this the main thread? Unlike `threading.current_thread()`, this takes no lock in a library's threads."""
    return threading.get_ident() == threading.main_thread().ident
