"""Any picklable tree gets into a slot and out again: equal, writable, shared with nobody, copied once at most."""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline.arena import slots
from feedline.arena.packing import pack, unpack
from feedline.arena.segment import PAGE, mappings, to_page
from feedline.arena.slots import Slot, SlotPool, Writer
from feedline.datasets import SMALL_LEAF
from feedline.errors import MemoryShortage

LARGE = np.arange(3 * SMALL_LEAF, dtype=np.uint8)
Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Record:
    image: Any
    name: str


class Courier:
    """A worker process in small: packs with a slot object of its own, unpacks with the pool's."""

    def __init__(self) -> None:
        self.pool = SlotPool()
        self.here = self.pool.take()
        self.there = Slot(self.pool.segment, self.here.id)
        self.writer = Writer(self.there, leased=False)

    def carry(self, value: Any) -> Any:
        packed = pack(value, self.there, self.writer)
        return unpack(packed, self.here, self.pool)

    def next(self) -> None:
        self.pool.put(self.here)
        self.here = self.pool.take()
        self.there = Slot(self.pool.segment, self.here.id)
        self.there.capacity = self.here.capacity
        self.writer = Writer(self.there, leased=False)

    def close(self) -> None:
        self.pool.close()
        del self.here, self.there, self.writer


@pytest.fixture
def courier() -> Iterator[Courier]:
    made = Courier()
    yield made
    made.close()


def carried(value: Any) -> Any:
    made = Courier()
    try:
        return made.carry(value)
    finally:
        made.close()


# Any tree

DTYPES = [
    *("u1", "?", "<i2", ">i4", "i8", "f2", "<f4", ">f8", "c16", "M8[ns]", "m8[D]", "S5", "U3", "V6"),
    np.dtype([("x", "<f4"), ("y", "u1", (2, 3))]),
    np.dtype({"names": ["a", "b"], "formats": ["i8", "u1"], "offsets": [8, 3], "itemsize": 24}),
    np.dtype("f8", metadata={"unit": "m"}),
]
SHAPES = [(), (0,), (5, 0, 3), (1,), (7,), (3, 4), (2, 3, 2), (30_011,), (301, 97), (41, 3, 257)]
LAYOUTS = ["C", "F", "every second", "backwards", "transposed", "read-only", "broadcast", "unaligned", "inner"]


def make_array(dtype: Any, shape: tuple[int, ...], layout: str, seed: int) -> np.ndarray:
    dtype = np.dtype(dtype)
    count = math.prod(shape) * dtype.itemsize
    raw = np.random.default_rng(seed).integers(0, 2 if dtype.kind == "b" else 128, count, np.uint8)
    if dtype.kind == "U":
        raw = raw.view("<u4").__mod__(128).astype("<u4").view(np.uint8) if count else raw
    array = raw.view(dtype).reshape(shape) if count else np.zeros(shape, dtype)
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "every second" and array.ndim:
        return np.repeat(array, 2, axis=0)[::2]
    if layout == "backwards" and array.ndim:
        return array[::-1]
    if layout == "transposed":
        return array.T
    if layout == "read-only":
        array.flags.writeable = False
    if layout == "broadcast" and array.ndim and len(array):
        return np.broadcast_to(array[:1], array.shape)
    if layout == "unaligned" and count:
        return np.frombuffer(b"\0" + array.tobytes(), dtype, offset=1).reshape(shape)
    if layout == "inner" and array.ndim == 2:
        return array[:, 1:-1]
    return array


arrays = st.builds(
    make_array, st.sampled_from(DTYPES), st.sampled_from(SHAPES), st.sampled_from(LAYOUTS), st.integers(0, 1000)
)
odd_arrays = st.sampled_from(
    [
        np.array([None, "x", {"y": 1}, LARGE], object),
        np.array([1, "x"] * 4500, object),
        np.array([(1, "x")] * 12_000, [("n", "i4"), ("o", object)])[::2],
        np.ma.masked_array(LARGE, LARGE > 7),
        np.ma.masked_array([1.5, 2.5], [True, False], fill_value=-1),
        np.array([(1, "a"), (2, None)], dtype=[("n", "i4"), ("o", object)]),
        np.rec.array([(1, 2.5)], dtype=[("n", "i4"), ("x", "f8")]),
        np.array(["long " * 9000, "short", "", *["text"] * 5000], dtype=np.dtypes.StringDType())
        if hasattr(np.dtypes, "StringDType")
        else np.zeros(1),
        np.float32(2.5),
        np.datetime64("2024-02-29"),
        np.array((1, 2), dtype=[("a", "i4"), ("b", "f8")])[()],
    ]
)
plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=9)
    | st.sampled_from([b"x" * 200_000, bytearray(b"y" * 100_000), "ü" * 80_000, Fraction(1, 3), range(7), 1j, ...])
)
trees = st.recursive(
    arrays | odd_arrays | plain,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(OrderedDict)
        | st.builds(Pair, inner, inner)
        | st.builds(Record, inner, st.text(max_size=3))
    ),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ma.MaskedArray):
        return same(one.data, other.data) and same(np.ma.getmaskarray(one), np.ma.getmaskarray(other))
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype.hasobject:
            return same(one.tolist(), other.tolist())
        if one.dtype.names:  # what lies between the fields need not travel
            return all(same(np.asarray(one[name]), np.asarray(other[name])) for name in one.dtype.names)
        return one.tobytes() == other.tobytes()
    if isinstance(one, np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Record):
        return same(one.image, other.image) and one.name == other.name
    return bool(one == other)


