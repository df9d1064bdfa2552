"""Slots: who may write where, and when a slot is free again.

Takes: requests for a slot, and the end of arrays that were handed out. Gives: `Slot` (memory for one batch), `Writer`
(memory for its leaves), leases (which notice the end of an array).
Promises: a slot is never written while an array delivered from it exists; a user who keeps every batch gets new slots
and never waits; a small part that is kept does not keep the rest of its batch in memory; the user holds at most
`MAX_LEASED` whole slots, and of older ones only the arrays still in use.
Not its job: what is in a batch (packing), how many tasks may be out (loader).
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.arena.ordinary import may_give
from feedline.arena.segment import JOB_SLOT, STRIDE, Mapping, Segment, mappings, refused, to_page
from feedline.datasets import SMALL_LEAF
from feedline.errors import MemoryShortage
from feedline.machine.finalizers import undisturbed

MAX_LEASED = 8
"""How many slots the user may hold before the oldest is retired; an ordinary loop holds at most two."""
LATEST = 2
"""So many of them may still be held when an epoch ends, and be used again in the next one."""
MAX_MAPPED = 32768
"""With more mappings than this, batches are copied out: Linux allows 65,530 per process."""
LEAST_ROOM = 1 << 15
"""The smallest size of a slot, so that a worker that gets no memory for a batch can still report that in it."""


class Slot:
    """Memory for one batch: a range of the segment, its mapping in this process, and the leases on it."""

    __slots__ = ("capacity", "id", "leases", "mapping", "owner", "retired", "segment", "small")

    def __init__(self, segment: Segment, number: int, small: bool = False) -> None:
        self.segment = segment
        self.id = number
        self.small = small
        self.capacity = 0
        self.mapping: Mapping | None = None
        self.leases: set[Lease] = set()
        self.retired = False
        self.owner = os.getpid()

    def room(self, size: int, shared: bool = False) -> Mapping:
        """A mapping of at least `size` allocated bytes. The slot grows in place; older views stay valid.

        If others may be writing to it (`shared`), nothing is freed when memory runs out.
        """
        if size > self.capacity:
            least = to_page(max(size, LEAST_ROOM))
            wanted = max(least, to_page(self.capacity * 5 // 4))
            try:
                self.segment.allocate(self.id, self.capacity, wanted, keep=shared)
            except MemoryShortage:
                if wanted == least:
                    raise
                wanted = least  # memory is short: take no more than needed
                self.segment.allocate(self.id, self.capacity, wanted, keep=shared)
            self.capacity = wanted
        return self.mapped(size)

    def mapped(self, size: int) -> Mapping:
        """A mapping of at least `size` bytes that some process has allocated."""
        if self.mapping is None or self.mapping.size < size:
            self.mapping = self.segment.map(self.id, max(size, self.capacity))
        return self.mapping

    def lease(self, start: int, size: int) -> memoryview:
        """A buffer on part of the slot; the slot is not written again while this buffer exists."""
        mapping = self.mapped(start + size)
        leaf = mapping.view(start, size)
        lease = Lease(leaf.obj, _ended)
        lease.slot, lease.mapping, lease.start, lease.stop = self, mapping, start, start + size
        self.leases.add(lease)
        _live.add(lease)
        return leaf

    def retire(self) -> None:
        """This slot is never written again: free everything except what the user still holds."""
        self.retired = True
        self.mapping = None
        end = 0
        for lease in sorted(self.leases, key=lambda lease: lease.start):
            self.segment.free(self.id, end, lease.start)
            end = lease.stop
        self.segment.free(self.id, end, STRIDE)  # a worker may have let it grow without our knowledge
        self.capacity = 0


class Lease(weakref.ref[Any]):
    """Notices the end of one delivered leaf."""

    __slots__ = ("mapping", "slot", "start", "stop")
    slot: Slot
    mapping: Mapping
    start: int
    stop: int
    # A weak reference compares and hashes like its referent; a lease must compare by identity.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


_live: set[Lease] = set()  # a weak reference calls back only if it is itself alive


@undisturbed
def _ended(lease: Lease, is_over: Callable[[], bool] = sys.is_finalizing) -> None:
    # Runs where the last view is dropped, in any thread: so only single, atomic steps.
    if is_over():  # what we need may be gone already, and the system frees all memory anyway
        return
    _live.discard(lease)
    if lease.slot.owner == os.getpid():  # not the end of a forked child's copy
        if lease.slot.retired and lease in lease.slot.leases:  # else its pages are freed, and may be used again
            lease.mapping.discard(lease.start, lease.stop)
        lease.slot.leases.discard(lease)


class HandedOut:
    """Arrays in a slot, which are recognised by their addresses when they are sent."""

    __slots__ = ("_leaves", "_mappings")

    def __init__(self) -> None:
        self._mappings: list[Mapping] = []  # more than one if the slot has grown
        self._leaves: dict[int, int] = {}

    def _lies(self, mapping: Mapping, start: int, size: int) -> None:
        if mapping not in self._mappings:
            self._mappings.append(mapping)
        self._leaves[start] = size

    def claim(self, address: int, size: int) -> int | None:
        """The offset in the slot of a leaf made by `empty`; None for any other memory. A leaf can be claimed once."""
        for mapping in self._mappings:
            start = address - mapping.address
            if self._leaves.get(start) == size and start + size <= mapping.size:
                del self._leaves[start]
                return start
        return None


class Writer(HandedOut):
    """Hands out memory in a slot for the leaves of one batch, one after another.

    `leased` is true for arrays that go to the user directly (threads, in-process), and false in a worker process: there
    the main process makes the leases.
    """

    __slots__ = ("_leased", "_slot", "end")

    def __init__(self, slot: Slot, leased: bool) -> None:
        super().__init__()
        self._slot = slot
        self._leased = leased
        self.end = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An uninitialised array: in the slot if it is large, else in ordinary memory."""
        dtype = np.dtype(dtype)  # users write np.float32, as np.empty allows
        size = prod(shape) * dtype.itemsize
        if size < SMALL_LEAF or dtype.hasobject:
            return np.empty(shape, dtype)
        start, mapping = self.reserve(size)
        self._lies(mapping, start, size)
        buffer = self._slot.lease(start, size) if self._leased else mapping.view(start, size)
        return np.frombuffer(buffer, np.uint8).view(dtype).reshape(shape)

    def reserve(self, size: int) -> tuple[int, Mapping]:
        """Take `size` bytes of the slot, starting at a page boundary, so that each leaf can be freed alone."""
        start = to_page(self.end)
        mapping = self._slot.room(start + size)
        self.end = start + size
        return start, mapping


