"""Ends worker processes: asks them first, and kills them soon after.

Takes: processes and a descriptor for each (`pidfd`), which shows that the process itself has ended, even if others hold
its pipes. Promises: when it returns, no process is left that the system can end; Ctrl-C or an alarm comes afterwards.
Not its job: why they end (workers, engine).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from typing import Any, NamedTuple

from feedline.machine.finalizers import is_main_thread

GRACE_SECONDS = 0.5
"""For the user's `finally` blocks and exit handlers, in all workers together; a worker stuck in C is then killed."""
KILL_SECONDS = 5.0
"""A killed process that still exists after this waits inside the kernel (a dead disk or network file system)."""

TOLD_TO_LEAVE = 128 + signal.SIGTERM
"""A worker's exit code after SIGTERM."""


class WorkerProcess(NamedTuple):
    """A worker process."""

    process: Any
    pidfd: int
    """Readable when the process has ended; -1 if the system has no such descriptors."""
    pid: int | None = None
    """Set when it is started; `process` no longer knows it after `close`."""

    @property
    def end(self) -> int:
        """The descriptor to wait on."""
        return self.pidfd if self.pidfd >= 0 else int(self.process.sentinel)

    def signal(self, what: int) -> None:
        """Send a signal; nothing happens if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, what)
            else:
                os.kill(self.process.pid, what)

    def reap(self) -> int:
        """Collect the exit status, so that no zombie is left. Returns its peak memory in bytes, if known."""
        most = _reap(self.process)
        self.process.join(1.0)
        if self.pidfd >= 0:
            os.close(self.pidfd)
        return most

    def close(self) -> None:
        """Release what Python keeps for it."""
        with contextlib.suppress(ValueError):  # if SIGCHLD is ignored, Python does not know that it has ended
            self.process.close()


def open_member(process: Any) -> WorkerProcess:
    """The `WorkerProcess` for a process that has just been started."""
    try:
        return WorkerProcess(process, os.pidfd_open(process.pid), process.pid)
    except (OSError, AttributeError):  # it has ended already, or the system is old
        return WorkerProcess(process, -1, process.pid)


def end(members: list[WorkerProcess]) -> bool:
    """Ask all to leave (SIGTERM becomes SystemExit there), wait a little, kill those that stay. Have all ended?"""
    with uninterrupted():
        for member in members:
            member.signal(signal.SIGTERM)
        staying = _wait_for(members, GRACE_SECONDS)
        for member in staying:
            member.signal(signal.SIGKILL)
        staying = _wait_for(staying, KILL_SECONDS)
        for member in members:
            member.reap()
            member.close()
    return not staying


def _wait_for(members: list[WorkerProcess], seconds: float) -> list[WorkerProcess]:
    """The processes that are still there after this long."""
    staying = {member.end: member for member in members}
    deadline = time.monotonic() + seconds
    while staying and (left := wait(list(staying), max(0.0, deadline - time.monotonic()))):
        for ended in left:
            del staying[ended]  # type: ignore[arg-type]
    return list(staying.values())


Opening = Callable[[], contextlib.AbstractContextManager[None]]
"""Returns a context in which signals do come, for a wait in the middle."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[Opening]:
    """Delays Ctrl-C until the end of this context, and alarms too (diagnose.deadline), whose handler also raises."""
    with _later(signal.SIGALRM) as let_alarm_through, _later(signal.SIGINT) as let_ctrl_c_through:

        @contextlib.contextmanager
        def let_through() -> Iterator[None]:
            with let_alarm_through(), let_ctrl_c_through():
                yield

        yield let_through


@contextlib.contextmanager
def _later(number: int) -> Iterator[Opening]:
    """Delays a signal until the end of this context. Blocking is not enough: a library's thread may receive it."""
    before = signal.getsignal(number) if is_main_thread() else None
    if not callable(before):
        yield contextlib.nullcontext
        return
    noted: list[Any] = []

    def note(_: int, frame: Any) -> None:
        noted.append(frame)

    @contextlib.contextmanager
    def let_through() -> Iterator[None]:
        signal.signal(number, before)
        try:
            while noted:
                before(number, noted.pop())
            yield
        finally:
            signal.signal(number, note)

    signal.signal(number, note)
    try:
        yield let_through
    finally:
        signal.signal(number, before)
        if noted:
            before(number, noted[0])


def _reap(process: Any) -> int:
    # We do this before multiprocessing, which does not ask how much memory a child had.
    child = process._popen
    if child.method != "fork" or child.returncode is not None:
        return 0
    try:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
    except ChildProcessError:  # another caller has waited for it already
        return 0
    if pid:
        child.returncode = os.waitstatus_to_exitcode(status)
    return int(usage.ru_maxrss) * 1024


def words_for(exitcode: int | None) -> str:
    """An exit code as the verb of a sentence."""
    if exitcode is None:
        return "ended"
    if exitcode == TOLD_TO_LEAVE:
        return "was ended by another process (SIGTERM)"
    return f"ended with exit code {exitcode}" if exitcode >= 0 else f"was killed by {_signal_name(exitcode)}"


def hint_for(exitcode: int | None) -> str:
    """What such an end most often means; empty if that is not known."""
    return {
        "SIGKILL": "if nobody did that on purpose, the machine or container most likely ran out of memory",
        "SIGSEGV": "a library it uses accessed memory wrongly (segmentation fault)",
        "SIGBUS": "memory that the system had promised is not available (bus error)",
        "SIGABRT": "a library it uses aborted the process (abort)",
    }.get(_signal_name(exitcode or 0), "")


def _signal_name(exitcode: int) -> str:
    try:
        return signal.Signals(-exitcode).name
    except ValueError:
        return f"signal {-exitcode}"
