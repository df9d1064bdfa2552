"""A time limit for user code that may never end: a factory, an import, a `__len__`.

Takes: seconds. Gives: `TooLong`, raised at the line where the code is, with that place in words.
Promises: whatever waits or computes in Python is ended, even if it catches every exception it knows; the earlier
handler of SIGALRM is restored afterwards.
Not its job: samples, which are read in worker processes that can be killed. It cannot end C code that does not return
to Python, and it does nothing outside of the main thread, or if an alarm is already set.
"""

from __future__ import annotations

import contextlib
import linecache
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from feedline.machine.finalizers import is_within

AGAIN = 1.0
"""Seconds until the alarm is repeated: `except BaseException` may have caught it. Also the seconds between looks."""


LEAST = 60.0
"""Seconds that importing and making a dataset may always take: half a minute is a finding of the doctor's
("heavy-init"), not a hang, and importing torch may take as long from a slow disk."""


def patience(seconds: float, times: float) -> float:
    """How long user code may take before the examination begins: `times` as long as the examination itself.

    >>> patience(1, times=6), patience(20, times=6), patience(float("nan"), times=6)
    (60.0, 120, 60.0)
    """
    return min(max(LEAST, times * seconds), 1e6)


class TooLong(BaseException):
    """The time is over. This is no `Exception`: code that retries would catch it."""

    def __init__(self, seconds: float, place: str) -> None:
        super().__init__(f"not done after {seconds:.0f} s; it was at {place}")
        self.seconds = seconds
        self.place = place


@contextlib.contextmanager
def within(seconds: float, look: Callable[[FrameType | None], None] | None = None) -> Iterator[None]:
    """End the block after that many seconds; until then `look` is called every second, and may end it, too.

    >>> import time
    >>> try:
    ...     with within(0.01):
    ...         time.sleep(60)
    ... except TooLong as late:
    ...     print(late.place.rpartition(":")[2])
     time.sleep(60)
    """
    if not _can_ring():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        if _comes_or_goes(frame) or is_within(frame):  # the alarm is repeated soon
            return
        if look is None or time.monotonic() >= until:
            raise TooLong(seconds, place_of(frame))
        look(frame)

    before: Any = signal.signal(signal.SIGALRM, ring)
    until = time.monotonic() + seconds
    signal.setitimer(signal.ITIMER_REAL, seconds if look is None else min(seconds, AGAIN), AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)


def _comes_or_goes(frame: FrameType | None) -> bool:
    """Is `within` just being entered or left? If the error were raised there, the alarm would not be stopped."""
    if frame is not None and frame.f_code.co_filename == contextlib.__file__:
        return True
    while frame is not None:
        if frame.f_code is within.__wrapped__.__code__:  # type: ignore[attr-defined]
            return True
        frame = frame.f_back
    return False


def _can_ring() -> bool:
    return (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )


def place_of(frame: FrameType | None) -> str:
    """A line of code, in words."""
    if frame is None:
        return "an unknown place"
    file, number = frame.f_code.co_filename, frame.f_lineno or 0
    text = linecache.getline(file, number, frame.f_globals).strip()
    return f"{file}:{number} ({frame.f_code.co_name})" + (f": {text}" if text else "")
