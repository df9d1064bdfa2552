"""Checks by trying: does the system have the calls that feedline needs, and does loading with a worker process work?

Takes: a plan, of which nothing is used. Gives: one finding per call that fails, or "kernel" if all work; "trial".
Promises: distinguishes calls that the kernel lacks from calls that are forbidden; leaves nothing behind. Loading is
tried in a separate process, which is ended after `SECONDS`; whatever happens to it, this process continues.
Not its job: speed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from feedline.arena.segment import PAGE, Segment
from feedline.diagnose.findings import OK, PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.remedies import SYSTEM_CALLS
from feedline.diagnose.preflight_checks.system_limits import start_method
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.errors import MemoryShortage
from feedline.machine.cgroups import numbers_of

FILTERED = 2
"""Seccomp, in /proc/self/status: a filter decides which calls are allowed."""
SECONDS = 60
"""The limit: a trial takes 0.3 s, but longer on a very busy machine."""

SCRIPT = """
import sys
import numpy as np
from feedline import ArrayDataset, DataLoader

if __name__ == "__main__":
    data = np.arange(4 * 8192.0).reshape(4, 8192)  # 64 KiB a sample: a batch of it travels through shared memory
    setting = dict(num_workers=1, multiprocessing_context=sys.argv[1], timeout=45)
    loader = DataLoader(ArrayDataset(data), batch_size=2, **setting)
    if [float(batch[0].sum()) for batch in loader] != [float(data[:2].sum()), float(data[2:].sum())]:
        sys.exit("the batches are not what they should be")
"""


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
        return str(error), "do what the message says.", ""
    return str(error), "check what is unusual about this container: its runtime, its mounts, its limits.", ""


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


_NO_MEMORY = "Batches are made in such memory: worker processes cannot be used without it."
_NO_HOLES = "Memory of batches that you keep for long is then given back late, when the loader ends."
_NO_PIDFD = (
    "Ends of workers are then noticed through a pipe, which a worker disturbs that closes its files or leaves a child "
    "behind."
)
_NO_SIGNALS = "A worker asks for one to end with its parent, through /proc/self/fd, and does not start without it."
FEATURES = (
    Feature("memfd_create", "3.17", _shared_memory, PROBLEM, _NO_MEMORY),
    Feature("punching holes", "3.5", _giving_back, WARNING, _NO_HOLES),
    Feature("pidfd_open", "5.3", _watching_processes, WARNING, _NO_PIDFD),
    Feature("signals from pipes", "2.6", _noticing_a_parents_end, PROBLEM, _NO_SIGNALS),
)


def check_by_trial(plan: WorkerPlan) -> Iterator[Finding]:
    """Load two batches with one worker process, started as workers will be."""
    method = start_method()
    begun = time.monotonic()
    code, said = _run(method)
    took = round(time.monotonic() - begun, 2)
    evidence = {"start_method": method, "exit_code": code, "seconds": took, "stderr": said[-2000:]}
    if code == 0:
        yield Finding("trial", OK, f"A worker process ({method}) was started and delivered its batches", evidence)
        return
    last = (said.strip() or "it printed nothing").splitlines()[-1]
    yield Finding(
        "trial",
        PROBLEM,
        f"Loading with one worker process ({method}) failed: {last}",
        evidence,
        "This was tried in a process of its own, with data of its own. Its output is in the evidence (--json).",
        "fix the other findings first; worker threads may work meanwhile.",
        'DataLoader(…, workers="thread")',
    )


def _run(method: str) -> tuple[int | None, str]:
    """The exit code (None: it had to be ended) and its output."""
    # The same path as here: feedline may have been found through a changed sys.path.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        trial = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, method],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return None, f"no process could be started: {error}"
    with trial:
        try:
            _, said = trial.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(trial.pid, signal.SIGKILL)
            _, said = trial.communicate()
            return None, f"{said}\nnothing came within {SECONDS} s"
    return trial.returncode, said
