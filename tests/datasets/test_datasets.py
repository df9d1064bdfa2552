"""Every way to read a dataset agrees with reading it one by one, and nothing read aliases the data."""

from __future__ import annotations

import gc
import itertools
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kinds import few

from feedline.datasets import (
    SMALL_LEAF,
    Array,
    ArrayDataset,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Mixture,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
    read_samples,
    reads_batches,
)

RECORD = np.dtype([("x", "<i4"), ("y", ">f8", (2,))])
DTYPES = st.sampled_from(["?", "u1", ">i4", "<i8", "f2", "f8", "c8", "M8[s]", "S3", "U2", RECORD])
LAYOUTS = ["plain", "strided", "reversed", "fortran", "read-only", "unaligned"]


def as_layout(array: Array, layout: str) -> Array:
    """The same values, lying in memory in another way."""
    if layout == "strided":
        return np.repeat(array, 2, axis=0)[::2]
    if layout == "reversed":
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "unaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
        raw[:] = np.frombuffer(array.tobytes(), np.uint8)
        return raw.view(array.dtype).reshape(array.shape)
    array = array.copy()
    array.flags.writeable = layout != "read-only"
    return array


@st.composite
def arrays(draw: st.DrawFn, length: int) -> Array:
    tail = draw(st.lists(st.integers(0, 3), max_size=2))
    dtype = np.dtype(draw(DTYPES))
    raw = draw(st.binary(min_size=1, max_size=64))
    if dtype.kind in "SU":
        values = np.resize(np.array([f"{b % 26 + 97:c}" for b in raw]).astype(dtype), (length, *tail))
    elif dtype.kind == "b":
        values = np.resize(np.frombuffer(raw, np.uint8) > 99, (length, *tail))
    else:
        count = length * int(np.prod(tail))
        values = np.frombuffer((raw * (count * dtype.itemsize + 1))[: count * dtype.itemsize], dtype)
        values = values.reshape((length, *tail))
    return as_layout(values, draw(st.sampled_from(LAYOUTS)))


@st.composite
def array_datasets(draw: st.DrawFn) -> tuple[ArrayDataset, list[int]]:
    length = draw(st.integers(0, 6))
    columns = draw(st.lists(arrays(length), min_size=1, max_size=3))
    data = (
        ArrayDataset(**{f"c{i}": c for i, c in enumerate(columns)}) if draw(st.booleans()) else ArrayDataset(*columns)
    )
    indices = draw(st.lists(st.integers(-length, length - 1), max_size=9)) if length else []
    return data, indices


def leaves(tree: Any) -> list[Any]:
    """The leaves of a tree of tuples and dicts, with keys where there are any."""
    if isinstance(tree, dict):
        return [(key, *leaves(value)) for key, value in tree.items()]
    return [leaf for value in tree for leaf in leaves(value)] if isinstance(tree, tuple) else [tree]


def same(left: Any, right: Any) -> bool:
    """Equal in structure, type, dtype, shape and bytes (so that NaN equals NaN)."""
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (tuple, list)):
        alike = type(left) is type(right) and len(left) == len(right)
        return alike and all(map(same, left, right))
    if isinstance(left, (np.ndarray, np.generic)):
        alike = type(left) is type(right) and left.dtype == right.dtype and left.shape == right.shape
        return alike and left.tobytes() == right.tobytes()
    return bool(type(left) is type(right) and left == right)


def stacked(samples: list[Any], like: Any) -> Any:
    """Default collation, in short."""
    if isinstance(like, dict):
        return {key: stacked([sample[key] for sample in samples], like[key]) for key in like}
    if isinstance(like, tuple):
        return tuple(stacked([sample[i] for sample in samples], like[i]) for i in range(len(like)))
    return np.array(samples, dtype=like.dtype).reshape(like.shape)


class Plain(Dataset[int]):
    """A user's dataset: one sample at a time, counting how often it is read."""

    def __init__(self, values: list[int]) -> None:
        self.values = values
        self.reads: list[int] = []

    def __getitem__(self, index: int) -> int:
        assert type(index) is int
        self.reads.append(index)
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)