class SlotPool:
    """All slots of one loader."""

    def __init__(self) -> None:
        self.segment = Segment()
        self._lock = threading.RLock()  # the garbage collector may close the pool in a thread that holds it
        self._free: list[Slot] = []
        self._small: list[Slot] = []  # free small slots
        self._small_leased: list[Slot] = []  # small slots of pieces that wait to be joined, not held by the user
        self._out: set[Slot] = set()
        self._leased: list[Slot] = []
        self._retired: list[Slot] = []
        self._sweep_at = 64
        self._spare_numbers: list[int] = []
        self._numbers = JOB_SLOT + 1
        self.returned: deque[Slot] = deque()
        """Joint slots (arena.joint) that no worker fills any more."""
        self._closed = False
        self.spoiled = False
        """Was an epoch ended by an error, such as Ctrl-C, in the middle of any step? Then no other epoch uses this."""
        self._owner = os.getpid()

    def take(self, small: bool = False) -> Slot:
        """A free slot: the one freed last, whose pages are warm, or a new one.

        Small slots are for pieces of batches. There are many of them, and a slot never shrinks: if whole batches were
        sometimes made in them, each would grow to the size of a batch.
        """
        with self._lock:
            self._collect()
            free = self._small if small else self._free
            slot = free.pop() if free else self._new(small)
            self._out.add(slot)
            return slot

    def put(self, slot: Slot) -> None:
        """The slot's batch is delivered or discarded: the slot is free now, or when its leases have ended."""
        with self._lock:
            self._put(slot)

    # A slot leaves one list before it enters the next: if Ctrl-C comes in between, it is lost to the pool, and never in
    # two lists at once, where two batches would get it.

    def _put(self, slot: Slot) -> None:
        if slot not in self._out:  # it was out when its epoch ended, or is put back a second time
            return
        self._out.discard(slot)
        if self._closed:
            slot.retire()
        elif slot.leases:
            (self._small_leased if slot.small else self._leased).append(slot)
        else:
            (self._small if slot.small else self._free).append(slot)

    def give_back_small(self) -> None:
        """No batch is in pieces any more: release the memory of free small slots."""
        if self.inherited:  # see close
            return
        with self._lock:
            self._collect()
            small, self._small = self._small, []
            for slot in small:
                slot.retire()
            self._spare_numbers.extend(slot.id for slot in small)

    def occupancy(self) -> tuple[int, int, int]:
        """How many slots are being filled or delivered, are held by the user, and are free."""
        with self._lock:
            self._collect()
            return len(self._out) + len(self._small_leased), len(self._leased), len(self._free) + len(self._small)

    @property
    def crowded(self) -> bool:
        """Are so many batches kept that further ones should be copied out?"""
        return len(mappings) >= MAX_MAPPED

    @property
    def inherited(self) -> bool:
        """Is this a forked child's copy? Then its parent and siblings use the same memory, even if it looks free."""
        return self._owner != os.getpid()

    @property
    def is_untouched(self) -> bool:
        """Has it never given out a slot?"""
        return self._numbers == JOB_SLOT + 1 and not self._closed

    def rest(self, most: int) -> bool:
        """An epoch is over: is anything left that is worth keeping, in at most `most` bytes?

        Slots that are still out are never used again: somebody may still write to them, or put them back. Of those that
        the user holds, the latest two stay whole (a loop's variable holds its last batch); of the others all is freed
        but what the user holds.
        """
        if self.inherited or self._closed or self.spoiled:
            return False
        with self._lock:
            self._collect()
            out, self._out = self._out, set()
            leased, self._leased = self._leased[:-LATEST], self._leased[-LATEST:]
            for slot in (*out, *leased):
                slot.retire()
            self._retired.extend(leased)
            self.give_back_small()
            return bool(self._free or self._leased) and self.segment.used() <= most

    def close(self) -> None:
        """Release everything except what the user still holds."""
        if self.inherited:  # the memory is the parent's; and a thread that exists only there may hold the lock
            self.segment.close()
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for slot in (*self._free, *self._small, *self._leased, *self._small_leased, *self._out):
                slot.retire()
            self._free, self._small, self._leased, self._small_leased, self._retired = [], [], [], [], []
            self.segment.close()

    def _collect(self) -> None:
        while self.returned:
            self._put(self.returned.popleft())
        if self._leased:
            self._leased, ended = _parted(self._leased)
            self._free.extend(ended)
        if self._small_leased:
            self._small_leased, ended = _parted(self._small_leased)
            self._small.extend(ended)

    def _new(self, small: bool) -> Slot:
        while len(self._leased) > MAX_LEASED:
            oldest = self._leased.pop(0)
            oldest.retire()
            self._retired.append(oldest)
        if len(self._retired) > self._sweep_at:
            self._sweep()
        if self._spare_numbers:
            return Slot(self.segment, self._spare_numbers.pop(), small)
        self._numbers += 1
        return Slot(self.segment, self._numbers - 1, small)

    def _sweep(self) -> None:
        # Only when the list has doubled: if the user keeps everything, a scan per batch would be too slow.
        self._retired, ended = _parted(self._retired)
        for slot in ended:
            # If a leaf ended while its slot was being retired, neither of the two may have freed its pages.
            self.segment.free(slot.id, 0, STRIDE)
            self._spare_numbers.append(slot.id)
        self._sweep_at = 2 * len(self._retired) + 64


