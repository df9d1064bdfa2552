"""Ends what a thread of this process is at, by an exception that is raised there.

Takes: the thread says where it may be interrupted. Gives: `TimeIsUp`, raised in it when another thread says so.
Promises: in the main thread a signal does it, which also ends a read, a lock or a sleep of Python's that waits; its
handler is there only while the thread may be interrupted. In other threads, or where that signal is somebody's, Python
raises it between two steps of Python code, so what waits is ended when it comes back. When `closed` returns, nothing is
on its way any more.
Not its job: when (watchdog), what is said.
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
    """It has lasted too long. No Exception: `except Exception` in a dataset is not meant for it."""


class Interrupt:
    """One thread's, again and again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self.sent = False
        """Has it been interrupted since it was opened?"""
        self._seen = False
        self._thread = 0
        self._by_signal = False

    def open(self) -> None:
        """In the thread: from here on it may be interrupted."""
        self._thread, self.sent = threading.get_ident(), False
        self._by_signal = _is_free_here()
        if self._by_signal:
            signal.signal(ASK, self._raise)
        self._open = True

    def close(self) -> None:
        """In the thread: from here on it may not."""
        while True:
            try:
                self._close()
            except TimeIsUp:  # just now: it was open still
                continue
            return

    def _close(self) -> None:
        self._open = False
        with self._lock:  # whoever is sending has sent
            pass
        if self._by_signal:
            patient_until = time.monotonic() + SEEN_SECONDS
            while self.sent and not self._seen and time.monotonic() < patient_until:
                time.sleep(0)  # under its default action the signal would end the process
            if self._seen or not self.sent:
                signal.signal(ASK, signal.SIG_DFL)
        elif self.sent:
            _set_exception(self._thread, None)

    def send(self) -> bool:
        """In another thread: interrupt it. False if it is no longer there."""
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
        if self._open and not is_within(frame):  # there it would come to nothing; whoever has sent it sends it again
            raise TimeIsUp


def _is_free_here() -> bool:
    """Python runs handlers of signals in the main thread alone."""
    main = threading.current_thread() is threading.main_thread()
    return main and ASK != 0 and signal.getsignal(ASK) is signal.SIG_DFL


def _set_exception(thread: int, kind: Any) -> None:
    exception = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)
