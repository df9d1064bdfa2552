"""For code that the garbage collector runs: `__del__`, `weakref.finalize`, callbacks of weak references.

Python runs it at any moment, in any thread, while that thread may hold any lock: `threading`'s own, too. So whatever
such code reaches waits for no lock but a reentrant one (`RLock`, `SimpleQueue`), starts no `threading.Thread`, and
joins daemons only, for a limited time: of others CPython's `join` and `is_alive` take `threading._shutdown_locks_lock`.
Takes: functions that are run there. Gives: the same, which Ctrl-C does not disturb.
Promises: Python prints and forgets what such a function raises (and what is raised in hooks around a fork), but Ctrl-C
is not lost: it comes again, outside.
Not its job: what is to be done at the end (arena, engine, workers, sources).
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
"""Between two looks at where the main thread is."""


def undisturbed(work: Work) -> Work:
    """A function for the garbage collector, which may be run twice: a Ctrl-C that interrupts it comes after it."""

    @functools.wraps(work)
    def call(*args: Any) -> None:
        try:
            work(*args)
        except KeyboardInterrupt:
            _send_again()
            work(*args)  # what is left of it

    _CODES.add(call.__code__)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def by_hand(finalizer: weakref.finalize[..., Any]) -> None:
    """Do now, once, what the garbage collector would do later. A Ctrl-C that interrupts it is raised here, after it."""
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
    """Is that a place inside one of them? What is raised there comes to nothing, and work would be left half done."""
    while frame is not None:
        if frame.f_code in _CODES:
            return True
        frame = frame.f_back
    return False


def _send_again() -> None:
    # By a thread: Python would handle the signal in this very function, and what it raises here is forgotten.
    with contextlib.suppress(RuntimeError):  # no thread is to be had: the interpreter ends anyway
        start_new_thread(_interrupt_outside, ())


def _interrupt_outside() -> None:
    main = threading.main_thread().ident or 0
    while is_within(sys._current_frames().get(main)):
        time.sleep(LOOK_SECONDS)
    was_at = _place_of(main)
    _interrupt(main)
    time.sleep(LOOK_SECONDS)
    if _place_of(main) == was_at:  # Python does not notice a signal that comes just before a thread goes to sleep
        _interrupt(main)


def _place_of(thread: int) -> tuple[FrameType | None, int]:
    frame = sys._current_frames().get(thread)
    return frame, -1 if frame is None else frame.f_lasti


def _interrupt(main: int) -> None:
    if not callable(signal.getsignal(signal.SIGINT)):  # meanwhile somebody wants no Ctrl-C
        return
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)  # which also ends a wait, as Ctrl-C itself does
    else:
        interrupt_main()


def is_main_thread() -> bool:
    """Does the main thread ask? Unlike `threading.current_thread()`, this takes no lock in threads of a library."""
    return threading.get_ident() == threading.main_thread().ident