def _parted(slots: list[Slot]) -> tuple[list[Slot], list[Slot]]:
    """The slots that still have leases, and those whose leases have ended. Both lists are new."""
    ended = {slot for slot in slots if not slot.leases}
    return [slot for slot in slots if slot not in ended], list(ended)


class LocalMemory:
    """Memory for batches that are made and used in one process: a slot is taken only when a leaf is large.

    If the loop itself makes the batches (`prefers_ordinary`), most large leaves are in ordinary memory, too: the C
    library gives a loop that drops its batches the same memory again.
    """

    def __init__(self, pool: SlotPool | None, small: bool = False, prefers_ordinary: bool = False) -> None:
        self._pool = pool
        self._small = small
        self._prefers_ordinary = prefers_ordinary
        self.slot: Slot | None = None
        """The slot of the batch that is being made, if it has a large leaf."""
        self._writer: Writer | None = None

    def gives_ordinary(self, size: int) -> bool:
        """Is the memory that it gives for a large leaf of that size ordinary memory? Raises if there is too little."""
        return self._prefers_ordinary and may_give(size)

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An uninitialised array that the user may keep."""
        size = prod(shape) * np.dtype(dtype).itemsize
        if size < SMALL_LEAF or self.gives_ordinary(size):
            try:
                return np.empty(shape, dtype)
            except MemoryError:
                raise refused(size) from None
        if self._writer is None:
            if not self._may_use_slots():
                return np.empty(shape, dtype)
            assert self._pool is not None
            self.slot = self._pool.take(self._small)
            self._writer = Writer(self.slot, leased=True)
        return self._writer.empty(shape, dtype)

    def _may_use_slots(self) -> bool:
        return self._pool is not None and not self._pool.crowded and not self._pool.inherited

    def finish(self) -> None:
        """The batch is made; its slot becomes free when its arrays no longer exist."""
        if self._pool is not None and self.slot is not None:
            slot, self.slot, self._writer = self.slot, None, None
            self._pool.put(slot)