def arrays_in(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, np.ndarray):
        return [tree, *(arrays_in(tree.tolist()) if tree.dtype == object else ())]
    if isinstance(tree, dict):
        return arrays_in(list(tree.values()))
    if isinstance(tree, Record):
        return arrays_in(tree.image)
    if isinstance(tree, (list, tuple)):
        return [array for part in tree for array in arrays_in(part)]
    return []


@given(trees)
@settings(max_examples=few(200))
def test_any_tree_comes_out_as_it_went_in(tree: Any) -> None:
    assert same(tree, carried(tree))


@given(st.lists(arrays | odd_arrays, min_size=1, max_size=5))
@settings(max_examples=few(100))
def test_what_comes_out_is_writable_and_shares_memory_with_nothing(tree: list[Any]) -> None:
    out = carried(tree)
    found = {id(array): array for array in arrays_in(out)}.values()
    for array in found:
        assert array.flags.writeable
        assert not any(np.may_share_memory(array, source) for source in arrays_in(tree))
    for place, array in enumerate(found):
        assert not any(np.may_share_memory(array, other) for other in list(found)[:place])


def test_dtype_metadata_and_fill_values_travel() -> None:
    large = np.zeros(SMALL_LEAF, np.dtype("f8", metadata={"unit": "m"}))
    plainly = pickle.loads(pickle.dumps(large, 5))
    assert carried(large).dtype.metadata == plainly.dtype.metadata
    assert carried(np.ma.masked_array(LARGE, LARGE > 7, fill_value=9)).fill_value == 9


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f4", "M8[s]", "S9", [("x", "u1"), ("y", "f8")]])
def test_memory_order_is_kept(order: Any, dtype: Any) -> None:
    array = np.asarray(np.zeros((300, 301), dtype), order=order)
    out = carried(array)
    assert out.flags.c_contiguous == (order == "C")
    assert out.flags.f_contiguous == (order == "F")


def test_a_mapped_file_comes_out_as_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", LARGE)
    mapped = np.load(tmp_path / "data.npy", mmap_mode="r")
    for part in (mapped, mapped[5:20], mapped[::2]):
        out = carried(part)
        assert type(out) is np.ndarray
        assert out.flags.writeable
        assert (out == part).all()


# One array in several places


def test_the_same_array_twice_is_one_array_again(courier: Courier) -> None:
    for array in (LARGE.copy(), np.zeros(3), courier.writer.empty((SMALL_LEAF,), np.dtype("u1"))):
        before = courier.writer.end
        out = courier.carry({"a": array, "b": [array]})
        assert out["a"] is out["b"][0]
        assert courier.writer.end - before <= to_page(array.nbytes) + 2 * PAGE


def test_overlapping_views_of_a_slots_array_come_out_apart(courier: Courier) -> None:
    made = courier.writer.empty((4, SMALL_LEAF), np.dtype("u1"))
    made[:] = np.arange(4)[:, None]
    whole, again, half, middle, columns = courier.carry((made, made[:], made[:2], made[1:3], made.T))
    for array, expected in ((whole, made), (again, made), (half, made[:2]), (middle, made[1:3]), (columns, made.T)):
        assert (array == expected).all()
    outs = (whole, again, half, middle, columns)
    for number, array in enumerate(outs):
        array[...] = 100 + number
    assert all((array == 100 + number).all() for number, array in enumerate(outs))


def test_only_part_of_a_slots_array_is_delivered(courier: Courier) -> None:
    made = courier.writer.empty((4, SMALL_LEAF), np.dtype("u1"))
    made[:] = np.arange(4)[:, None]
    last, small = courier.carry((made[3:], made[2, 5:9]))
    assert last.shape == (1, SMALL_LEAF)
    assert (last == 3).all()
    assert (small == 2).all()


# No needless copies


def test_an_array_made_in_the_slot_is_not_copied(courier: Courier) -> None:
    first = courier.writer.empty((300, 301), np.dtype("f4"))
    second = courier.writer.empty((SMALL_LEAF * 40,), np.dtype("u1"))  # the slot grows between the two
    third = courier.writer.empty((300, 301), np.dtype("M8[s]"))
    sources = {"a": first, "b": [second, third.T]}
    end = courier.writer.end
    out = courier.carry(sources)
    assert courier.writer.end - end <= 2 * PAGE
    first[:], second[:], third[:] = 1, 2, 3  # what is written now is seen on the other side: it is the same memory
    assert (out["a"] == 1).all()
    assert (out["b"][0] == 2).all()
    assert (out["b"][1] == np.datetime64(3, "s")).all()


