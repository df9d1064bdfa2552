"""Writes a batch of any shape into a slot, and reads it back in another process.

Takes: any picklable object. Gives: a `Packed` (where in the slot it is) and, on the other side, the object with its
large arrays as views on the slot's memory.
Promises: an array already in the slot is not copied; any other large array is copied into it once; small arrays stay
inside the pickle. What cannot be pickled raises here, in the caller.
Not its job: who owns the slot (slots), what the object means (workers).
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from feedline.arena.joint import Joint, RowMemory
from feedline.arena.slots import Slot, SlotPool, Writer
from feedline.datasets import SMALL_LEAF, Empty
from feedline.messages import sent_by_value

Reducers = Mapping[type, Callable[[Any, Empty], Any]]
"""How a framework's arrays are pickled: like `__reduce__`, with the bytes as one PickleBuffer."""


NONE: Reducers = MappingProxyType({})


class Packed(NamedTuple):
    """Where an object's head is in its slot, and the slot's capacity."""

    start: int
    size: int
    capacity: int


def pack(
    value: Any, slot: Slot, writer: Writer, reducers: Reducers = NONE, elsewhere: RowMemory | None = None
) -> Packed:
    """Write an object into the slot that `writer` has been filling. Rows in a joint slot stay there."""
    leaves: list[int] = []

    def out_of_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < SMALL_LEAF:
            return True
        leaves.append(_place(raw, writer, elsewhere))
        leaves.append(raw.nbytes)
        return False

    stream = io.BytesIO()
    pickler = sent_by_value.pickler(stream, out_of_band)
    pickler.dispatch_table = _DispatchTable(writer, reducers)
    pickler.dump(value)
    head = struct.pack(f"<q{len(leaves)}q", len(leaves), *leaves) + stream.getbuffer()
    start, mapping = writer.reserve(len(head))
    mapping.view(start, len(head))[:] = head
    return Packed(start, len(head), slot.capacity)


def unpack(packed: Packed, slot: Slot, pool: SlotPool, joint: Joint | None = None) -> Any:
    """The object, with its large arrays leased from the slot (or copied out if the user keeps very many)."""
    slot.capacity = max(slot.capacity, packed.capacity)
    head = slot.mapped(packed.start + packed.size).view(packed.start, packed.size)
    (count,) = struct.unpack_from("<q", head)
    table = struct.unpack_from(f"<{count}q", head, 8)
    buffers = [_leaf(slot, pool, joint, table[i], table[i + 1]) for i in range(0, count, 2)]
    return pickle.loads(head[8 + 8 * count :], buffers=buffers)


def _leaf(slot: Slot, pool: SlotPool, joint: Joint | None, start: int, size: int) -> Any:
    if start < 0:
        assert joint is not None
        return joint.view(-1 - start, size)
    if pool.crowded:
        return bytearray(slot.mapped(start + size).view(start, size))
    return slot.lease(start, size)


def _place(raw: memoryview, writer: Writer, elsewhere: RowMemory | None) -> int:
    source = np.frombuffer(raw, np.uint8)
    if elsewhere is not None and (place := elsewhere.claim(source.ctypes.data, raw.nbytes)) is not None:
        return -1 - place  # negative: in the joint slot, not in this one
    start = writer.claim(source.ctypes.data, raw.nbytes)
    if start is None:
        start, mapping = writer.reserve(raw.nbytes)
        np.copyto(np.frombuffer(mapping.view(start, raw.nbytes), np.uint8), source)
    return start


class _DispatchTable(dict[type, Callable[[Any], Any]]):
    """copyreg's table, plus arrays: large ones go out of band, and all are writable on the other side."""

    def __init__(self, writer: Writer, reducers: Reducers) -> None:
        super().__init__(copyreg.dispatch_table)
        for kind, reducer in reducers.items():
            self[kind] = partial(_reduced, reducer, writer)
        self[np.ndarray] = lambda array: _reduce_array(array, writer)
        self[np.memmap] = lambda array: _reduce_array(array.view(np.ndarray), writer)


def _reduced(reducer: Callable[[Any, Empty], Any], writer: Writer, value: Any) -> Any:
    return reducer(value, writer.empty)


def _reduce_array(array: np.ndarray[Any, Any], writer: Writer) -> Any:
    if array.dtype.hasobject:
        return array.__reduce_ex__(5)
    if not (array.flags.forc and array.flags.writeable):
        placed = writer.empty(array.shape, array.dtype)
        np.copyto(placed, array)
        array = placed
    if array.nbytes < SMALL_LEAF:
        return _small(array)
    # As bytes, because NumPy keeps types without a buffer format (dates, foreign number types) inside the pickle.
    order: Literal["C", "F"] = "C" if array.flags.c_contiguous else "F"
    raw: Any = array.reshape(-1, order=order).view(np.uint8)
    return _array_from, (pickle.PickleBuffer(raw), array.dtype, array.shape, order)


def _small(array: np.ndarray[Any, Any]) -> Any:
    # NumPy would pickle the dtype as an object, which takes longer than everything else in a small batch.
    if array.dtype.isbuiltin == 1 and array.flags.c_contiguous:
        return _small_array_from, (bytearray(array.data), array.dtype.str, array.shape)
    return array.__reduce_ex__(5)


def _small_array_from(raw: bytearray, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    return np.frombuffer(raw, dtype).reshape(shape)


def _array_from(raw: Any, dtype: np.dtype[Any], shape: tuple[int, ...], order: Literal["C", "F"]) -> npt.NDArray[Any]:
    return np.frombuffer(raw, dtype).reshape(shape, order=order)
