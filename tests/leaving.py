"""What this process has open: processes, threads, descriptors, memory segments; and functions that it has replaced."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import sys
import threading
from pathlib import Path
from typing import Any

import warm_host

from feedline.randomness import redirection
from feedline.supervise import lifeline, watchdog
from feedline.workers import warm

_strangers: set[str] = set()
"""Processes of others: looked at once, because a look at each of them costs more than most tests."""
HELPERS = ("resource_tracker", "multiprocessing.forkserver", "warm_host.py")


def keep_what_multiprocessing_keeps() -> None:
    """Python's own helpers live as long as this process; start them before anything is counted."""
    multiprocessing.resource_tracker.ensure_running()
    multiprocessing.Value("i")  # its heap
    lifeline.reading_end()


def leftovers(segments_too: bool = True) -> dict[str, set[str]]:
    watchdog.rest()  # it would do so by itself a little later, unless something is still watched
    return {
        "processes": children(),
        "threads": {f"{thread.name} {thread.ident}" for thread in threading.enumerate()},
        "descriptors": descriptors(),
        "segments": segments() if segments_too else set(),
        "watched": {f"{entry} of {entry.task}" for entry in watchdog._entries},
        "replaced functions": replaced_functions(),
    }


def replaced_functions() -> set[str]:
    """Of `random`, NumPy and torch: only worker threads that live need them."""
    torchs: Any = sys.modules.get("feedline.torch.worker")
    found = {"those of random and numpy.random"} if redirection.switch.holders else set()
    return found | ({"torch's get_worker_info"} if torchs is not None and torchs._stock_code is not None else set())


def children() -> set[str]:
    """Our processes that have not ended, but for Python's own helpers and the hosts that tests share."""
    found = set()
    there = {name for name in os.listdir("/proc") if name.isdigit()}
    _strangers.intersection_update(there)  # a number that is free may be given to a child of ours
    for pid in there - _strangers:
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            command = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:  # it has just ended
            continue
        state, parent = rest.split()[:2]
        if int(parent) != os.getpid():
            _strangers.add(pid)
        elif state != "Z" and not any(helper in command for helper in HELPERS):
            found.add(f"{name})")
    return found


def descriptors() -> set[str]:
    found = set()
    kept = {server._forkserver_alive_fd for server in servers_of_workers()} | warm_host.descriptors()
    for fd in set(os.listdir("/proc/self/fd")) - {str(each) for each in kept}:
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # the directory listing's own
            continue
        # A fixture's file: pytest lets go of it after this fixture has looked. A font: matplotlib never does.
        if "/pytest-of-" not in target and "/mpl-data/fonts/" not in target:
            found.add(f"{fd} -> {target}")
    return found


def servers_of_workers() -> list[Any]:
    """Python's own server and ours: kept until this process ends."""
    return [multiprocessing.forkserver._forkserver, *warm._servers.values()]


def segments() -> set[str]:
    with open("/proc/self/maps") as maps:
        return {line.split()[0] + " feedline" for line in maps if "memfd:feedline" in line}
