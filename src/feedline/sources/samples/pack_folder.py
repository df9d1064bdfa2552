"""Packs in a folder that many processes share: files that are mapped into memory.

Takes: a folder, an identity, how many samples there are, a bound. Gives: `PackFolder`.
Promises: records that were there before this process are checked against their checksum when they are first read. All
packs together never take more than `max_bytes`: the pack that was used least recently is removed first, of any
identity. A full disk is a `problem`, never a bus error.
Not its job: entries and records (packs).

    folder/lock                  held while packs are added or removed
    folder/<identity>/index      the entries
    folder/<identity>/….pack     records; its only writer holds a lock on it; its time is its last use
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import secrets
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from feedline.machine.finalizers import undisturbed
from feedline.sources.cache_folder import write_all
from feedline.sources.samples.packs import ENTRY, PACKS, OpenPacks, Packs, PackWriter

_PACK = re.compile("[0-9a-f]{16}[.]pack")
LARGEST_PACK = 1 << 30
TOUCHED = 1.0
"""Seconds between two notes that a pack is in use."""


class PackFolder(Packs):
    """The records of one dataset in a folder."""

    def __init__(self, folder: str | os.PathLike[str], identity: str, count: int, max_bytes: int) -> None:
        super().__init__(identity, count, max_bytes)
        self.folder = Path(folder)

    def __str__(self) -> str:
        return os.fspath(self.folder)

    def _open_here(self) -> _OpenFolder:
        return _OpenFolder(self.folder, self.identity, self.count, self.max_bytes)


class _OpenFolder(OpenPacks):
    _mapped: dict[int, tuple[memoryview, float]]

    def __init__(self, folder: Path, identity: str, count: int, max_bytes: int) -> None:
        self.folder, self.own, self.max_bytes = folder, folder / identity, max_bytes
        old = {int(path.stem, 16) for path in self.own.glob("*.pack")}
        index, self.problem = _index(self.own, count)
        super().__init__(index, count)
        self.old = old

    def mapped(self, number: int) -> memoryview | None:
        now = time.monotonic()
        found = self._mapped.get(number)
        if found is not None and now - found[1] < TOUCHED:
            return found[0]
        path = self._path(number)
        try:
            if found is None:
                self.sweep()
            _touch(path)
            data = _map(path) if found is None else found[0]
        except FileNotFoundError:
            self.let_go(number)
            return None
        self._mapped[number] = data, now
        return data

    def is_there(self, number: int) -> bool:
        return self._path(number).exists()

    def _path(self, number: int) -> Path:
        return self.own / f"{number:016x}.pack"

    def new_pack(self, size: int) -> _FileWriter | None:
        size = max(size, 1, min(self.max_bytes // PACKS, LARGEST_PACK))
        with self._locked():
            if not self._make_room(size):
                return None
            while True:
                number = secrets.randbits(63) | 1
                with suppress(FileExistsError):
                    path = self._path(number)
                    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    writer = _FileWriter(number, os.open(path, flags, 0o666), size)
                    fcntl.flock(writer.descriptor, fcntl.LOCK_EX)  # while it is locked, it is counted whole
                    os.ftruncate(writer.descriptor, size)
                    return writer

    def _make_room(self, size: int) -> bool:
        """Remove the packs used least recently until `size` fits."""
        packs = sorted(self._packs())
        total = sum(each[1] for each in packs)
        for _, taken, path, is_written in packs:
            if total + size <= self.max_bytes:
                return True
            if not is_written:
                with suppress(FileNotFoundError):
                    os.unlink(path)
                total -= taken
        return total + size <= self.max_bytes

    def _packs(self) -> Iterator[tuple[int, int, str, bool]]:
        """Of each pack of all identities: last use, size, path, and whether a process writes into it."""
        for folder in os.scandir(self.folder):
            for entry in os.scandir(folder) if os.path.exists(os.path.join(folder, "index")) else ():
                if not _PACK.fullmatch(entry.name):  # others' files may have the same suffix: Git's, say
                    continue
                with suppress(FileNotFoundError):
                    about, is_written = entry.stat(), _is_locked(entry.path)
                    taken = about.st_size if is_written else min(about.st_size, about.st_blocks * 512)
                    yield about.st_mtime_ns, taken, entry.path, is_written

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor, too
            os.close(descriptor)


class _FileWriter(PackWriter):
    def __init__(self, number: int, descriptor: int, size: int) -> None:
        super().__init__(number, size)
        self.descriptor = descriptor
        self._close = weakref.finalize(self, _end, [descriptor])

    def put(self, record: bytes) -> None:
        os.lseek(self.descriptor, self.at, os.SEEK_SET)
        write_all(self.descriptor, record)

    def close(self) -> None:
        self._close()


@undisturbed
def _end(held: list[int]) -> None:
    if held:  # it may be run again, when the number is that of another file
        os.close(held.pop())


def _touch(path: Path) -> None:
    now = time.time_ns()
    try:
        os.utime(path, ns=(now, now))
    except FileNotFoundError:
        raise
    except OSError:  # a folder that is only read
        pass


def _map(path: Path) -> memoryview:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(descriptor, os.fstat(descriptor).st_size, access=mmap.ACCESS_READ))
    except ValueError as error:  # an empty file: killed between making it and giving it its size
        raise FileNotFoundError(path) from error
    finally:
        os.close(descriptor)


def _is_locked(path: str) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _index(own: Path, count: int) -> tuple[mmap.mmap, OSError | None]:
    """The index, mapped; made if it does not exist. Its size follows from the number of samples. If it cannot be
    written, it is only read, or is empty, and the reason comes with it."""
    size = max(1, count) * ENTRY.size
    try:
        own.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(own / "index", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.posix_fallocate(descriptor, 0, size)  # a hole that the disk has no room for kills who writes into it
            return mmap.mmap(descriptor, size), None
        finally:
            os.close(descriptor)
    except OSError as error:
        with suppress(OSError, ValueError):
            descriptor = os.open(own / "index", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), error
            finally:
                os.close(descriptor)
        return mmap.mmap(-1, size), error
