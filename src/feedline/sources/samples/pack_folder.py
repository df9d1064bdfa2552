"""Records by number in a folder that many processes share: many records in each file, mapped into memory.

Takes: a folder, an identity, how many samples there are, a bound. Gives: records (as read-only memory), or None.
Promises: an entry counts only if its own checksum is right, and it is written after its record; so a process killed at
any point leaves nothing that is read. Records that were there before this process are checked against their checksum
when they are first read. All packs together never take more than `max_bytes`: the pack that was used least recently is
removed first, of any identity. No process waits for another one while it reads. A full disk is a `problem`,
never a bus error.
Not its job: what a record is (records), when one is stored (sample_cache).

    folder/lock                  held while packs are added or removed
    folder/<identity>/index      32 bytes for each sample: pack, offset, length, checksum, checksum of these four
    folder/<identity>/….pack     records; its only writer holds a lock on it; its time is its last use
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
import threading
import time
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from feedline.machine.finalizers import undisturbed
from feedline.sources.cache_folder import write_all

ENTRY = struct.Struct("<QQQII")
_BODY = struct.Struct("<QQQI")
PACKS = 64
"""A pack has at most this part of the bound: what is removed at once, and how many files a process has open."""
LARGEST_PACK = 1 << 30
ALIGNED = 64
TOUCHED = 1.0
"""Seconds between two notes that a pack is in use."""
RETRY = 1_000
"""If there is no room, this many records are not stored before it is tried again: it means looking at all packs."""


class PackFolder:
    """The records of one dataset. What is open belongs to a process, and is opened again in another one."""

    def __init__(self, folder: str | os.PathLike[str], identity: str, count: int, max_bytes: int) -> None:
        self.folder = Path(folder)
        self.identity = identity
        self.count = count
        self.max_bytes = max_bytes
        self.pack_bytes = max(1, min(max_bytes // PACKS, LARGEST_PACK))
        self.problem: OSError | None = None
        """Why nothing more can be stored."""
        self._open: _Open | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "_lock": threading.Lock()}

    @property
    def _own(self) -> Path:
        return self.folder / self.identity

    def _opened(self) -> _Open:
        opened = self._open
        if opened is None or opened.pid != os.getpid():
            if opened is not None:  # a forked child: the lock may be held by a thread of the parent
                self._lock = threading.Lock()
            opened = self._open = _Open(self._own, self.count)
            self.problem = self.problem or opened.problem
        return opened

    def read(self, index: int) -> memoryview | None:
        """A record, if it is there and whole."""
        opened = self._opened()
        entry = opened.entry(index)
        if entry is None:
            return None
        pack, offset, length, checksum = entry
        data = opened.mapped(pack)
        if data is None or offset + length > len(data):
            return None
        record = data[offset : offset + length]
        if pack in opened.old and not opened.checked[index]:
            if zlib.crc32(record) != checksum:
                return None
            opened.checked[index] = 1
        return record

    def read_all(self, indices: list[int]) -> list[memoryview] | None:
        """The records of several samples; None if one is missing. The same as `read`, in half the time."""
        opened, found = self._opened(), []
        index, old, crc, unpack, size = opened.index, opened.old, zlib.crc32, ENTRY.unpack, ENTRY.size
        packs: dict[int, memoryview | None] = {}
        for number in indices:
            entry = index[number * size : (number + 1) * size]
            pack, offset, length, _, own = unpack(entry)
            data = packs[pack] if pack in packs else packs.setdefault(pack, opened.mapped(pack) if pack else None)
            is_there = data is not None and own == crc(entry[: _BODY.size], number & 0xFFFFFFFF)
            if pack in old or not is_there or data is None or offset + length > len(data):
                if (record := self.read(number)) is None:
                    return None
                found.append(record)
            else:
                found.append(data[offset : offset + length])
        return found

    def has(self, index: int) -> bool:
        """Is there a record with that number? Its bytes are not checked."""
        opened = self._opened()
        entry = opened.entry(index)
        return entry is not None and opened.mapped(entry[0]) is not None

    def write(self, index: int, record: bytes) -> None:
        """Store a record, if there is room for it."""
        with self._lock:
            opened = self._opened()
            if self.problem is not None or opened.wait_for > 0:
                opened.wait_for -= 1
                return
            try:
                self._write(opened, index, record)
            except OSError as error:
                self.problem = error

    def _write(self, opened: _Open, index: int, record: bytes) -> None:
        writer = opened.writer
        if writer is None or writer.at + len(record) > writer.size:
            if writer is not None:
                writer.close()
            writer = opened.writer = None
            if len(record) <= self.max_bytes:
                writer = opened.writer = self._new_pack(max(len(record), self.pack_bytes))
            if writer is None:
                opened.wait_for = RETRY
                return
        at = writer.at
        os.lseek(writer.descriptor, at, os.SEEK_SET)
        write_all(writer.descriptor, record)
        writer.at = at + len(record) + -len(record) % ALIGNED
        body = _BODY.pack(writer.number, at, len(record), zlib.crc32(record))
        opened.put(index, body)

    def _new_pack(self, size: int) -> _Writer | None:
        with self._locked():
            if not self._make_room(size):
                return None
            while True:
                number = secrets.randbits(63) | 1
                with suppress(FileExistsError):
                    path = self._own / f"{number:016x}.pack"
                    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    writer = _Writer(number, os.open(path, flags, 0o666), size)
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
            for entry in os.scandir(folder) if folder.is_dir() else ():
                if not entry.name.endswith(".pack"):
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
            os.close(descriptor)


class _Writer:
    """A pack that this process writes."""

    def __init__(self, number: int, descriptor: int, size: int) -> None:
        self.number = number
        self.descriptor = descriptor
        self.size = size
        self.at = 0
        self.close = weakref.finalize(self, _end, [descriptor])


@undisturbed
def _end(held: list[int]) -> None:
    if held:  # it may be run again, when the number is that of another file
        os.close(held.pop())


class _Open:
    """What one process has open."""

    def __init__(self, own: Path, count: int) -> None:
        self.pid = os.getpid()
        self.own = own
        self.writer: _Writer | None = None
        self.wait_for = 0
        self.checked = bytearray(count)
        self.old = {int(path.stem, 16) for path in own.glob("*.pack")}
        """Packs that were there before: a crash of the machine may have damaged them."""
        self._mapped: dict[int, tuple[memoryview, float]] = {}
        self.index, self.problem = _index(own, count)

    def entry(self, index: int) -> tuple[int, int, int, int] | None:
        at = index * ENTRY.size
        entry = self.index[at : at + ENTRY.size]
        pack, offset, length, checksum, own = ENTRY.unpack(entry)
        if not pack or own != zlib.crc32(entry[: _BODY.size], index & 0xFFFFFFFF):
            return None
        return pack, offset, length, checksum

    def put(self, index: int, body: bytes) -> None:
        at = index * ENTRY.size
        self.index[at : at + ENTRY.size] = body + struct.pack("<I", zlib.crc32(body, index & 0xFFFFFFFF))
        self.checked[index] = 1

    def mapped(self, number: int) -> memoryview | None:
        """The memory of a pack; None if it was removed."""
        now = time.monotonic()
        found = self._mapped.get(number)
        if found is not None and now - found[1] < TOUCHED:
            return found[0]
        path = self.own / f"{number:016x}.pack"
        try:
            _touch(path)
            data = _map(path) if found is None else found[0]
        except FileNotFoundError:
            self._mapped.pop(number, None)
            return None
        self._mapped[number] = data, now
        return data


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
