"""Checks: are enough open files allowed? Can temporary files and sockets be made?

Takes: a plan. Gives: findings "open-files" and "temporary-files". Promises: leaves no file behind.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import tempfile
from collections.abc import Iterator

from feedline.diagnose.findings import NOTE, OK, PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.remedies import OPEN_FILES, TEMPORARY_FILES
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan

PER_WORKER, PER_LOADER = 6, 12
"""Descriptors. Measured: 3 per worker and 9 more for a map-style dataset, 6 and 4 for a stream.
tests/diagnose/test_preflight.py checks that these are enough."""
COMMON = 1024
"""The soft limit of most systems."""


def check_open_files(plan: WorkerPlan) -> Iterator[Finding]:
    """`ulimit -n`, compared with what the plan's workers need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    wanted = PER_LOADER + PER_WORKER * plan.num_workers
    evidence = {"soft": soft, "hard": hard, "open": open_now, "needed": wanted}
    title = (
        f"Open files: {_count(soft)} allowed ({_count(hard)} at most), {open_now} open; {plan.workers} take {wanted}"
    )
    if soft != resource.RLIM_INFINITY and open_now + wanted > soft:
        words = "Each worker takes a few descriptors, whatever is in a batch: that many are not to be had."
        yield Finding("open-files", PROBLEM, title, evidence, words, "raise the limit.", OPEN_FILES)
    elif soft != resource.RLIM_INFINITY and open_now + 2 * wanted > soft:
        words = "That leaves few for the files of your dataset and for a second loader, say for validation."
        yield Finding("open-files", WARNING, title, evidence, words, "raise the limit.", OPEN_FILES)
    elif soft != resource.RLIM_INFINITY and soft <= COMMON:
        words = "Enough for feedline. torch's own loader takes one for each tensor that is on its way or kept."
        remedy = "nothing for feedline. If torch.utils.data.DataLoader is used as well, raise the limit."
        yield Finding("open-files", NOTE, title, evidence, words, remedy, OPEN_FILES)
    else:
        yield Finding("open-files", OK, title, evidence)


def _count(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


def check_temporary_files(plan: WorkerPlan) -> Iterator[Finding]:
    """Workers that are not forked connect to their parent by a socket in a temporary folder: make a similar one."""
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError as error:
        yield _without_temporary_files(str(error), {"folder": None})
        return
    try:
        made = tempfile.mkdtemp(prefix="pymp-", dir=folder)  # the prefix that multiprocessing uses
    except OSError as error:
        yield _without_temporary_files(f"{folder}: {error.strerror}", {"folder": folder})
        return
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(made, "listener-12345678"))
    except OSError as error:
        yield _without_socket(folder, error)
    else:
        free = shutil.disk_usage(folder).free
        yield Finding(
            "temporary-files", OK, f"Temporary files: {folder} can be written", {"folder": folder, "free": free}
        )
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _without_temporary_files(why: str, evidence: dict[str, object]) -> Finding:
    return Finding(
        "temporary-files",
        WARNING,
        f"Temporary files cannot be made ({why})",
        {**evidence, "error": why},
        "Workers started by spawn or forkserver meet their parent at a socket in a temporary folder. Forked ones "
        "and threads do without.",
        "make /tmp writable, or point TMPDIR to a folder that is.",
        TEMPORARY_FILES,
    )


def _without_socket(folder: str, error: OSError) -> Finding:
    return Finding(
        "temporary-files",
        WARNING,
        f"No socket can be made in {folder} ({error.strerror or error})",
        {"folder": folder, "length": len(os.fsencode(folder)), "error": str(error)},
        "Workers started by spawn or forkserver meet their parent at a socket there. The path of a socket has 107 "
        "bytes at most, of which 32 are needed below the folder, and not every file system can hold one.",
        "point TMPDIR to a local folder with a short name.",
        "export TMPDIR=/tmp",
    )
