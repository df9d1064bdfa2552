"""A worker's Python stack: written when it is stuck and we ask for it, or when it crashes.

Takes: the shared segment and the worker's number. Gives: text that `faulthandler` writes there. That needs neither the
GIL nor a working interpreter, so it shows an endless loop, a blocked read and a C call that holds the GIL.
Promises: no file, pipe or thread of its own; nothing is written unless the worker is asked or crashes.
Not its job: when to ask (policy), how to show it (telling).
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable
from types import FrameType

from feedline.arena.segment import BOARD, STRIDE, Segment

ASK = signal.SIGRTMAX - 7 if hasattr(signal, "SIGRTMAX") else 0
"""The signal that asks: a real-time signal, which Python, torch and datasets are unlikely to use."""
_LONGEST = 1 << 16
OWN = "Where the sample is read (most recent call first):\n"
"""The line before a stack that the worker itself has added."""
_fd = -1
"""The descriptor that this worker writes to."""


def prepare(segment: Segment, number: int) -> None:
    """Called in a worker: from now on its stack is written when it is asked or crashes."""
    global _fd
    # A new open file has a position of its own. It stays open as long as the process lives.
    fd = os.open(f"/proc/self/fd/{segment.fd}", os.O_RDWR | os.O_CLOEXEC)
    os.lseek(fd, _place(number), os.SEEK_SET)
    _fd = fd
    faulthandler.enable(fd, all_threads=False)
    faulthandler.register(ASK, fd, all_threads=True)


def add(stack: Callable[[], str]) -> None:
    """Called in a worker that reads several samples at a time: also write the stack of the sample it waits for.

    faulthandler knows only threads, and not which of them matters; a waiting coroutine is in no thread.
    """

    def tell(signum: int, frame: FrameType | None) -> None:
        if text := stack():
            os.write(_fd, f"{OWN}{text}\n".encode()[: _LONGEST // 4])

    faulthandler.unregister(ASK)
    signal.signal(ASK, tell)
    faulthandler.register(ASK, _fd, all_threads=True, chain=True)


def ask(pid: int) -> None:
    """Make a prepared worker write its stack; that takes less than a millisecond if the worker can run."""
    if _is_prepared(pid):  # else the signal would end it: it is still starting, or user code removed the handler
        os.kill(pid, ASK)


def _is_prepared(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            caught = next(line for line in status if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (ASK - 1) & 1)


def read(segment: Segment, number: int, after: int = 0) -> str:
    """What that worker has written after a position."""
    data = os.pread(segment.fd, _LONGEST, _place(number) + after)
    return data.partition(b"\0")[0].decode(errors="replace")


def erase(segment: Segment, number: int) -> None:
    """Erase the text, for the next worker with that number."""
    segment.free(BOARD + 1 + number, 0, STRIDE)


def _place(number: int) -> int:
    return (BOARD + 1 + number) * STRIDE
