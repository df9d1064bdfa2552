"""Worker processes end when their parent ends, whatever the reason.

Takes: nothing. Gives: one pipe per parent process, whose writing end only the parent holds. A worker asks the kernel
for a signal when the pipe has no writer any more; the default action of SIGIO ends the worker, whatever code it runs.
Promises: workers end as soon as the parent does, under fork, forkserver and spawn, and not already when the thread
that started them ends (which PR_SET_PDEATHSIG would do).
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
    with _lock:  # two threads may start workers of two loaders at once
        if _ends is None:
            _ends = os.pipe()
        return _ends[0]


def _in_forked_child() -> None:
    # The child is not the workers' parent, so it must not keep the pipe's writing end open. A thread that exists only
    # in the parent may hold the lock.
    global _ends, _lock
    _lock = threading.Lock()
    if _ends is not None:
        os.close(_ends[1])
        _ends = None


os.register_at_fork(after_in_child=_in_forked_child)


def hold(reading_end: int) -> None:
    """Called in a worker: from now on it ends with the parent."""
    # The process to signal is stored in the open file, which forked workers would share: open it again.
    own = os.open(f"/proc/self/fd/{reading_end}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
    gone = select.poll()
    gone.register(own, 0)
    if gone.poll(0):  # the parent ended before we asked
        os._exit(1)
