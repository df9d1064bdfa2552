"""Interrupts a thread of this process by an exception that is raised there.

Takes: where the thread may be interrupted (`open`, `close`). Gives: `TimeIsUp`, raised there when another thread says
so.
Promises: in the main thread a signal interrupts it, even while Python waits in a read, a lock or a sleep; the handler
is set only while the thread may be interrupted. In other threads, or if the signal is already used, Python raises the
exception between two bytecode instructions, so a blocking call is interrupted only when it returns. After `close`
returns, no interrupt can arrive any more.
Not its job: when to interrupt (watchdog), the sentences (telling).
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from types import FrameType
from typing import Any

from feedline.machine.finalizers import is_within
from feedline.supervise.last_words import ASK

SEEN_SECONDS = 1.0


class TimeIsUp(BaseException):
    """A batch takes too long. It is not an Exception, so that `except Exception` in a dataset does not catch it."""


class Interrupt:
    """Interrupts one thread; can be used many times."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self.sent = False
        """Has the thread been interrupted since `open`?"""
        self._seen = False
        self._thread = 0
        self._by_signal = False

    def open(self) -> None:
        """Called in the thread: from here on it may be interrupted."""
        self._thread, self.sent = threading.get_ident(), False
        self._by_signal = _is_free_here()
        if self._by_signal:
            signal.signal(ASK, self._raise)
        self._open = True

    def close(self) -> None:
        """Called in the thread: from here on it may not be interrupted."""
        while True:
            try:
                self._close()
            except TimeIsUp:  # it arrived just before the end
                continue
            return

    def _close(self) -> None:
        self._open = False
        with self._lock:  # waits until a `send` in progress is done
            pass
        if self._by_signal:
            patient_until = time.monotonic() + SEEN_SECONDS
            while self.sent and not self._seen and time.monotonic() < patient_until:
                time.sleep(0)  # a signal that arrives after the handler is removed would end the process
            if self._seen or not self.sent:
                signal.signal(ASK, signal.SIG_DFL)
        elif self.sent:
            _set_exception(self._thread, None)

    def send(self) -> bool:
        """Called in another thread: interrupt it. False if it may no longer be interrupted."""
        with self._lock:
            if not self._open:
                return False
            self.sent, self._seen = True, False
            if self._by_signal:
                signal.pthread_kill(self._thread, ASK)
            else:
                _set_exception(self._thread, TimeIsUp)
            return True

    def _raise(self, signum: int, frame: FrameType | None) -> None:
        self._seen = True
        if self._open and not is_within(frame):  # a finalizer would swallow it; the sender tries again
            raise TimeIsUp


def _is_free_here() -> bool:
    """Can the signal be used here? Python runs signal handlers only in the main thread."""
    main = threading.current_thread() is threading.main_thread()
    return main and ASK != 0 and signal.getsignal(ASK) is signal.SIG_DFL


def _set_exception(thread: int, kind: Any) -> None:
    exception = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)
