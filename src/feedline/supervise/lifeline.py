"""Worker processes end when their parent does, however it ended.

Takes: nothing. Gives: one pipe per process, whose writing end only that process holds. A worker asks the kernel for
a signal when the pipe's last writer is gone; SIGIO's default action ends it, whatever code it is stuck in.
Promises: workers are gone as soon as the parent is, under fork, forkserver and spawn, and not when merely the thread
that started them ends (as PR_SET_PDEATHSIG would have it).
Not its job: orderly shutdown (shutdown).
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading

_ends: tuple[int, int] | None = None
_lock = threading.Lock()


def reading_end() -> int:
    """The descriptor to give to workers."""
    global _ends
    with _lock:  # two loaders may start their workers at once, each in a thread of its own
        if _ends is None:
            _ends = os.pipe()
        return _ends[0]


def _in_forked_child() -> None:
    # The child is not the parent: it must not keep the pipe's writing end open. The lock may be held by a thread that
    # it does not have.
    global _ends, _lock
    _lock = threading.Lock()
    if _ends is not None:
        os.close(_ends[1])
        _ends = None


os.register_at_fork(after_in_child=_in_forked_child)


def hold(reading_end: int) -> None:
    """In a worker: from now on, end with the parent."""
    # Whom to signal belongs to the open file, which forked workers would share: open it anew.
    own = os.open(f"/proc/self/fd/{reading_end}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
    gone = select.poll()
    gone.register(own, 0)
    if gone.poll(0):  # it ended before we asked
        os._exit(1)
