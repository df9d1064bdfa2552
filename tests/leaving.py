"""What this process has open: processes, threads, descriptors, memory segments."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import threading

import psutil

from feedline.supervise import lifeline
from feedline.workers import warm


def keep_what_multiprocessing_keeps() -> None:
    """Python's own helpers live as long as this process; start them before anything is counted."""
    multiprocessing.resource_tracker.ensure_running()
    # Or each forkserver worker of each test imports NumPy again: half a second.
    multiprocessing.set_forkserver_preload(["feedline.workers.process_main"])
    multiprocessing.forkserver.ensure_running()
    multiprocessing.Value("i")  # its heap
    lifeline.reading_end()


def leftovers() -> dict[str, set[str]]:
    return {
        "processes": processes(),
        "threads": {f"{thread.name} {thread.ident}" for thread in threading.enumerate()},
        "descriptors": descriptors(),
        "segments": segments(),
    }


def processes() -> set[str]:
    """Children of this process, but for Python's own helpers."""
    found = set()
    for child in psutil.Process().children(recursive=False):
        try:
            name, command = child.name(), " ".join(child.cmdline())
        except psutil.Error:
            continue
        if "resource_tracker" not in command and "multiprocessing.forkserver" not in command:
            found.add(f"{name} {child.pid}")
    return found


def descriptors() -> set[str]:
    found = set()
    servers = {str(server._forkserver_alive_fd) for server in warm._servers.values()}  # kept, as Python keeps its own
    for fd in set(os.listdir("/proc/self/fd")) - servers:
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # the directory listing's own
            continue
        if "/pytest-of-" not in target:  # a fixture's file: pytest lets go of it after this fixture has looked
            found.add(f"{fd} -> {target}")
    return found


def segments() -> set[str]:
    with open("/proc/self/maps") as maps:
        return {line.split()[0] + " feedline" for line in maps if "memfd:feedline" in line}
