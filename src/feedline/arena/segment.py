"""One anonymous shared file (`memfd`), in which every slot has its own range.

Takes: slot numbers and sizes. Gives: mappings of those ranges, in this process or another that has the descriptor.
Promises: one descriptor for any number of slots; lack of memory is a `MemoryShortage` when memory is allocated, never
SIGBUS when it is written, and not SIGKILL if a container's limit is known; nothing in /dev/shm, nothing that outlives
the processes.
Not its job: which slot is free (slots), how much memory there is (limits).

Slot ranges start at multiples of a huge stride. The file is sparse, so that costs nothing, and any process can let a
slot grow in place without asking another.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from feedline.arena.limits import room
from feedline.errors import MemoryShortage, add_note
from feedline.machine.finalizers import undisturbed

STRIDE = 1 << 38  # 256 GiB per slot: more than any batch needs, and 2**25 slots fit below 2**63
PAGE = mmap.PAGESIZE
JOB_SLOT, BOARD = 0, 1 << 24
"""Special slots: JOB_SLOT holds what is sent to the workers, BOARD the progress rows that all can see. Batches are in
between; after the board come the workers' stacks (last_words)."""

available = hasattr(os, "memfd_create") and hasattr(os, "posix_fallocate")
"""True on Linux. Elsewhere batches are made in ordinary memory, and there are no worker processes."""

_PROT_READ_WRITE = 1 | 2
_MAP_SHARED = 1
_MAP_PRIVATE = 2
_MAP_FAILED = ctypes.c_void_p(-1).value
_MADV_REMOVE = 9
_PUNCH_HOLE = 1 | 2  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE

LOOK = 1 << 22
"""After this much growth the limits are checked. Clearing this much memory takes 1,100 µs and a check 80 to 150: so new
memory costs at most a tenth more, and reused memory nothing."""
UNSEEN = 1 << 16
"""Smaller growth is not counted: reporting a lack of memory itself needs this much."""
STEP = 1 << 24
"""Memory is taken in steps of this size, with a check before each, so that workers that allocate at the same time see
what the others have taken."""
RESERVE = 1 << 25
"""This much memory is left free: two steps, for two workers that checked at the same time, or for the pages that Python
needs next. Large containers have more and larger workers: there it is 1/64 of the limit, up to eight times this."""

_REMEDY = (
    "Lower batch_size, prefetch_factor or num_workers, keep fewer batches (batches that you still hold take memory, "
    "too), or give the container more memory."
)
_JOB_REMEDY = (
    "Workers that are not forked get a second copy of the dataset, in shared memory: use "
    "multiprocessing_context='fork' or workers='thread', or let the dataset read its data from files."
)
_REMEDIES: dict[int | None, str] = {
    errno.EFBIG: "This process has a limit on the size of files, which also counts for files in memory: remove it "
    "with ulimit -f unlimited."
}

givers: list[Callable[[], bool]] = []
"""Called if memory runs short: each gives back what it does not need now, and says whether that was anything."""
mappings: set[int] = set()
"""The addresses of this process's mappings, of all loaders. The kernel limits their number."""

