"""One batch's slot, filled by several workers at once.

Takes: a slot, and which rows of the batch each worker makes. Gives: memory for those rows of each large leaf, at their
final place in the slot; and, once all rows are made, each leaf as a whole.
Promises: nothing is copied. Each worker computes the layout of the whole batch, leaf after leaf. If their samples have
the same shapes, all find the same layout; this is checked before anything is delivered (`LayoutsDiffer`). The slot is
not free until all workers that might still write there are done.
Not its job: who makes which rows (engine.division); small leaves, which are sent with their piece and copied.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.arena.segment import Mapping, to_page
from feedline.arena.slots import HandedOut, Slot, SlotPool
from feedline.datasets import SMALL_LEAF, Empty
from feedline.machine.finalizers import undisturbed


class LayoutsDiffer(Exception):
    """The workers' layouts of the batch differ, so the contents of the slot are useless."""


class Rows(NamedTuple):
    """What a worker has to know about its part."""

    start: int
    stop: int
    """Its rows are those from `start` to `stop`."""
    total: int
    """How many rows the batch has."""
    least: int
    """How many rows the smallest part has: all workers must agree on which leaves are large."""


class RowMemory(HandedOut):
    """Memory for the leaves of one part: rows of the batch's slot for large leaves, other memory for small ones."""

    def __init__(self, rows: Rows, room: Callable[[int], Mapping], otherwise: Empty) -> None:
        super().__init__()
        self._rows = rows
        self._room = room
        self._otherwise = otherwise
        self._end = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An uninitialised array. Its first axis, or a flat array's bytes, are assumed to be the samples in order."""
        dtype, rows = np.dtype(dtype), self._rows
        size = prod(shape) * dtype.itemsize
        each, over = divmod(size, rows.stop - rows.start)
        if over or each * rows.least < SMALL_LEAF or dtype.hasobject:
            return self._otherwise(shape, dtype)
        begin = to_page(self._end)
        mapping = self._room(begin + each * rows.total)
        self._end = begin + each * rows.total
        start = begin + each * rows.start
        self._lies(mapping, start, size)
        return np.frombuffer(mapping.view(start, size), np.uint8).view(dtype).reshape(shape)


class Joint:
    """The joint slot, in the main process. Parts that may still be written keep this object alive; nothing else does.

    The slot is taken from the pool on first use, so that threads only use slots for batches that are being made.
    """

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._mappings: list[Mapping] = []
        self._slot: Slot | None = None

    @property
    def slot(self) -> Slot:
        """The slot itself."""
        if self._slot is None:
            self._slot = self._pool.take()
        return self._slot

    def room(self, size: int) -> Mapping:
        """Memory of at least that size, for threads."""
        with self._lock:
            return self._seen(self.slot.room(size, shared=True))

    def view(self, start: int, size: int) -> memoryview:
        """What a worker process has written there. The view must not outlive this object."""
        return self._seen(self.slot.mapped(start + size)).view(start, size)

    def _seen(self, mapping: Mapping) -> Mapping:
        if mapping not in self._mappings:
            self._mappings.append(mapping)
        return mapping

    def whole(self, parts: Sequence[tuple[int, int]]) -> memoryview | None:
        """The leaf whose parts have these addresses and sizes; None if it was not made in this slot."""
        places = [self._place(*part) for part in parts]
        if all(place is None for place in places):
            return None
        expected = start = places[0]
        for place, (_, size) in zip(places, parts, strict=True):
            if start is None or place is None or place != expected:
                raise LayoutsDiffer(f"the parts of one leaf lie at {places}, and not side by side")
            expected = place + size
        assert start is not None
        return self.slot.lease(start, sum(size for _, size in parts))

    def _place(self, address: int, size: int) -> int | None:
        if size:
            for mapping in self._mappings:
                if mapping.address <= address < mapping.address + mapping.size:
                    return address - mapping.address
        return None

    @undisturbed
    def __del__(self) -> None:
        # This may run in any thread, even while the pool is locked. So only append: the pool looks there itself.
        slot, self._slot = self._slot, None
        if slot is not None:
            self._pool.returned.append(slot)
