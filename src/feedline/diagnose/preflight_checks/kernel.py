"""Checks: does the system have the calls that feedline needs, and are they allowed?

Takes: nothing but the calls themselves: each is tried. Gives: one finding per call, or one for all if all work.
Promises: distinguishes calls that the kernel lacks from calls that are forbidden; leaves nothing behind.
Not its job: whether the whole works (trial).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple

from feedline.arena.segment import PAGE, Segment
from feedline.diagnose.findings import OK, PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.remedies import SYSTEM_CALLS
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.errors import MemoryShortage
from feedline.machine.cgroups import numbers_of

FILTERED = 2
"""Seccomp, in /proc/self/status: a filter decides which calls are allowed."""


class Feature(NamedTuple):
    """Something the system must be able to do, and what we need it for."""

    name: str
    since: str
    """The first Linux that has it."""
    attempt: Callable[[], None]
    severity: str
    without: str


def check_kernel(plan: WorkerPlan) -> Iterator[Finding]:
    """Try every call."""
    failed = [finding for feature in FEATURES if (finding := _tried(feature)) is not None]
    evidence = {"system": f"{platform.system()} {platform.release()}", "seccomp": _seccomp()}
    if not failed:
        names = ", ".join(feature.name for feature in FEATURES)
        yield Finding("kernel", OK, f"System calls: {names} work ({evidence['system']})", evidence)
    yield from failed


def _tried(feature: Feature) -> Finding | None:
    try:
        feature.attempt()
    except (OSError, MemoryShortage, AttributeError) as error:
        why, remedy, code = _reason(error, feature)
        evidence = {"error": str(error), "since": feature.since, "kernel": platform.release(), "seccomp": _seccomp()}
        return Finding(
            f"kernel-{feature.name.replace(' ', '-')}",
            feature.severity,
            f"System calls: {feature.name} does not work: {why}",
            evidence,
            feature.without,
            remedy,
            code,
        )
    return None


def _reason(error: Exception, feature: Feature) -> tuple[str, str, str]:
    filtered = _seccomp() == FILTERED
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, AttributeError):
        return "this Python does not have it", "use Linux and a Python built against its C library.", ""
    if number in (errno.EPERM, errno.EACCES):
        by = "a seccomp filter" if filtered else "the system's policy"
        return f"forbidden by {by}", "allow the call in the container's seccomp profile.", SYSTEM_CALLS
    if number == errno.ENOSYS and filtered:
        return (
            f"hidden by a seccomp filter, or missing (there since Linux {feature.since}; this is {platform.release()})",
            "allow the call in the container's seccomp profile; an old runtime's profile does not know newer calls.",
            SYSTEM_CALLS,
        )
    if number == errno.ENOSYS:
        return f"not there (it is since Linux {feature.since})", "use a newer kernel or another runtime.", ""
    if isinstance(error, MemoryShortage):
        return str(error), "see what it says.", ""
    return str(error), "look for what in this container is unusual: its runtime, its mounts, its limits.", ""


def _seccomp() -> int | None:
    return numbers_of("/proc/self/status", "Seccomp:").get("Seccomp")


def _shared_memory() -> None:
    segment = Segment()
    try:
        segment.allocate(1, 0, PAGE)  # far into the file, as a batch is: so a limit on file sizes is noticed
        view = segment.map(1, PAGE).view(0, PAGE)
        view[:8] = b"feedline"
        if bytes(segment.map(1, PAGE).view(0, 8)) != b"feedline":
            raise OSError(errno.EIO, "what was written is not seen through a second mapping")
    finally:
        segment.close()


def _giving_back() -> None:
    segment = Segment()
    try:
        segment.allocate(1, 0, PAGE)
        segment.free(1, 0, PAGE)
        if os.fstat(segment.fd).st_blocks:
            raise OSError(errno.EOPNOTSUPP, "memory is not given back (fallocate with FALLOC_FL_PUNCH_HOLE)")
    finally:
        segment.close()


def _watching_processes() -> None:
    own = os.pidfd_open(os.getpid())
    try:
        signal.pidfd_send_signal(own, 0)  # signal 0 sends nothing: only the permission is checked
    finally:
        os.close(own)


def _noticing_a_parents_end() -> None:
    # As a worker does it (supervise/lifeline), but without the signal: no process must end during the check.
    reading, writing = os.pipe()
    opened = [reading, writing]
    try:
        opened.append(own := os.open(f"/proc/self/fd/{reading}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        flags = fcntl.fcntl(own, fcntl.F_GETFL)
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, fcntl.F_SETFL, flags | os.O_ASYNC)
        fcntl.fcntl(own, fcntl.F_SETFL, flags)
    finally:
        for fd in opened:
            with contextlib.suppress(OSError):
                os.close(fd)


FEATURES = (
    Feature(
        "memfd_create",
        "3.17",
        _shared_memory,
        PROBLEM,
        "Batches are made in such memory: worker processes cannot be used without.",
    ),
    Feature(
        "punching holes",
        "3.5",
        _giving_back,
        WARNING,
        "Memory of batches that you keep for long is then given back late, when the loader ends.",
    ),
    Feature(
        "pidfd_open",
        "5.3",
        _watching_processes,
        WARNING,
        "Ends of workers are then noticed through a pipe, which a worker disturbs that closes its files or leaves a "
        "child behind.",
    ),
    Feature(
        "signals from pipes",
        "2.6",
        _noticing_a_parents_end,
        PROBLEM,
        "A worker asks for one so as to end with its parent, through /proc/self/fd, and does not start without.",
    ),
)
