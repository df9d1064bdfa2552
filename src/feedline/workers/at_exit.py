"""Ends helper processes (our servers, Python's resource tracker) before this process ends, not a moment after it.

Takes: our servers that workers are forked from. Gives: nothing. Promises: when this process has ended, no helper is
left: the servers are killed, the resource tracker is told to end, and both are waited for, for a limited time. The
tracker is left alone if it may track something or was there before us: then it ends by itself, as always.
Not its job: workers, which have ended by then (crew, shutdown), and servers that end earlier (warm).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing import resource_tracker, util
from multiprocessing.connection import wait
from typing import Any

from feedline.supervise.shutdown import uninterrupted

ENDING_SECONDS = 0.5
"""The limit for each helper. It takes some hundredths, unless a process that the user forked holds its pipe open."""
_LAST = -100
"""A priority after everything that multiprocessing does at exit: it may still need the helpers."""
_TRACKED = ("multiprocessing.shared_memory", "multiprocessing.synchronize")
"""If something is tracked, one of these modules has been imported."""
_arranged_by = 0


def end_servers(servers: Mapping[Any, Any]) -> None:
    """Arrange that all `servers` are ended at exit. Called before any is started."""
    global _arranged_by
    if _arranged_by != os.getpid():
        _arranged_by = os.getpid()
        is_ours = resource_tracker._resource_tracker._fd is None  # type: ignore[attr-defined]
        util.Finalize(None, _end_all, (servers, is_ours), exitpriority=_LAST)


def _end_all(servers: Mapping[Any, Any], tracker_is_ours: bool) -> None:
    with uninterrupted():
        for server in servers.values():
            if server._forkserver_pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(server._forkserver_pid, signal.SIGKILL)
        for server in servers.values():
            if server._forkserver_pid is not None:
                _let_go(server, "_forkserver_alive_fd", "_forkserver_pid")
        if tracker_is_ours and not any(name in sys.modules for name in _TRACKED):
            _let_go(resource_tracker._resource_tracker, "_fd", "_pid")


def _let_go(helper: Any, alive: str, number: str) -> None:
    """Close the helper's pipe, which tells it to end, and wait until it has ended."""
    fd, pid = getattr(helper, alive), getattr(helper, number)
    setattr(helper, alive, None)
    setattr(helper, number, None)
    if fd is not None:
        os.close(fd)
    if pid is not None:
        with contextlib.suppress(OSError, AttributeError):  # it is not our child, or the system is old
            end = os.pidfd_open(pid)
            wait([end], ENDING_SECONDS)
            os.close(end)
            os.waitpid(pid, os.WNOHANG)