class Fast(Plain):
    """... and one that reads many at once."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.reads.extend(indices)
        return [self.values[index] for index in indices]

    def __getitem__(self, index: int) -> int:
        return self.__getitems__([index])[0]


class Count(IterableDataset[int]):
    def __init__(self, stop: int) -> None:
        self.stop = stop

    def __iter__(self) -> Any:
        return iter(range(self.stop))


# ---------------------------------------------------------------- ArrayDataset


@given(array_datasets(), st.sampled_from([0, 1, SMALL_LEAF]))
def test_a_batch_is_the_stacked_samples(drawn: tuple[ArrayDataset, list[int]], limit: int) -> None:
    data, indices = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("feedline.datasets.reading.SMALL_LEAF", limit)
        batch = data.__getbatch__(np.array(indices, dtype=np.int64), np.empty)
        assert same(data.__getitems__(indices), [data[i] for i in indices])
    assert (batch is NotImplemented) == (not reads_batches(data))
    if batch is NotImplemented:
        assert any(a.dtype.kind in "SU" and a.ndim == 1 for a in data.arrays)
    else:
        assert same(batch, stacked([data[i] for i in indices], batch))
        own = [leaf[-1] if isinstance(leaf, tuple) else leaf for leaf in leaves(batch)]
        assert [b.dtype for b in own] == [a.dtype for a in data.arrays]
        assert [b.shape for b in own] == [(len(indices), *a.shape[1:]) for a in data.arrays]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [8, 4096])
def test_nothing_read_aliases_the_arrays(layout: str, rows: int) -> None:
    data = ArrayDataset(as_layout(np.ones((rows, 8)), layout), np.zeros(rows, RECORD))
    every = np.arange(rows)
    reads = [data[1], data[1:3], *data.__getitems__([1, 2]), data.__getbatch__(every, np.empty)]
    before = [array.tobytes() for array in data.arrays]
    for x, record in reads:
        assert not np.may_share_memory(x, data.arrays[0])
        x[...] = 7
        record["x"] = 7
    assert [array.tobytes() for array in data.arrays] == before


def test_only_large_results_are_gathered_into_the_memory_given() -> None:
    given_out: list[Array] = []

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        given_out.append(np.empty(shape, dtype))
        return given_out[-1]

    data = ArrayDataset(np.ones((300, 64)), np.arange(300))
    images, labels = data.__getbatch__(np.arange(300), empty)
    assert [out is images for out in given_out] == [True]
    assert labels.tolist() == list(range(300))
    data.__getbatch__(np.arange(SMALL_LEAF // (64 * 8) - 1), empty)
    assert len(given_out) == 1


@pytest.mark.parametrize("layout", ["plain", "strided", "fortran", "unaligned"])
@pytest.mark.parametrize("count", [3, 20_000])
def test_a_batch_never_copies_the_whole_array(layout: str, count: int) -> None:
    data = ArrayDataset(as_layout(np.zeros((100_000, 4)), layout))
    out = np.empty((count, 4))
    wanted = np.arange(count)
    tracemalloc.start()
    data.__getbatch__(wanted, lambda shape, dtype: out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # `plain` needs nothing beyond what it was given; the others gather once and copy (all: 3.2 MB).
    assert peak < (4_000 if layout == "plain" else 4_000 + out.nbytes * 1.5)


@pytest.mark.parametrize("bad", [5, -6, 10**12])
@pytest.mark.parametrize("width", [1, SMALL_LEAF])
def test_an_index_outside_is_named_with_the_length(bad: int, width: int) -> None:
    data = ArrayDataset(np.zeros((5, width), np.uint8))
    for read in (
        lambda: data[bad],
        lambda: data.__getitems__([0, bad]),
        lambda: data.__getbatch__(np.array([0, bad]), np.empty),
        lambda: Subset(data, [bad]).__getbatch__(np.array([0]), np.empty),
    ):
        with pytest.raises(IndexError, match=rf"{bad}\b.*\b5\b"):
            read()


def test_no_rows() -> None:
    data = ArrayDataset(np.zeros((0, 3)), np.zeros(0, int))
    assert len(data) == 0
    assert list(data) == []
    assert [leaf.shape for leaf in data.__getbatch__(np.empty(0, np.int64), np.empty)] == [(0, 3), (0,)]
    with pytest.raises(IndexError, match="0 is outside this ArrayDataset of length 0"):
        data.__getbatch__(np.array([0]), np.empty)


def test_objects_are_read_but_not_by_the_batch() -> None:
    things = np.array([{"a": 1}, None, "x"], dtype=object)
    data = ArrayDataset(things, [1, 2, 3])
    assert data[0][0] is things[0]
    assert [thing for thing, _ in data.__getitems__([2, 1])] == ["x", None]
    assert data.__getbatch__(np.array([0]), np.empty) is NotImplemented


@pytest.mark.parametrize("dtype", ["S1", "U1"])
def test_single_strings_are_not_read_by_the_batch_but_arrays_of_them_are(dtype: str) -> None:
    letters = np.array([["a", "b"], ["c", "d"]], dtype=dtype)
    assert ArrayDataset(letters[:, 0]).__getbatch__(np.array([0]), np.empty) is NotImplemented
    assert same(ArrayDataset(letters).__getbatch__(np.array([1]), np.empty), (letters[1:],))


def test_array_likes_and_slices() -> None:
    data = TensorDataset([[1, 2], [3, 4]], range(2))
    assert same(data[-1], (np.array([3, 4]), np.int64(1)))
    assert same(data[:1], (np.array([[1, 2]]), np.array([0])))
    assert TensorDataset is ArrayDataset


@pytest.mark.parametrize(
    ("positional", "named", "error", "says"),
    [
        ((), {}, ValueError, "at least one array"),
        (([1],), {"x": [1]}, ValueError, "not both"),
        ((np.zeros((2, 3)), np.zeros(4)), {}, ValueError, r"array 0: \(2, 3\), array 1: \(4,\)"),
        ((), {"x": [1], "y": [1, 2]}, ValueError, r"x: \(1,\), y: \(2,\)"),
        ((), {"x": 3}, ValueError, r"x \(int\) has no first axis"),
        (([1], {"a": 1}), {}, ValueError, r"array 1 \(dict\) has no first axis"),
        (([[1], [1, 2]],), {}, TypeError, r"array 0 \(list\) cannot be converted to an array"),
        ((np.ma.masked_array([1, 2], [0, 1]),), {}, TypeError, "array 0 is a masked array.*filled"),
    ],
)
def test_arrays_that_do_not_fit(positional: Any, named: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        ArrayDataset(*positional, **named)


# ---------------------------------------------------------------- pickles


def shipped(data: Any) -> tuple[Any, int, int]:
    """The dataset after a trip, the bytes in band and the bytes out of band."""
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
    size = sum(buffer.raw().nbytes for buffer in buffers)
    return pickle.loads(body, buffers=buffers), len(body), size


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_travel_out_of_band(layout: str) -> None:
    data = ArrayDataset(x=as_layout(np.arange(80_000.0).reshape(-1, 8), layout))
    data.note = "kept"  # type: ignore[attr-defined]
    for whole in (data, Subset(data, np.arange(10_000)), ConcatDataset([data]), StackDataset(data)):
        again, in_band, out_of_band = shipped(whole)
        assert in_band < 2_000
        assert out_of_band >= 640_000
        assert same(again[9], whole[9])
    again = pickle.loads(pickle.dumps(data))
    assert again.note == "kept"
    assert same(again.__getbatch__(np.array([3]), np.empty), data.__getbatch__(np.array([3]), np.empty))


@pytest.fixture
def mapped(tmp_path: Path) -> Any:
    np.arange(100_000, dtype="f4").tofile(tmp_path / "rows")
    return np.memmap(tmp_path / "rows", dtype="f4", mode="r", offset=4 * 4, shape=(24_000, 4))


@pytest.mark.parametrize("part", [slice(None), slice(3, 23_000), slice(7, 8)])
def test_a_mapped_file_stays_on_disk_and_travels_by_name(mapped: Any, part: slice) -> None:
    data = ArrayDataset(mapped[part])
    assert isinstance(data.arrays[0], np.memmap)
    again, in_band, out_of_band = shipped(data)
    assert (in_band < 1_000, out_of_band) == (True, 0)
    assert isinstance(again.arrays[0], np.memmap)
    assert same(np.asarray(again.arrays[0]), np.asarray(mapped[part]))
    for x in (data[0][0], data.__getitems__([0])[0][0], data.__getbatch__(np.array([0]), np.empty)[0]):
        assert type(x) is np.ndarray
        x[...] = 0


def other_file(mapped: Any) -> Any:
    path = Path(mapped.filename)
    path.unlink()
    np.zeros(100_000, dtype="f4").tofile(path)
    return mapped


def other_end(mapped: Any) -> Any:
    Path(mapped.filename).unlink()
    np.minimum(np.arange(100_000, dtype="f4"), 50_000).tofile(mapped.filename)
    return mapped


def no_file(mapped: Any) -> Any:
    Path(mapped.filename).unlink()
    return mapped


def private_changes(mapped: Any) -> Any:
    mine = np.memmap(mapped.filename, dtype="f4", mode="c", shape=(100, 4))
    mine[50] = -1
    return mine


@pytest.mark.parametrize(
    "change",
    [other_file, other_end, no_file, private_changes, lambda m: m[::2], lambda m: m[:0], lambda m: m + 1],
)
def test_a_mapped_file_that_cannot_be_opened_again_travels_as_an_array(mapped: Any, change: Any) -> None:
    array = change(mapped)
    again, in_band, out_of_band = shipped(ArrayDataset(array))
    assert (in_band < 1_000, out_of_band) == (True, array.nbytes)
    assert same(again.arrays[0], np.ascontiguousarray(array.view(np.ndarray)))


# ---------------------------------------------------------------- subclasses are never bypassed


class Doubled(ArrayDataset):
    def __getitem__(self, index: int) -> Any:
        return tuple(2 * x for x in super().__getitem__(index))


class Negated:
    def __getitem__(self, index: int) -> Any:
        return tuple(-x for x in super().__getitem__(index))  # type: ignore[misc]


class NegatedArrays(Negated, ArrayDataset):
    pass


class BatchesToo(ArrayDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)

    def __getbatch__(self, indices: Any, empty: Any) -> Any:
        return "mine"


class OneByOnePool(Dataset[int]):
    """A user's base class whose __getitems__ builds on __getitem__."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [100 + self[index] for index in indices]