# libc, because mmap.mmap keeps a duplicate of the descriptor for every mapping: one descriptor per kept batch.
_libc: Any = ctypes.CDLL(None, use_errno=True) if available else None
if _libc is not None:
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    _libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    _libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def to_page(size: int) -> int:
    """Round up to whole pages."""
    return -(-size // PAGE) * PAGE


class Segment:
    """The shared file. Give `fd` to another process and build a `Segment` around it there."""

    _owner = -1  # for `__del__`, if Ctrl-C comes before the end of `__init__`

    def __init__(self, fd: int | None = None) -> None:
        self._fd = fd
        self._lock = threading.RLock()  # reentrant: the garbage collector may close it in a thread that holds it
        self._grown = 0  # since the last check; not exact with several threads, and need not be
        self._owner = os.getpid() if fd is None else -1

    @property
    def fd(self) -> int:
        """The descriptor; made when first needed, because many loaders never need it."""
        fd = self._fd
        if fd is None:
            with self._lock:  # worker threads may need it at the same moment
                made = _create() if self._fd is None else -1
                if self._fd is None:
                    self._fd = made
                elif made >= 0:  # the garbage collector closed it meanwhile, in this thread
                    os.close(made)
                fd = self._fd
        return fd

    def allocate(self, slot: int, start: int, stop: int, keep: bool = False) -> None:
        """Allocate bytes start…stop of a slot now. If memory runs out, free what was allocated unless `keep`."""
        if stop - start >= UNSEEN:
            self._grown += stop - start
        if stop - start < UNSEEN or self._grown < LOOK:
            self._take(slot, start, stop, stop)
            return
        if self._is_there(slot, start, stop):  # from an earlier epoch
            return
        _check_room(slot, start, stop)
        self._grown = 0
        for place in range(start, stop, STEP):
            try:
                if place > start:
                    _check_room(slot, place, stop)
                self._take(slot, place, min(place + STEP, stop), stop)
            except MemoryShortage:
                if not keep:
                    self.free(slot, start, place)
                raise

    def _is_there(self, slot: int, start: int, stop: int) -> bool:
        """Have all these bytes been written before? (Bytes that were only allocated look like a hole.)"""
        begin = slot * STRIDE + start
        try:
            return os.lseek(self.fd, begin, os.SEEK_DATA) == begin and os.lseek(self.fd, begin, os.SEEK_HOLE) >= (
                slot * STRIDE + stop
            )
        except OSError:  # there is nothing from here on
            return False

    def _take(self, slot: int, start: int, stop: int, end: int) -> None:
        fd = self.fd
        try:
            try:
                os.posix_fallocate(fd, slot * STRIDE + start, stop - start)
            except OSError:
                if not any(give() for give in givers):
                    raise
                os.posix_fallocate(fd, slot * STRIDE + start, stop - start)
        except OSError as error:
            raise MemoryShortage(
                f"no memory for {_called(slot)} of {end:,} bytes ({end - start:,} more were asked for): "
                f"{error.strerror}. " + _REMEDIES.get(error.errno, _REMEDY)
            ) from None

    def free(self, slot: int, start: int, stop: int) -> None:
        """Give the whole pages between two offsets of a slot back to the system."""
        start, stop = to_page(start), stop // PAGE * PAGE
        if start < stop:
            _libc.fallocate(self.fd, _PUNCH_HOLE, slot * STRIDE + start, stop - start)

    def map(self, slot: int, size: int, private: bool = False) -> Mapping:
        """Map the first `size` bytes of a slot into this process; others do not see writes to a private mapping."""
        return Mapping(self.fd, slot * STRIDE, to_page(size), _MAP_PRIVATE if private else _MAP_SHARED)

    def board(self, integers: int, create: bool = False) -> memoryview:
        """Integers that the parent and all workers share."""
        size = to_page(8 * integers)
        if create:
            self.allocate(BOARD, 0, size)
        return self.map(BOARD, size).view(0, size).cast("q")

    @undisturbed
    def __del__(self, pid: Callable[[], int] = os.getpid, is_over: Callable[[], bool] = sys.is_finalizing) -> None:
        # Ctrl-C came before anybody was to close it. Not in a forked child, where a worker uses the same descriptor.
        if self._owner == pid() and not is_over():
            self.close()

    def used(self) -> int:
        """How many bytes are allocated, in all slots."""
        return 0 if self._fd is None or self._fd < 0 else os.fstat(self._fd).st_blocks * 512

    def close(self) -> None:
        """Close the descriptor; mappings stay valid."""
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd is not None and fd >= 0:
            os.close(fd)


def _create() -> int:
    try:
        return os.memfd_create("feedline", os.MFD_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):  # these need no explanation
            add_note(error, "feedline: batches need memory from memfd_create; `feedline preflight` says what is wrong")
        raise


def reserve_of(limit: int) -> int:
    """How much of a limit is left free."""
    return min(max(RESERVE, limit // 64), 8 * RESERVE)


def refused(size: int) -> MemoryShortage:
    """The error for ordinary memory that the system refuses, because of a limit such as ulimit -v."""
    return MemoryShortage(f"no memory for a batch: the system refused {size:,} bytes. {_REMEDY}")


def check_room(size: int) -> None:
    """Raise `MemoryShortage` if there is no room for a batch of that size."""
    _check_room(JOB_SLOT + 1, 0, size)


def _check_room(slot: int, start: int, stop: int) -> None:
    left = room()
    if left is None:
        return
    reserve = reserve_of(left.limit)
    if left.free - reserve < stop - start and any(give() for give in givers):
        left = room() or left
    if left.free - reserve < stop - start:
        raise MemoryShortage(
            f"no memory for {_called(slot)} of {stop:,} bytes: {stop - start:,} more are needed, but only "
            f"{left.free:,} of the {left.limit:,} that the {left.which} may use are free, and {reserve:,} stay free. "
            + (_JOB_REMEDY if slot == JOB_SLOT else _REMEDY)
        )


def _called(slot: int) -> str:
    return "the dataset that is sent to the workers" if slot == JOB_SLOT else "a batch"


class Mapping:
    """A range of mapped memory, unmapped when no view of it is left."""

    address = 0  # for `__del__`, if a worker is told to leave before `__init__` has mapped anything

    def __init__(self, fd: int, offset: int, size: int, sharing: int) -> None:
        self.size = size
        address = _libc.mmap(None, size, _PROT_READ_WRITE, sharing, fd, offset)
        if address == _MAP_FAILED:
            code = ctypes.get_errno()
            raise MemoryShortage(f"a batch of {size:,} bytes could not be mapped: {os.strerror(code)}")
        self.address = address
        mappings.add(address)

    def view(self, start: int, size: int) -> memoryview:
        """A part of the memory. It keeps the mapping alive, and its `obj` supports weak references."""
        # Each length of a ctypes array is a new class, which takes 40 µs to make: so only powers of two are used.
        leaf: Any = (ctypes.c_char * (1 << (size - 1).bit_length())).from_address(self.address + start)
        leaf.mapping = self
        return memoryview(leaf).cast("B")[:size]

    def discard(self, start: int, stop: int) -> None:
        """Give pages back to the system; `start` is a page boundary, and the contents must not be needed any more."""
        _libc.madvise(self.address + start, to_page(stop) - start, _MADV_REMOVE)

    @undisturbed
    def __del__(self, is_over: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter exits, what we need may be gone already, and the system unmaps everything anyway.
        if self.address and not is_over():
            mappings.discard(self.address)
            address, self.address = self.address, 0  # never twice: the address may belong to another mapping by then
            _libc.munmap(address, self.size)
