"""A worker's Python stack: asked for while it is stuck, and left behind when it crashes.

Takes: the shared segment and the worker's number. Gives: text, written there by `faulthandler`, which needs neither the
GIL nor a working interpreter: an endless loop, a blocked read and a C call that holds the GIL are all seen.
Promises: no file, no pipe and no thread of its own; nothing is written unless asked or crashing.
Not its job: when to ask (policy), what to make of it (telling).
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable
from types import FrameType

from feedline.arena.segment import BOARD, STRIDE, Segment

ASK = signal.SIGRTMAX - 7 if hasattr(signal, "SIGRTMAX") else 0
"""The signal that asks: a real-time one, which neither Python nor torch nor a dataset is likely to use."""
_LONGEST = 1 << 16
OWN = "Where the sample is read (most recent call first):\n"
"""The line before a stack that the worker itself has added."""
_fd = -1
"""Where this worker writes."""


def prepare(segment: Segment, number: int) -> None:
    """In a worker: be ready to be asked, and to crash."""
    global _fd
    # Its own open file, so that its own position; kept open as long as the process lives.
    fd = os.open(f"/proc/self/fd/{segment.fd}", os.O_RDWR | os.O_CLOEXEC)
    os.lseek(fd, _place(number), os.SEEK_SET)
    _fd = fd
    faulthandler.enable(fd, all_threads=False)
    faulthandler.register(ASK, fd, all_threads=True)


def add(stack: Callable[[], str]) -> None:
    """In a worker that reads several samples at a time: when asked, write down also where the one waited for is read.

    faulthandler sees threads only, and of many does not know which matters; a coroutine that waits is in none.
    """

    def tell(signum: int, frame: FrameType | None) -> None:
        if text := stack():
            os.write(_fd, f"{OWN}{text}\n".encode()[: _LONGEST // 4])

    faulthandler.unregister(ASK)
    signal.signal(ASK, tell)
    faulthandler.register(ASK, _fd, all_threads=True, chain=True)


def ask(pid: int) -> None:
    """Have a worker that is prepared write down where it is; that takes it less than a millisecond if it can run."""
    if _is_prepared(pid):  # else the signal would end it: it is being born, or the user's code has taken it away
        os.kill(pid, ASK)


def _is_prepared(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            caught = next(line for line in status if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (ASK - 1) & 1)


def read(segment: Segment, number: int, after: int = 0) -> str:
    """What that worker has written, from a position on."""
    data = os.pread(segment.fd, _LONGEST, _place(number) + after)
    return data.partition(b"\0")[0].decode(errors="replace")


def erase(segment: Segment, number: int) -> None:
    """Make room for the next worker of that number."""
    segment.free(BOARD + 1 + number, 0, STRIDE)


def _place(number: int) -> int:
    return (BOARD + 1 + number) * STRIDE
