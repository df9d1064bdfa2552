"""Records by number, in packs that many processes share: the part that is the same in a folder and in memory.

Takes: how many samples there are, a bound. Gives: records (as read-only memory), or None.
Promises: an entry counts only if its own checksum is right, and it is written after its record; so a process killed at
any point leaves nothing that is read. No process waits for another one while it reads. What cannot be stored is a
`problem`, and reading goes on.
Not its job: where packs are, and which one goes when there is no room (pack_folder, pack_memory); what a record is
(records); when one is stored (sample_cache).

The index has 32 bytes for each sample: pack, offset, length, checksum, checksum of these four.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
import zlib
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from feedline.datasets import IntArray

ENTRY = struct.Struct("<QQQII")
_WORDS = 4
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
_OF_INDEX, _OF_WORDS = np.uint64(_FACTORS[0]), np.array(_FACTORS[1:], np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
PACKS = 64
"""A pack has at most this part of the bound: what is removed at once, and how many packs a process has open."""
ALIGNED = 64
SWEPT = 1.0
"""Seconds between two looks for packs that others have removed: one takes up to 64 calls of the system."""
RETRY = 1_000
"""If there is no room, this many records are not stored before it is tried again: it means looking at all packs."""


def _own_checksum(*words: int) -> int:
    """The checksum of an entry, from its index and its other numbers: unlike CRC, NumPy can compute it for many."""
    return (sum(word * factor for word, factor in zip(words, _FACTORS, strict=True)) >> 32) & 0xFFFFFFFF


class Packs(ABC):
    """The records of one dataset. What is open belongs to a process, and is opened again in another one."""

    def __init__(self, identity: str, count: int, max_bytes: int) -> None:
        self.identity = identity
        self.count = count
        self.max_bytes = max_bytes
        self.problem: Exception | None = None
        """Why nothing more can be stored."""
        self._open: OpenPacks | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state

    @abstractmethod
    def _open_here(self) -> OpenPacks:
        """Open them in this process."""

    def removals(self) -> int:
        """If this is another number than before, records that were read in between may have been removed meanwhile."""
        return 0

    def _opened(self) -> OpenPacks:
        opened = self._open
        if opened is None or opened.pid != os.getpid():
            opened = self._open = self._open_here()
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

    def read_all(self, indices: IntArray) -> list[memoryview] | None:
        """The records of several samples; None if one is missing. The same as `read`, in a quarter of the time."""
        opened = self._opened()
        entries = opened.table[indices]
        packs, starts, lengths, last = entries.T
        own = last >> 32
        last &= _LOW
        if not packs.all() or ((entries @ _OF_WORDS + indices.astype(np.uint64) * _OF_INDEX) >> 32 != own).any():
            return None
        which = packs.tolist()
        memory = {pack: opened.mapped(pack) for pack in set(which)}
        if (
            opened.old
            and not opened.old.isdisjoint(which)
            and any(self.read(index) is None for index in indices.tolist())
        ):
            return None
        places = zip(which, starts.tolist(), (starts + lengths).tolist(), strict=True)
        found = [data[start:end] for pack, start, end in places if (data := memory[pack]) is not None]
        return found if sum(map(len, found)) == lengths.sum() else None  # none was removed, or cut off

    def has(self, index: int) -> bool:
        """Is there a record with that number? Its bytes are not checked."""
        opened = self._opened()
        entry = opened.entry(index)
        return entry is not None and opened.mapped(entry[0]) is not None

    def write(self, index: int, record: bytes) -> None:
        """Store a record, if there is room for it."""
        opened = self._opened()
        with opened.lock:
            if self.problem is not None or opened.wait_for > 0:
                opened.wait_for -= 1
                return
            try:
                self._write(opened, index, record)
            except (OSError, MemoryError) as error:
                self.problem = error

    def _write(self, opened: OpenPacks, index: int, record: bytes) -> None:
        writer = opened.writer
        if writer is None or writer.at + len(record) > writer.size or not writer.is_there():
            if writer is not None:
                writer.close()
            writer = opened.writer = None
            if len(record) <= self.max_bytes:
                writer = opened.writer = opened.new_pack(len(record))
            if writer is None:
                opened.wait_for = RETRY
                return
        at = writer.at
        writer.put(record)
        writer.at = at + len(record) + -len(record) % ALIGNED
        opened.put(index, writer.number, at, len(record), zlib.crc32(record))


class PackWriter(ABC):
    """A pack that this process writes."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.at = 0

    @abstractmethod
    def put(self, record: bytes) -> None:
        """Write a record at `at`. If the pack has been removed meanwhile, nobody will look there."""

    def is_there(self) -> bool:
        """Has nobody removed the pack?"""
        return True

    def close(self) -> None:  # noqa: B027
        """Nothing more will be written."""


class OpenPacks(ABC):
    """What one process has open."""

    problem: Exception | None = None

    def __init__(self, index: mmap.mmap, count: int) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        """Held by the thread that writes."""
        self.swept = 0.0
        self._mapped: dict[int, Any] = {}
        self.index = index
        self.table = np.frombuffer(index, np.uint64).reshape(-1, _WORDS)
        self.writer: PackWriter | None = None
        self.wait_for = 0
        self.checked = bytearray(count)
        self.old: set[int] = set()
        """Packs that an earlier run has left: a crash of the machine may have damaged them."""

    def entry(self, index: int) -> tuple[int, int, int, int] | None:
        """Pack, offset, length and checksum of a record; None if there is none."""
        at = index * ENTRY.size
        *entry, own = ENTRY.unpack(self.index[at : at + ENTRY.size])
        pack, offset, length, checksum = entry
        if not pack or own != _own_checksum(index, *entry):
            return None
        return pack, offset, length, checksum

    def put(self, index: int, *entry: int) -> None:
        """Write the entry of a record that has been written."""
        at = index * ENTRY.size
        self.index[at : at + ENTRY.size] = ENTRY.pack(*entry, _own_checksum(index, *entry))
        self.checked[index] = 1

    @abstractmethod
    def mapped(self, number: int) -> memoryview | None:
        """The memory of a pack; None if it was removed."""

    @abstractmethod
    def is_there(self, number: int) -> bool:
        """Has nobody removed that pack, which is mapped?"""

    def sweep(self) -> None:
        """Let go of packs that others have removed: no entry may ever lead to them again, and they take room."""
        now = time.monotonic()
        if now - self.swept < SWEPT:
            return
        self.swept = now
        for number in list(self._mapped):
            if not self.is_there(number):
                self.let_go(number)

    def let_go(self, number: int) -> None:
        """The pack has been removed."""
        self._mapped.pop(number, None)

    @abstractmethod
    def new_pack(self, size: int) -> PackWriter | None:
        """A pack with room for at least that many bytes; None if there is no room for one."""