def test_the_address_is_the_same_when_one_slot_object_serves_both_sides(courier: Courier) -> None:
    writer = Writer(courier.here, leased=False)
    courier.here.room(SMALL_LEAF * 9)
    made = writer.empty((SMALL_LEAF * 4,), np.dtype("u1"))
    out = unpack(pack([made], courier.here, writer), courier.here, courier.pool)
    assert out[0].ctypes.data == made.ctypes.data


@pytest.mark.parametrize("dtype", ["f4", "M8[s]", np.dtype([("x", "f4"), ("t", "M8[s]")])])
def test_another_large_array_is_copied_once_and_out_of_band(courier: Courier, dtype: Any) -> None:
    for layout in LAYOUTS:
        array = make_array(dtype, (1000, 101), layout, 1)
        out = courier.carry(array)
        assert courier.writer.end <= to_page(array.nbytes) + PAGE, layout
        assert len(courier.here.leases) == 1, layout
        assert same(out, array), layout
        del out
        assert not courier.here.leases
        courier.next()


def test_small_arrays_travel_inside_the_pickle(courier: Courier) -> None:
    out = courier.carry([np.zeros(SMALL_LEAF - 1, np.uint8), np.arange(5)])
    assert not courier.here.leases
    assert all(array.flags.writeable for array in out)


def test_a_buffer_of_a_users_own_class_travels_too(courier: Courier) -> None:
    out = courier.carry([Blob(b"z" * 100_000), Blob(b"short")])
    assert [blob.data for blob in out] == [b"z" * 100_000, b"short"]
    assert not courier.here.leases


class Blob:
    def __init__(self, data: Any) -> None:
        self.data = bytes(data)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Blob, (pickle.PickleBuffer(self.data),)


# What goes wrong


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ZeroDivisionError("not me")


class Undoable:
    """Pickles, but fails to be rebuilt."""

    def __reduce__(self) -> Any:
        return int, ("not a number",)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (lambda: 0, (AttributeError, pickle.PicklingError)),
        ((i for i in "ab"), TypeError),
        (Unpicklable(), ZeroDivisionError),
    ],
)
def test_what_cannot_be_pickled_raises_and_the_slot_can_be_used_again(courier: Courier, value: Any, error: Any) -> None:
    with pytest.raises(error):
        courier.carry([LARGE, value])
    courier.writer = Writer(courier.there, leased=False)
    assert same(courier.carry([LARGE, "fine"]), [LARGE, "fine"])


def test_what_cannot_be_rebuilt_raises_and_holds_nothing(courier: Courier) -> None:
    with pytest.raises(ValueError, match="not a number"):
        courier.carry([LARGE, Undoable()])
    assert not courier.here.leases


def test_a_shortage_while_packing_can_still_be_told_in_the_slot(
    courier: Courier, monkeypatch: pytest.MonkeyPatch
) -> None:
    courier.here.room(100)  # as the parent does for the task
    courier.there.capacity = courier.here.capacity

    def refuse(fd: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", refuse)
    with pytest.raises(MemoryShortage):
        courier.carry(np.concatenate([LARGE, LARGE]))
    courier.writer = Writer(courier.there, leased=False)
    traceback = 'File "somewhere.py", line 1, in somewhere\n' * 500
    assert courier.carry(traceback) == traceback


# Slots used again and again


def test_this_side_learns_how_far_the_other_let_the_slot_grow(courier: Courier) -> None:
    for factor in (1, 5, 3, 20):
        courier.carry(np.concatenate([LARGE] * factor))
        assert courier.here.capacity == courier.there.capacity >= factor * LARGE.nbytes


@given(st.lists(st.lists(st.integers(1, 4 * SMALL_LEAF), max_size=4), min_size=3, max_size=12), st.data())
@settings(max_examples=few(40))
def test_batches_of_changing_size_through_few_slots(batches: list[list[int]], data: st.DataObject) -> None:
    courier = Courier()
    kept: list[tuple[np.ndarray, int]] = []
    try:
        for number, sizes in enumerate(batches):
            leaves = [courier.writer.empty((size,), np.dtype("u1")) for size in sizes]
            for leaf in leaves:
                leaf[:] = number
            out = courier.carry(leaves)
            kept.extend((leaf, number) for leaf in out if data.draw(st.booleans()))
            courier.next()
            assert all((leaf == value).all() for leaf, value in kept)
            if kept and data.draw(st.booleans()):
                kept.pop()
    finally:
        courier.close()
    assert all((leaf == value).all() for leaf, value in kept)


def test_when_very_many_are_kept_further_ones_are_copied_out(courier: Courier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MAX_MAPPED", 30)
    kept = []
    for number in range(80):
        kept.append(courier.carry([np.full(SMALL_LEAF, number % 250, np.uint8), np.zeros((300, 301), order="F")]))
        courier.next()
    assert len(mappings) <= 30 + 4
    assert all((array == number % 250).all() for number, (array, _) in enumerate(kept))
    assert all(array.flags.writeable and image.flags.f_contiguous for array, image in kept)
    kept.clear()
    out = courier.carry(LARGE)
    assert courier.here.leases  # lent again, now that there is room
    assert (out == LARGE).all()
