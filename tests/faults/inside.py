"""Runs a script in a process of its own under an affliction: a small container, a small /dev/shm, few descriptors.

The affliction comes over the process before the script begins. Where the machine does not allow to make it, the test is
skipped and says so. Whatever the script does, it is over after `SECONDS`, with all it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SECONDS = 60


def run(code: str, tmp_path: Path, afflict: Callable[[], None] = lambda: None) -> str:
    """What the script prints; its failure fails the test, with all it said. A file, so that spawned workers find it."""
    script = tmp_path / f"script_{uuid.uuid4().hex[:8]}.py"
    script.write_text(textwrap.dedent(code))
    with subprocess.Popen(
        [sys.executable, "-W", "error", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=afflict,
    ) as process:
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            pytest.fail(f"still running after {SECONDS} s; it had said:\n{said}")
    assert process.returncode == 0, f"ended with {process.returncode}; it had said:\n{said}"
    return said


@contextlib.contextmanager
def container(limit: int) -> Iterator[Callable[[], None]]:
    """A memory cgroup of our own below the one we are in; what it gives moves a new process there."""
    folder, file = _own_cgroup()
    folder /= f"feedline-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        try:
            (folder / file).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"no memory limit can be set here: {error}")
        members = str(folder / "cgroup.procs")
        yield lambda: Path(members).write_text(str(os.getpid())) and None
    finally:
        while pids := (folder / "cgroup.procs").read_text().split():  # helpers of Python's end a moment later
            for pid in map(int, pids):
                _wait_for_end(pid)
        folder.rmdir()


def _wait_for_end(pid: int) -> None:
    try:
        ending = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([ending], [], [], SECONDS)[0]:
            pytest.fail(f"process {pid} outlives the script that started it")
    finally:
        os.close(ending)


def _own_cgroup() -> tuple[Path, str]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError as error:
        pytest.skip(f"no cgroups here: {error}")
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes"
        if number == "0" and Path(f"/sys/fs/cgroup{path}/memory.max").exists():
            return Path("/sys/fs/cgroup" + path), "memory.max"
    pytest.skip("this process is in no memory cgroup that it can see")


def small_shm(megabytes: int) -> Callable[[], None]:
    """A /dev/shm of that size, for a new process and those it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = f"size={megabytes}m".encode()

    def afflict() -> None:
        new_namespace, private = 0x00020000, 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC
        if (
            libc.unshare(new_namespace)
            or libc.mount(b"none", b"/", None, private, None)
            or libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, size)
        ):
            os._exit(77)

    pid = os.fork()  # may we?
    if pid == 0:
        afflict()
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        pytest.skip("no mount namespace with a small /dev/shm can be made here: that takes root")
    return afflict


def few_descriptors(count: int) -> Callable[[], None]:
    """`ulimit -n`."""

    def afflict() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))

    return afflict
