"""Our servers that workers are forked from end before this process does, not a moment after it.

Takes: the servers. Gives: nothing. Promises: who looks when this process has ended finds none of them: they are ended
and waited for, for a limited time.
Not its job: workers, which are gone by then (crew, shutdown), what is ended earlier (warm), and Python's own helper,
the resource tracker: it may be at work for others, and ends by itself some hundredths after this process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from multiprocessing import util
from multiprocessing.connection import wait
from typing import Any

from feedline.supervise.shutdown import uninterrupted

ENDING_SECONDS = 0.5
"""For each. They take some hundredths; but a process that the user has forked may hold the other end of their pipes."""
_LAST = -100
"""After all that multiprocessing itself does at the end of a process: it may still need them."""
_arranged_by = 0


def end_servers(servers: Mapping[Any, Any]) -> None:
    """Arrange for the end of all that will be in `servers` then. Called before any is started."""
    global _arranged_by
    if _arranged_by != os.getpid():
        _arranged_by = os.getpid()
        util.Finalize(None, _end_all, (servers,), exitpriority=_LAST)


def _end_all(servers: Mapping[Any, Any]) -> None:
    with uninterrupted():
        running = [server for server in servers.values() if server._forkserver_pid is not None]
        for server in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server._forkserver_pid, signal.SIGKILL)
        for server in running:
            _let_go(server)


def _let_go(server: Any) -> None:
    """Close the pipe whose end tells it to end, and wait until it has."""
    fd, pid = server._forkserver_alive_fd, server._forkserver_pid
    server._forkserver_alive_fd = server._forkserver_pid = None
    os.close(fd)
    with contextlib.suppress(OSError, AttributeError):  # it is not our child, or the system is old
        end = os.pidfd_open(pid)
        wait([end], ENDING_SECONDS)
        os.close(end)
        os.waitpid(pid, os.WNOHANG)
