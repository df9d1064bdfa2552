"""Entries in a folder that many processes share: bounded, least recently used removed first, never damaged.

Takes: keys and bytes. Gives: the bytes, or None.
Promises: a file gets its final name only when it is complete (written elsewhere, then renamed), and what is read is
checked against its length and checksum. All entries together never take more than `max_bytes`; files being written are
extra. A process killed at any point leaves only an unfinished file, which the next cleaning process removes. No
separate process manages the folder.
Files of others, in a folder that was in use before, are neither counted nor removed.
Not its job: what is kept (cached), telling the user (it returns what went wrong, once).

    folder/ab/cdef….entry     an entry: head (length, checksum of the body), body; its file time is its last use
    folder/writing/           files being written, each locked by its writer
    folder/total              8 bytes: the size of all entries, or more. Its lock is held while entries change
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HEAD = struct.Struct("<8sQI")
MAGIC = b"feedline"
TOTAL = struct.Struct("<Q")
OWN_FOLDER, OWN_ENTRY, OWN_UNFINISHED = (
    re.compile(pattern).fullmatch for pattern in ("[0-9a-f]{2}", r"[0-9a-f]{38}\.entry", "[0-9a-f]{16}")
)
"""All other files in the folder belong to somebody else."""
SPARE = 10
"""One part in this many is freed at once: finding the oldest entries means looking at all of them."""


class CacheFolder:
    """The folder. It keeps nothing open, so it can be sent to other processes as it is."""

    def __init__(self, path: str | os.PathLike[str], max_bytes: int) -> None:
        self.path = Path(path)
        self.max_bytes = max_bytes
        self._given_up = self._swept = False

    def get(self, key: bytes) -> bytes | None:
        """An entry's bytes, if it exists and is complete."""
        path = self._path_of(key)
        try:
            with open(path, "rb", buffering=0) as file:
                whole = file.read()
        except OSError:
            return None
        data = _body(whole)
        with suppress(OSError):  # it may have been removed meanwhile, or the folder may be read-only
            if data is None:
                path.unlink()  # `total` is now too high; it is corrected when all entries are looked at
            else:
                _touch(path)
        return data

    def put(self, key: bytes, data: bytes) -> OSError | None:
        """Store an entry. If the folder cannot be written: returns the reason once, and stores nothing from then on."""
        if self._given_up or HEAD.size + len(data) > self.max_bytes:
            return None
        try:
            self._store(self._path_of(key), data)
        except OSError as error:
            self._given_up = True
            return error
        return None

    def _store(self, path: Path, data: bytes) -> None:
        (self.path / "writing").mkdir(parents=True, exist_ok=True)
        if not self._swept:
            self._remove_unfinished()
            self._swept = True
        path.parent.mkdir(exist_ok=True)
        written, descriptor = self._begin()
        try:
            write_all(descriptor, HEAD.pack(MAGIC, len(data), zlib.crc32(data)), data)
            _touch(descriptor)
            self._let_in(written, path, HEAD.size + len(data))
        finally:
            with suppress(FileNotFoundError):  # it has its final name already
                written.unlink()
            os.close(descriptor)

    def _begin(self) -> tuple[Path, int]:
        """A new file to write to, locked: while it is locked, nobody takes it for one left by a dead process."""
        while True:
            written = self.path / "writing" / secrets.token_hex(8)
            descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return written, descriptor
            os.close(descriptor)  # a cleaning process came between creating and locking it

    def _let_in(self, written: Path, path: Path, size: int) -> None:
        with self._locked() as total:
            if path.exists():  # another process has stored the same entry
                return
            known = _read_total(total)
            if known is None or known + size > self.max_bytes:
                known = self._make_room(size)
            # First the count, then the entry: a process killed in between leaves a total too high, never too low.
            os.pwrite(total, TOTAL.pack(known + size), 0)
            written.rename(path)

    def _make_room(self, size: int) -> int:
        """Remove the oldest entries until `size` fits, and some more. Returns the size of what is left."""
        self._remove_unfinished()
        entries = sorted(self._entries())
        total = sum(each[1] for each in entries)
        if total + size <= self.max_bytes:
            return total
        for _, taken, path in entries:
            if total + size <= self.max_bytes - self.max_bytes // SPARE or total == 0:
                break
            with suppress(FileNotFoundError):  # another process found it damaged and removed it
                os.unlink(path)
            total -= taken
        return total

    def _entries(self) -> Iterator[tuple[int, int, str]]:
        for folder in os.scandir(self.path):
            if not OWN_FOLDER(folder.name) or not folder.is_dir():
                continue
            for entry in os.scandir(folder):
                if not OWN_ENTRY(entry.name):
                    continue
                with suppress(FileNotFoundError):  # another process found it damaged and removed it
                    about = entry.stat()
                    yield about.st_mtime_ns, about.st_size, entry.path

    def _remove_unfinished(self) -> None:
        """Remove the files of processes that were killed while writing: their locks ended with them."""
        for path in (self.path / "writing").iterdir():
            if not OWN_UNFINISHED(path.name):
                continue
            with suppress(OSError):
                descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(descriptor)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file `total`, locked: opened each time, because processes that share a descriptor share its lock."""
        descriptor = os.open(self.path / "total", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor, too
            os.close(descriptor)

    def _path_of(self, key: bytes) -> Path:
        name = hashlib.sha256(key).hexdigest()
        return self.path / name[:2] / f"{name[2:40]}.entry"


def _body(whole: bytes) -> bytes | None:
    """An entry's bytes, if they are those that were stored."""
    if len(whole) < HEAD.size:
        return None
    magic, length, checksum = HEAD.unpack_from(whole)
    body = whole[HEAD.size :]
    if magic != MAGIC or length != len(body) or checksum != zlib.crc32(body):
        return None
    return body


def _touch(file: Path | int) -> None:
    """Mark it as used now, by our clock: a file system's clock stands still for milliseconds."""
    now = time.time_ns()
    os.utime(file, ns=(now, now))


def write_all(descriptor: int, *parts: bytes) -> None:
    """Write all bytes, however many the system takes at a time."""
    for part in parts:
        left = memoryview(part)
        while left:
            left = left[os.write(descriptor, left) :]


def _read_total(descriptor: int) -> int | None:
    """The stored total; None if it was never completely written."""
    counted = os.pread(descriptor, TOTAL.size, 0)
    return TOTAL.unpack(counted)[0] if len(counted) == TOTAL.size else None