class Pooled(OneByOnePool):
    def __getitem__(self, index: int) -> int:
        return index


class Forwarding:
    """A transform around a dataset that forwards every unknown attribute to it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __getitem__(self, index: int) -> Any:
        return ("transformed", self.inner[index])


@pytest.mark.parametrize(("cls", "factor"), [(Doubled, 2), (NegatedArrays, -1)])
def test_an_overridden_getitem_is_what_every_way_reads(cls: type[ArrayDataset], factor: int) -> None:
    data = cls([1, 2, 3])
    assert data.__getitems__([2, 0]) == [(3 * factor,), (1 * factor,)]
    assert data.__getbatch__(np.array([0]), np.empty) is NotImplemented
    assert not reads_batches(data)
    assert Subset(data, [2]).__getbatch__(np.array([0]), np.empty) is NotImplemented
    assert Subset(data, [2]).__getitems__([0]) == [(3 * factor,)]


def test_own_faster_ways_are_kept() -> None:
    assert reads_batches(BatchesToo([1]))
    assert BatchesToo([1]).__getbatch__(None, None) == "mine"
    assert read_samples(Pooled(), [1, 2]) == [101, 102]


def test_forwarded_attributes_are_not_mistaken_for_ways_to_read() -> None:
    wrapped = Forwarding(ArrayDataset([1, 2]))
    assert read_samples(wrapped, [1]) == [("transformed", (2,))]
    assert not reads_batches(wrapped)


# ---------------------------------------------------------------- Subset


@given(st.data())
def test_a_subset_is_its_indices(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=8))
    indices = data.draw(st.lists(st.integers(-len(values), len(values) - 1), max_size=8))
    expected = [values[index] for index in indices]
    asked = data.draw(st.lists(st.integers(-len(indices), len(indices) - 1), max_size=9)) if indices else []
    for dataset in (Plain(values), Fast(values), values):
        subset = Subset(dataset, indices)
        assert len(subset) == len(expected)
        assert list(subset) == expected
        assert subset.__getitems__(asked) == [subset[i] for i in asked] == [expected[i] for i in asked]
        assert subset.__getbatch__(np.array(asked, dtype=np.int64), np.empty) is NotImplemented
    batch = Subset(ArrayDataset(values), indices).__getbatch__(np.array(asked, dtype=np.int64), np.empty)
    assert same(batch, (np.array([expected[i] for i in asked], dtype=np.int64),))


def test_subset_indices_are_kept_compactly_and_apart() -> None:
    for dtype in (np.uint8, np.int64):
        indices = np.array([2, 1], dtype=dtype)
        subset = Subset("abc", indices)
        indices[0] = 0
        assert list(subset) == ["c", "b"]
        assert isinstance(subset.indices, np.ndarray)
        assert subset.indices.dtype == np.int64
    assert Subset("abc", []).indices.dtype == np.int64  # type: ignore[union-attr]
    keyed: Any = {"left": 1, "right": 2}
    assert list(Subset(keyed, ["right", "left"])) == [2, 1]  # type: ignore[list-item]
    assert Subset(keyed, ["right"]).__getbatch__(np.array([0]), np.empty) is NotImplemented  # type: ignore[list-item]


@pytest.mark.parametrize("index", [2, -3])
def test_subset_names_an_index_outside(index: int) -> None:
    subset = Subset(ArrayDataset([1, 2, 3]), [0, 1])
    for read in (lambda: subset[index], lambda: subset.__getitems__([index])):
        with pytest.raises(IndexError, match=f"index {index} is outside this Subset of length 2"):
            read()
    with pytest.raises(IndexError, match=f"{index}.*2"):
        subset.__getbatch__(np.array([index]), np.empty)


@pytest.mark.parametrize(
    ("indices", "says"),
    [
        ([True, False], "indices is a mask.*flatnonzero"),
        (np.array([True]), "indices is a mask"),
        (np.array([1.0]), "indices.*float64"),
        (np.array([[1]]), r"indices.*\(1, 1\)"),
    ],
)
def test_subset_indices_that_are_none(indices: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Subset("abc", indices)


# ---------------------------------------------------------------- Concat, Chain, Stack


@settings(max_examples=few(100))
@given(
    data=array_datasets(),
    cuts=st.lists(st.integers(0, 6), max_size=3),
    limit=st.sampled_from([0, 1, SMALL_LEAF]),
    with_source=st.booleans(),
)
def test_joined_arrays_are_read_by_the_batch_as_one_by_one(
    data: tuple[ArrayDataset, list[int]], cuts: list[int], limit: int, with_source: bool
) -> None:
    whole, indices = data
    ends = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    parts: list[Any] = []
    for start, end in itertools.pairwise(ends):
        columns = [array[start:end] for array in whole.arrays]
        parts.append(
            ArrayDataset(**dict(zip(whole.names, columns, strict=True))) if whole.names else ArrayDataset(*columns)
        )
    parts = [part for part in parts if len(part)] or [whole]
    joined: Any = ConcatDataset(parts)
    if len(whole) and with_source:
        joined = Mixture({str(number): part for number, part in enumerate(parts)}, with_source=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("feedline.datasets.reading.SMALL_LEAF", limit)
        patch.setattr("feedline.datasets.merging.SMALL_LEAF", limit)
        batch = joined.__getbatch__(np.array(indices, np.int64), np.empty)
    if not indices or not reads_batches(whole):
        assert batch is NotImplemented
        return
    if len(whole) and with_source:
        batch, numbers = batch
        assert numbers.tolist() == [joined[index][1] for index in indices]
    assert same(batch, whole.__getbatch__(np.array(indices), np.empty))


@pytest.mark.parametrize(
    "other",
    [
        ArrayDataset(np.zeros((2, 4), np.int32)),
        ArrayDataset(np.zeros((2, 3), np.int64)),
        ArrayDataset(np.zeros((2, 3), np.int32), np.zeros(2)),
        ArrayDataset(x=np.zeros((2, 3), np.int32)),
        ArrayDataset(np.array(["a", "b"])),
        [np.zeros(3, np.int32)] * 2,
    ],
)
def test_joined_arrays_of_different_kinds_are_left_to_collation(other: Any) -> None:
    joined = ConcatDataset([ArrayDataset(np.ones((2, 3), np.int32)), other])
    assert joined.__getbatch__(np.array([0, 3]), np.empty) is NotImplemented


def test_joined_dicts_of_different_fields_are_left_to_collation() -> None:
    joined = ConcatDataset([ArrayDataset(x=np.zeros(2)), ArrayDataset(x=np.zeros(2), y=np.zeros(2))])
    assert joined.__getbatch__(np.array([0, 3]), np.empty) is NotImplemented


def test_a_large_joined_batch_lies_in_the_slot_once() -> None:
    asked: list[tuple[int, ...]] = []

    def empty(shape: tuple[int, ...], dtype: Any) -> Array:
        asked.append(shape)
        return np.empty(shape, dtype)

    joined = ConcatDataset([ArrayDataset(np.zeros((3, SMALL_LEAF))), ArrayDataset(np.ones((3, SMALL_LEAF)))])
    (batch,) = joined.__getbatch__(np.array([5, 0, 1]), empty)
    assert asked == [(3, SMALL_LEAF)]
    assert batch[:, 0].tolist() == [1, 0, 0]
    small = ConcatDataset([ArrayDataset(np.zeros(3)), ArrayDataset(np.zeros(3))])
    small.__getbatch__(np.array([5, 0]), empty)
    joined.__getbatch__(np.array([1, 0]), empty)
    assert asked[1:] == [(2, SMALL_LEAF)]
    with pytest.raises(IndexError, match="6 is outside this ConcatDataset of length 6"):
        joined.__getbatch__(np.array([1, 6]), empty)


@given(st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=5), st.data())
def test_concat_is_the_list_of_all(parts: list[list[int]], data: st.DataObject) -> None:
    flat = [value for part in parts for value in part]
    kinds = data.draw(st.lists(st.sampled_from([Plain, Fast, list]), min_size=len(parts), max_size=len(parts)))
    concat = ConcatDataset([kind(part) for kind, part in zip(kinds, parts, strict=True)])
    assert len(concat) == len(flat)
    assert concat.cumulative_sizes == [sum(map(len, parts[: i + 1])) for i in range(len(parts))]
    every = range(-len(flat), len(flat))
    assert [concat[i] for i in every] == [flat[i] for i in every]
    asked = data.draw(st.lists(st.sampled_from(every), max_size=9)) if flat else []
    assert concat.__getitems__(asked) == [flat[i] for i in asked]
    for bad in (len(flat), -len(flat) - 1):
        for read in (lambda bad=bad: concat[bad], lambda bad=bad: concat.__getitems__([bad])):
            with pytest.raises(IndexError, match=f"{bad} is outside this ConcatDataset of length {len(flat)}"):
                read()


def test_concat_asks_each_part_once() -> None:
    calls: list[list[int]] = []

    class Counting(Fast):
        def __getitems__(self, indices: list[int]) -> list[int]:
            calls.append(indices)
            return super().__getitems__(indices)

    concat = Counting([0, 1, 2]) + Counting([3, 4, 5])
    assert concat.__getitems__([5, 0, 3, 2]) == [5, 0, 3, 2]
    assert sorted(calls) == [[0, 2], [2, 0]]


def test_joins_refuse_what_they_cannot_join() -> None:
    with pytest.raises(ValueError, match="datasets is empty"):
        ConcatDataset([])
    with pytest.raises(TypeError, match=r"datasets\[1\] is an IterableDataset.*ChainDataset"):
        ConcatDataset([[1], Count(2)])
    with pytest.raises(TypeError, match=r"datasets\[0\] \(Pooled\) has no length: define __len__"):
        ConcatDataset([Pooled()])
    with pytest.raises(TypeError, match=r"datasets\[0\] \(ArrayDataset\) has no __iter__.*ConcatDataset"):
        ChainDataset([ArrayDataset([1])])  # type: ignore[list-item]
    with pytest.raises(NotImplementedError, match="must define __getitem__"):
        Dataset[int]()[0]
    with pytest.raises(NotImplementedError, match="must define __iter__"):
        iter(IterableDataset[int]())


def test_chain() -> None:
    chain = Count(2) + Count(3)
    assert list(chain) == list(chain) == [0, 1, 0, 1, 2]
    with pytest.raises(TypeError, match="Count"):
        len(chain)
    assert len(ChainDataset([[1, 2], [3]])) == 3
    assert list(pickle.loads(pickle.dumps(chain))) == [0, 1, 0, 1, 2]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.booleans(), st.data())
def test_stack_is_the_samples_side_by_side(values: list[int], named: bool, data: st.DataObject) -> None:
    parts = [Plain(values), Fast(values), ArrayDataset(values)]
    stack = StackDataset(**dict(zip("abc", parts, strict=True))) if named else StackDataset(*parts)
    asked = data.draw(st.lists(st.integers(-len(values), len(values) - 1), max_size=9))
    expected = [(values[i], values[i], (np.int64(values[i]),)) for i in asked]
    wanted = [dict(zip("abc", row, strict=True)) for row in expected] if named else expected
    assert same([stack[i] for i in asked], wanted)
    assert same(stack.__getitems__(asked), wanted)


@given(array_datasets(), st.booleans())
def test_a_batch_of_stacked_arrays_is_the_stacked_samples(drawn: tuple[ArrayDataset, list[int]], named: bool) -> None:
    data, indices = drawn
    extra = ArrayDataset(np.arange(len(data)))
    stack = StackDataset(a=data, b=extra) if named else StackDataset(data, extra)
    batch = stack.__getbatch__(np.array(indices, dtype=np.int64), np.empty)
    assert (batch is NotImplemented) == (not reads_batches(data))
    if batch is not NotImplemented:
        assert same(batch, stacked([stack[i] for i in indices], batch))


def test_no_part_is_read_before_all_are_known_to_read_batches() -> None:
    asked: list[Any] = []

    class Watched(Plain):
        def __getbatch__(self, indices: Any, empty: Any) -> Any:
            asked.append(indices)
            return NotImplemented

    watched, plain = Watched([1, 2]), Plain([1, 2])
    assert reads_batches(watched)
    for whole in (
        StackDataset(watched, plain),
        StackDataset(watched, Subset(plain, [0, 1])),
        Subset(StackDataset(watched, plain), [0]),
        StackDataset(watched, ArrayDataset(np.array([None, 1], object))),
        Subset(watched, ["a key"]),  # type: ignore[list-item]
    ):
        assert whole.__getbatch__(np.array([0]), np.empty) is NotImplemented
    assert (asked, watched.reads, plain.reads) == ([], [], [])
    # One that has the method and then declines makes the whole decline.
    assert StackDataset(ArrayDataset([1, 2]), watched).__getbatch__(np.array([0]), np.empty) is NotImplemented
    assert len(asked) == 1


def test_stack_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="lengths are dataset 0: 1, dataset 1: 2"):
        StackDataset([1], [1, 2])
    with pytest.raises(ValueError, match="lengths are a: 1, b: 2"):
        StackDataset(a=[1], b=[1, 2])
    with pytest.raises(ValueError, match="not both"):
        StackDataset([1], b=[1])
    with pytest.raises(ValueError, match="at least one dataset"):
        StackDataset()
    stack = StackDataset([1, 2])
    for read in (lambda: stack[2], lambda: stack.__getitems__([2])):
        with pytest.raises(IndexError, match="index 2 is outside this StackDataset of length 2"):
            read()


# ---------------------------------------------------------------- random_split


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(lambda x: sum(x) > 1), st.integers(0, 2**40))
def test_a_split_is_a_partition(lengths: list[int], seed: int) -> None:
    dataset = range(1000, 1000 + sum(lengths))
    parts = random_split(dataset, lengths, seed)
    assert [len(part) for part in parts] == lengths
    assert sorted(value for part in parts for value in part) == list(dataset)
    assert [list(part) for part in parts] == [list(part) for part in random_split(dataset, lengths, seed)]


@pytest.mark.filterwarnings("ignore:lengths:UserWarning")
@given(st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any), st.integers(0, 300))
def test_fractions_are_floored_and_the_rest_goes_round(weights: list[int], size: int) -> None:
    fractions = [weight / sum(weights) for weight in weights]
    sizes = [len(part) for part in random_split(range(size), fractions)]
    floors = [int(size * fraction) for fraction in fractions]
    rest = size - sum(floors)
    assert sum(sizes) == size
    assert [s - f for s, f in zip(sizes, floors, strict=True)] == [
        rest // len(sizes) + (i < rest % len(sizes)) for i in range(len(sizes))
    ]


def test_the_seed_decides_the_split() -> None:
    first, second = (list(random_split(range(100), [50, 50], seed)[0]) for seed in (0, 1))
    assert first != second
    assert first == list(random_split(range(100), [50, 50])[0])
    assert first != sorted(first)


def test_an_empty_part_warns_where_it_was_asked_for() -> None:
    with pytest.warns(UserWarning, match=r"lengths\[1\] = 0.1 of 3 samples is an empty part") as caught:
        random_split(range(3), [0.9, 0.1])
    assert caught[0].filename == __file__
    assert [len(part) for part in random_split(range(3), [3, 0])] == [3, 0]


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        ([], "lengths is empty"),
        ([5, 4], r"lengths must.*length 10.*\[5, 4\], which sums to 9"),
        ([11, -1], "lengths must not be negative"),
        ([0.5, 0.4], "lengths must.*fractions that sum to 1.*sums to 0.9"),
        ([7.5, 2.5], "lengths must be whole numbers"),
        ([float("nan"), 1.0], "lengths must not be negative"),
    ],
)
def test_lengths_that_do_not_fit(lengths: list[float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        random_split(range(10), lengths)
    with pytest.raises(TypeError, match="dataset is an IterableDataset"):
        random_split(Count(10), [5, 5])


def test_reading_leaves_no_cycles_behind() -> None:
    data = ArrayDataset(np.zeros((100, 8)), np.arange(100))
    gc.collect()
    for start in range(90):
        data.__getbatch__(np.arange(start, start + 10), np.empty)
    assert gc.collect() == 0


@given(hnp.arrays(np.int64, st.integers(1, 20), elements=st.integers(0, 4)))
def test_a_large_gather_agrees_with_take(indices: Array) -> None:
    rows = np.arange(5 * 9000.0).reshape(5, 9000)
    assert same(ArrayDataset(rows).__getbatch__(indices, np.empty), (rows[indices],))
