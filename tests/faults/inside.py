"""Runs a script in a process of its own under an affliction: a small container, a small /dev/shm, few descriptors.

The affliction comes over the process before the script begins, and after the front was imported: what was charged for
that is not the container's. Where the machine does not allow to make it, the test is
skipped and says so. Whatever the script does, it is over after `SECONDS`, with all it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import tempfile
import textwrap
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import afflicted
import pytest
from warm_host import host

SECONDS = 300
LAUNCHER = Path(afflicted.__file__)
TORCHS_ADVICE = "This DataLoader will create"
"""So begins what torch says where there are fewer CPUs than workers."""


def run(code: str, tmp_path: Path, afflict: Callable[[], None] = afflicted.nothing, front: str = "feedline") -> str:
    """What the script prints; its failure fails the test, with all it said. A file, so that spawned workers find it."""
    script = tmp_path / f"script_{uuid.uuid4().hex[:8]}.py"
    script.write_text(textwrap.dedent(code))
    command = ["-W", "error", "-W", f"ignore:{TORCHS_ADVICE}", str(LAUNCHER), pickle.dumps(afflict).hex(), str(script)]
    with tempfile.TemporaryFile("w+") as output:
        with host(front).start(command, output.fileno(), output.fileno()) as process:
            try:
                process.wait(SECONDS)
                late = ""
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                late = f" (it was killed: it was still running after {SECONDS} s)"
        output.seek(0)
        said = output.read()
    assert process.returncode == 0, f"ended with {process.returncode}{late}; it had said:\n{said}"
    return said


def look(at: Callable[[], Any], afflict: Callable[[], None] = lambda: None) -> Any:
    """What a function gives, as JSON has it, in a forked process under the affliction; its failure fails the test."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                afflict()
                answer = {"gave": at()}
            except BaseException:
                answer = {"failed": traceback.format_exc()}
            with open(writing, "w") as stream:
                json.dump(answer, stream)
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as stream:
        answer = json.loads(stream.read() or '{"failed": "it printed nothing"}')
    os.waitpid(pid, 0)
    assert "gave" in answer, answer["failed"]
    return answer["gave"]


def container(limit: int) -> contextlib.AbstractContextManager[Callable[[], None]]:
    """So much memory."""
    return cgroup("memory", {1: {"memory.limit_in_bytes": limit}, 2: {"memory.max": limit}})


@contextlib.contextmanager
def cgroup(controller: str, limits: dict[int, dict[str, Any]]) -> Iterator[Callable[[], None]]:
    """A cgroup of our own below the one we are in, with those limits (by version and file); what it gives moves a new
    process there."""
    folder, version = _own_cgroup(controller, limits)
    folder /= f"feedline-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no {controller} cgroup can be made here: {error}")
    try:
        try:
            for file, limit in limits[version].items():
                (folder / file).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"no {controller} limit can be set here: {error}")
        yield partial(afflicted.enter, str(folder / "cgroup.procs"))
    finally:
        while pids := (folder / "cgroup.procs").read_text().split():  # helpers of Python's end a moment later
            for pid in map(int, pids):
                _wait_for_end(pid)
        _remove(folder)


def _remove(folder: Path) -> None:
    """A process that has ended may be counted a moment longer."""
    patient_until = time.monotonic() + SECONDS
    while True:
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > patient_until:
                raise
            time.sleep(0.01)
        else:
            return


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


def _own_cgroup(controller: str, limits: dict[int, dict[str, Any]]) -> tuple[Path, int]:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError as error:
        pytest.skip(f"no cgroups here: {error}")
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return Path(f"/sys/fs/cgroup/{controller}{path}"), 1
        if number == "0" and all(Path(f"/sys/fs/cgroup{path}/{file}").exists() for file in limits[2]):
            return Path(f"/sys/fs/cgroup{path}"), 2
    pytest.skip(f"this process is in no {controller} cgroup that it can see")


def small_shm(megabytes: int) -> Callable[[], None]:
    """A /dev/shm of that size, for a new process and those it starts."""
    return mounted(("/dev/shm", f"size={megabytes}m", 0))


def mounted(*places: tuple[str, str, int]) -> Callable[[], None]:
    """A tmpfs at each place (folder, options, flags), for a new process and those it starts."""
    afflict = partial(afflicted.mount, places)
    pid = os.fork()  # may we?
    if pid == 0:
        afflict()
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        pytest.skip(f"no mount namespace with a tmpfs at {places[0][0]} can be made here: that takes root")
    return afflict


def few_descriptors(count: int) -> Callable[[], None]:
    """`ulimit -n`."""
    return partial(afflicted.limit_descriptors, count)


def forbidden(calls: dict[str, int]) -> Callable[[], None]:
    """System calls that fail with that error: a seccomp filter, as containers have it."""
    numbers = {"x86_64": {"memfd_create": 319, "pidfd_open": 434}, "aarch64": {"memfd_create": 279, "pidfd_open": 434}}
    known = numbers.get(os.uname().machine)
    if known is None:
        pytest.skip(f"the numbers of system calls on {os.uname().machine} are not known to this test")
    load_number, if_equal, give = 0x20, 0x15, 0x06
    steps = [(load_number, 0, 0, 0)]
    for name, error in calls.items():
        steps += [(if_equal, 0, 1, known[name]), (give, 0, 0, 0x00050000 | error)]
    steps.append((give, 0, 0, 0x7FFF0000))  # anything else is allowed
    filter_of = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(filter_of)))
    libc = ctypes.CDLL(None, use_errno=True)

    def afflict() -> None:
        no_new_privileges, set_filter = 38, 22
        assert libc.prctl(no_new_privileges, 1, 0, 0, 0) == 0
        assert libc.prctl(set_filter, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
        filter_of.raw  # alive until now

    return afflict
