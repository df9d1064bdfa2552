"""One shared memory for all processes of a machine that ask for the same name.

Takes: a name, and how new memory is filled. Gives: `joined`: a segment, and where other processes find it.
Promises: processes that ask at the same time get the same memory. It lives as long as a process has it open, and the
kernel frees it then, however they end. Only processes of one user meet, which see each other in /proc.
Not its job: what is in it (pack_memory).

An anonymous file (`memfd`) has no name, so those who have it open are written down in a small file in the folder for
temporary files: a line of process, descriptor and token for each. Others open it at /proc/<process>/fd/<descriptor>.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_UN, flock
from pathlib import Path
from typing import NamedTuple

from feedline.arena.segment import BOARD, STRIDE, Segment
from feedline.machine.finalizers import undisturbed

_TOKEN = struct.Struct("=q")
"""The first number on the segment's board: which memory it is. A process's number may belong to another one by now."""


class Where(NamedTuple):
    """Where a process has the memory open."""

    process: int
    descriptor: int
    token: int


def joined(name: str, make: Callable[[], Segment], told: Where | None) -> tuple[Segment, Where]:
    """The memory that another process has, if there is one, or new memory; written down for others to find."""
    found = None if told is None else _opened(told)
    if found is not None and told is not None:  # this process was sent it, and lives no longer than the one that did
        return found, Where(os.getpid(), found.fd, told.token)
    with _listed(name) as lines:
        for line in lines:
            if (found := _opened(line)) is not None:
                where = Where(os.getpid(), found.fd, line.token)
                break
        else:
            found = make()
            where = Where(os.getpid(), found.fd, token_of(found.fd))
        lines.append(where)
    return found, where


@undisturbed
def left(name: str, where: Where, segment: Segment) -> None:
    """This process has no use for it any more."""
    segment.close()
    if where.process == os.getpid():  # not in a forked child
        with suppress(OSError), _listed(name) as lines:
            lines[:] = [line for line in lines if line != where]


def token_of(descriptor: int) -> int:
    """Which memory it is; 0 if it is not complete."""
    data = os.pread(descriptor, _TOKEN.size, BOARD * STRIDE)
    return int(_TOKEN.unpack(data)[0]) if len(data) == _TOKEN.size else 0


def _opened(where: Where) -> Segment | None:
    path = f"/proc/{where.process}/fd/{where.descriptor}"
    with suppress(OSError):
        if not os.readlink(path).startswith("/memfd:feedline"):
            return None  # opening a pipe, say, could block
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if where.token and token_of(descriptor) == where.token:
            return Segment(descriptor)
        os.close(descriptor)
    return None


def _is_alive(where: Where) -> bool:
    found = _opened(where)
    if found is not None:
        found.close()
    return found is not None


@contextmanager
def _listed(name: str) -> Iterator[list[Where]]:
    """Who has the memory open, to be changed: nobody else reads or changes it meanwhile."""
    space = os.stat("/proc/self/ns/pid").st_ino  # processes of another container have the same numbers
    path = Path(tempfile.gettempdir()) / f"feedline-{os.getuid()}-{space}-{name}"
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            flock(descriptor, LOCK_EX)
            about = os.fstat(descriptor)
            if about.st_uid != os.getuid():
                raise PermissionError(f"{path} belongs to another user")
            if not about.st_nlink:  # it was removed just before it was locked
                continue
            text = os.pread(descriptor, about.st_size, 0).decode("ascii", "replace")
            numbers = [line.split() for line in text.splitlines()]
            lines = [Where(*map(int, each)) for each in numbers if len(each) == 3 and all(map(str.isdecimal, each))]
            try:
                yield lines
            finally:
                text = "".join(f"{line.process} {line.descriptor} {line.token}\n" for line in lines if _is_alive(line))
                if text:
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, text.encode(), 0)
                else:
                    path.unlink()
            return
        finally:
            flock(descriptor, LOCK_UN)  # a child that was forked meanwhile has the descriptor, too
            os.close(descriptor)
