"""Collators by themselves: what they make of samples, in whose memory, and what they refuse in which words."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline import CollateError, CollateTypeError, OptionError, OptionTypeError
from feedline.collate import Padded, compose, detection, drop_invalid, keep, pack, pad, stack
from feedline.collate.array_kinds import NUMPY
from feedline.collate.collator import Collator
from feedline.collate.making import Making

DTYPES = ["?", "u1", "i2", "i8", ">i4", "f2", "f4", "f8", "c16"]


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Record:
    x: Any
    y: Any


class Recorder:
    """Gives memory and remembers it."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self, shape: Any, dtype: Any) -> Any:
        self.given.append(np.full(shape, 77, dtype))
        return self.given[-1]


def numbers(seed: int, shape: Any, dtype: str) -> Any:
    return np.random.default_rng(seed).integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)


def padded_by_hand(arrays: Any, axes: Any, goal: Any, value: Any) -> tuple[Any, Any, Any]:
    shape = list(arrays[0].shape)
    for axis, size in zip(axes, goal, strict=True):
        shape[axis] = size
    out = np.full((len(arrays), *shape), value, arrays[0].dtype)
    order = np.argsort(axes)  # of the axes in the data, however they were named
    mask = np.zeros((len(arrays), *(goal[at] for at in order)), bool)
    lengths = []
    for row, (there, array) in enumerate(zip(mask, arrays, strict=True)):
        sizes = [min(array.shape[axis], size) for axis, size in zip(axes, goal, strict=True)]
        for place in np.ndindex(*out.shape[1:]):
            if all(place[axis] < size for axis, size in zip(axes, sizes, strict=True)):
                out[(row, *place)] = array[place]
        for place in np.ndindex(*there.shape):
            there[place] = all(at < sizes[which] for at, which in zip(place, order, strict=True))
        lengths.append(sizes)
    return out, mask, np.array(lengths)


@st.composite
def ragged(draw: Any) -> tuple[list[Any], tuple[int, ...], bool]:
    """Arrays that differ along some axes, which these are, and whether to count them from the back."""
    shape = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    axes = draw(st.permutations(range(len(shape))))[: draw(st.integers(1, 2))]
    dtype = draw(st.sampled_from(DTYPES))
    arrays = []
    for seed in range(draw(st.integers(1, 4))):
        mine = [draw(st.integers(0, 5)) if axis in axes else size for axis, size in enumerate(shape)]
        arrays.append(numbers(seed, mine, dtype))
    return arrays, tuple(axes), draw(st.booleans())


@settings(max_examples=few(150))
@given(ragged(), st.sampled_from([None, 1, 3, 4]), st.sampled_from([None, 0, 2, 5, 7]), st.sampled_from([0, 1]))
def test_pad_is_what_one_would_write_by_hand(made, multiple, length, value):
    arrays, axes, from_the_back = made
    goal = [max(array.shape[axis] for array in arrays) for axis in axes]
    options: dict[str, Any] = {}
    if length is not None:
        options, goal = {"length": length, "truncate": True}, [length] * len(axes)
    elif multiple is not None:
        options, goal = {"multiple": multiple}, [(size + multiple - 1) // multiple * multiple for size in goal]
    named = tuple(axis - arrays[0].ndim if from_the_back else axis for axis in axes)
    making = Making(NUMPY, Recorder())
    batch = pad(value, axis=named, **options).into(arrays, making, "")
    out, mask, lengths = padded_by_hand(arrays, axes, goal, value)
    assert batch.data.dtype == out.dtype
    assert batch.mask.dtype == bool
    assert batch.lengths.dtype == np.int64
    for ours, hand in zip(batch, (out, mask, lengths), strict=True):
        assert ours.shape == hand.shape
        assert (ours == hand).all()
    of_image = int(lengths.prod(1).sum()) * (out[0].size // max(1, mask[0].size) if mask[0].size else 0)
    assert (making.tally.places, making.tally.padding) == (out.size, out.size - of_image)
    assert making.tally.cut == sum(any(a.shape[x] > g for x, g in zip(axes, goal, strict=True)) for a in arrays)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 2))
def test_one_axis_gives_flat_lengths_and_the_same_as_a_tuple_of_it(sizes, axis):
    arrays = [numbers(i, [size if place == axis else 2 for place in range(3)], "i8") for i, size in enumerate(sizes)]
    one, several = pad(axis=axis)(arrays), pad(axis=(axis,))(arrays)
    assert one.lengths.tolist() == sizes == several.lengths[:, 0].tolist()
    assert (one.data == several.data).all()
    assert (one.mask == several.mask).all()


def test_the_mask_is_of_the_datas_shape_in_whatever_order_axes_are_named():
    arrays = [np.ones((2, 3)), np.ones((1, 5))]
    batch = pad(axis=(1, 0), length=5)(arrays)
    assert batch.data[batch.mask].sum() == 11
    assert batch.lengths.tolist() == [[3, 2], [5, 1]]  # as named
    scenes = detection(axis=(-1, -2), mask=True)([(np.ones((3, 2, 4)), {}), (np.ones((3, 5, 2)), {})])
    assert scenes.mask.shape == (2, 5, 4)
    assert scenes.images.shape == (2, 3, 5, 4)


def test_a_sample_that_is_cut_along_two_axes_is_cut_once():
    making = Making(NUMPY)
    pad(axis=(0, 1), length=2, truncate=True).into([np.ones((3, 3)), np.ones((1, 2)), np.ones((3, 1))], making, "")
    assert making.tally.cut == 2


def test_pad_writes_into_the_memory_it_is_handed_and_gives_only_what_is_wanted():
    for wanted in ({}, {"mask": False}, {"lengths": False}, {"mask": False, "lengths": False}):
        memory = Recorder()
        batch = pad(**wanted).into([np.arange(3), np.arange(2)], Making(NUMPY, memory), "")
        if len(wanted) == 2:
            assert batch is memory.given[0]
            continue
        assert batch.data is memory.given[0]
        assert (batch.mask is None) == ("mask" in wanted)
        assert batch.mask is None or batch.mask is memory.given[1]
        assert (batch.lengths is None) == ("lengths" in wanted)


def test_lists_of_numbers_are_arrays_and_an_empty_one_is_of_any_type_and_shape():
    assert pad()([[], [1, 2]]).data.tolist() == [[0, 0], [1, 2]]
    assert pad()([[], [1, 2]]).data.dtype == np.int64
    assert pad(0.5)([[], []]).data.dtype == np.float64
    assert pad()([[], []]).data.shape == (2, 0)
    boxes = pad(-1)([[[1, 2, 3, 4]], []])
    assert boxes.data.tolist() == [[[1, 2, 3, 4]], [[-1] * 4]]
    assert pad()([range(2), (1.5,)]).data.tolist() == [[0.0, 1.0], [1.5, 0.0]]


def test_an_array_with_nothing_in_it_has_no_say_in_the_dtype():
    large = 2**53 + 1
    assert pad()([np.array([]), np.array([large])]).data.tolist() == [[0], [large]]
    assert pad()([[large], np.array([]), []]).data.dtype == np.int64
    assert pack(2)([np.array([]), [large]]).data.tolist() == [[large, 0]]
    nested = pad(axis=1)([[[]], [[1, large]]])
    assert nested.data.tolist() == [[[0, 0]], [[1, large]]]
    assert nested.data.dtype == np.int64
    assert pad()([np.array([]), np.ones((2, 4), "f4")]).data.shape == (2, 2, 4)  # no boxes
    assert pad()([np.array([], "f4"), np.ones((2, 4), "f4")]).data.shape == (2, 2, 4)
    assert pad()([np.zeros((0, 4), "f4"), []]).data.shape == (2, 0, 4)
    assert pad()([np.array([], "f4"), np.array([], "f8")]).data.dtype == np.float64  # nobody else has a say


def test_dtypes_mix_as_in_default_collation():
    for one, other in (("i4", "i8"), ("u1", "i1"), ("f4", "i8"), ("?", "u1"), ("f4", "c8")):
        arrays = [np.ones(2, one), np.ones(2, other)]
        assert pad()(arrays).data.dtype == stack(arrays).dtype


def test_dates_can_be_padded_with_a_date():
    nothing = np.datetime64("NaT", "D")
    data = pad(nothing)([np.array(["2020-01-01"], "M8[D]"), np.array([], "M8[D]")]).data
    assert np.isnat(data[1, 0])
    with pytest.raises(CollateError, match="cannot hold the padding value 0"):
        pad()([np.array(["2020-01-01"], "M8[D]")])


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (-1, "u1"),
        (256, "u1"),
        (2, "?"),
        (0.5, "i8"),
        (np.nan, "i4"),
        (1e5, "f2"),
        (1j, "f8"),
        (1 << 63, "i8"),
        (1e400, "i8"),
    ],
)
def test_a_padding_value_that_does_not_fit_is_refused(value, dtype):
    with pytest.raises(
        CollateError, match=f"field 'x' is of dtype {np.dtype(dtype)}, which cannot hold the padding value"
    ):
        compose({"x": pad(value)})([{"x": np.ones(2, dtype)}])


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (255, "u1"),
        (True, "?"),
        (0.0, "i8"),
        (np.nan, "f2"),
        (-np.inf, "f4"),
        (1j, "c8"),
        (0.1, "f4"),
        (np.float32(0.5), "f8"),
        (np.uint8(255), "i8"),
        (np.int8(-1), "f4"),
    ],
)
def test_a_padding_value_that_fits_is_taken(value, dtype):
    data = pad(value)([np.ones(1, dtype), np.ones(0, dtype)]).data
    assert data.dtype == dtype
    assert np.array_equal(data[1, 0], np.dtype(dtype).type(value), equal_nan=True)


def making(names: Any = (70, 71, 72, 73)) -> Making:
    return Making(NUMPY, names=list(names))


@pytest.mark.parametrize(
    ("collator", "values", "says"),
    [
        (
            pad(),
            [np.ones((2, 3)), np.ones((1, 4))],
            r"differ in shape: field 'x' of dataset index 71 .* \(1, 4\).*axis=\(",
        ),
        (pad(axis=1), [np.ones((2, 3)), np.ones(4)], r"number of axes: field 'x' of dataset index 71 .*shape \(4,\)"),
        (pad(axis=1), [np.ones(3)], r"dataset index 70 .* shape \(3,\), in which axis=1 names no axis"),
        (pad(axis=(0, -1)), [np.ones(3)], r"axis=\(0, -1\) names no axis"),
        (pad(), [3, 4], r"field 'x' of dataset index 70 .*single number, which stack collates"),
        (
            pad(length=3),
            [np.ones(2), np.ones(5)],
            r"'x' of dataset index 71 .*length 5 along axis 0.*length=3.*truncate=True",
        ),
        (pad(), [np.ones(2), None], r"'x' of dataset index 71 .* is None.*drop_invalid"),
        (pad(), ["ab"], r"'x' of dataset index 70 .* is a builtins.str, not an array of numbers"),
        (pad(), [np.array(["a"])], r"is an array of <U1"),
        (pad(), [np.array([{}])], r"is an array of object"),
        (pad(), [[[1], [2, 3]]], r"is a builtins.list"),
        (pad(), [{"y": [1]}], r"is a builtins.dict.*Say which of its fields is meant"),
        (pad(), [np.ma.ones(2)], r"MaskedArray"),
        (pad(), [np.ones(1), np.array(["2020-01-01"], "M8[D]")], r"'x' of dataset index 71 .* is datetime64\[D\]"),
        (pack(4), [np.ones(2), np.ones(5)], r"'x' of dataset index 71 .*length 5, more than the 4 of a row.*'split'"),
        (pack(4), [np.ones((2, 3)), np.ones((2, 4))], r"differ in shape: field 'x' of dataset index 71"),
        (pack(4), [1], r"'x' of dataset index 70 .* single number"),
        (stack, [np.ones(2), np.ones(3)], r"differ in shape: field 'x' of dataset index 71"),
    ],
)
def test_errors_name_field_and_dataset_index(collator, values, says):
    ways = compose({"x": collator})
    with pytest.raises(CollateError, match=says):
        ways.make([{"x": value} for value in values], making())


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(1, 12), st.sampled_from(["truncate", "split"])
)
def test_every_sequence_can_be_read_from_its_rows(sizes, length, on_long):
    arrays = [numbers(seed, (size, 2), "i4") for seed, size in enumerate(sizes)]
    making = Making(NUMPY, Recorder())
    data, segments, positions = pack(length, -1, on_long=on_long).into(arrays, making, "")
    assert segments.shape == positions.shape == data.shape[:2] == (len(data), length)
    assert data.dtype == np.int32
    assert segments.dtype == positions.dtype == np.int64
    for number, array in enumerate(arrays, start=1):
        pieces = [array[at : at + length].tolist() for at in range(0, len(array), length)]
        found = []
        for row in np.flatnonzero((segments == number).any(1)):
            there = np.flatnonzero(segments[row] == number)
            assert there.tolist() == list(range(there[0], there[0] + len(there)))
            assert positions[row, there].tolist() == list(range(len(there)))
            found.append(data[row, there].tolist())
        assert sorted(found) == sorted(pieces[:1] if on_long == "truncate" else pieces)
    assert (data[segments == 0] == -1).all()
    assert (positions[segments == 0] == 0).all()
    filled = int((segments > 0).sum())
    assert (making.tally.room, making.tally.filled) == (segments.size, filled)
    assert making.tally.cut == (sum(size > length for size in sizes) if on_long == "truncate" else 0)
    assert sum(2 * (row > 0).sum() <= length for row in segments) <= 1  # two such rows would be one


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_fields_of_equal_lengths_are_packed_alike(sizes):
    samples = [{"tokens": np.arange(size), "labels": np.arange(size) * 10.0} for size in sizes]
    batch = compose({"tokens": pack(9), "labels": pack(9, -100)})(samples)
    assert (batch["tokens"].segments == batch["labels"].segments).all()
    there = batch["tokens"].segments > 0
    assert (batch["labels"].data[there] == batch["tokens"].data[there] * 10).all()


def test_sequences_of_nothing_take_no_row():
    assert pack(4)([[], []]).data.shape == (0, 4)
    assert pack(4)([[], [1]]).segments.tolist() == [[2, 0, 0, 0]]


def test_detection_pads_images_and_keeps_targets():
    rng = np.random.default_rng(0)
    shapes = [(3, 5, 7), (3, 8, 2), (3, 1, 1)]
    samples = [
        (rng.random(shape, np.float32), {"boxes": np.ones((number, 4)), "id": number})
        for number, shape in enumerate(shapes)
    ]
    batch = detection(value=0.5, multiple=4, mask=True)(samples)
    assert batch.images.shape == (3, 3, 8, 8)
    assert batch.sizes.tolist() == [[5, 7], [8, 2], [1, 1]]
    for image, there, (given_image, _), (high, wide) in zip(
        batch.images, batch.mask, samples, batch.sizes, strict=True
    ):
        assert (image[:, :high, :wide] == given_image).all()
        assert there.sum() == high * wide == there[:high, :wide].sum()
        assert (image[:, ~there] == 0.5).all()
    assert batch.targets == [target for _, target in samples]
    assert detection()(samples).mask is None
    last = detection(axis=(0, 1))([(image.transpose(1, 2, 0), target) for image, target in samples])
    assert last.images.shape == (3, 8, 7, 3)
    same = detection()([samples[0], samples[0]])
    assert (same.images == samples[0][0]).all()


def test_detection_says_what_it_takes():
    with pytest.raises(CollateError, match=r"dataset index 71 .* is not a pair"):
        detection().make([(np.ones((3, 2, 2)), {}), {"image": 1}], making())
    with pytest.raises(CollateError, match=r"field '\[0\]' of dataset index 71 .*shape \(1, 2, 2\)"):
        detection().make([(np.ones((3, 2, 2)), {}), (np.ones((1, 2, 2)), {})], making())
    with pytest.raises(CollateError, match=r"the same number of channels .*axis=\(0, 1\) if channels are last"):
        detection()([(np.ones((3, 2, 2)), {}), (np.ones((1, 2, 2)), {})])
    assert pickle.loads(pickle.dumps(detection(multiple=4)))([(np.ones((3, 2, 2)), {})]).images.shape == (1, 3, 4, 4)


def test_padding_says_which_axes_would_have_to_be_padded():
    with pytest.raises(CollateError, match=r"pad several axes: axis=\(1, 2\)"):
        pad(axis=2)([np.ones((3, 2, 2)), np.ones((3, 4, 2))])


def test_composition_keeps_the_containers_types_and_nests():
    ways = {"in": {"t": pad(9, lengths=False)}, "out": (keep, stack), "f": max}
    sample = {"in": {"t": [1], "n": 1}, "out": ([], 2), "f": 3, "more": "a"}
    other = {"in": {"t": [1, 2], "n": 2}, "out": ([0], 3), "f": 4, "more": "b"}
    batch = compose(ways)([sample, other])
    assert list(batch) == ["in", "out", "f", "more"]
    assert isinstance(batch["in"]["t"], Padded)
    assert batch["in"]["t"].data.tolist() == [[1, 9], [1, 2]]
    assert batch["in"]["n"].tolist() == [1, 2]
    assert batch["out"][0] == [[], [0]]
    assert batch["out"][1].tolist() == [2, 3]
    assert type(batch["out"]) is tuple
    assert (batch["f"], batch["more"]) == (4, ["a", "b"])
    for kind in (Pair, Record):
        made = compose({"y": keep})([kind(1, 2), kind(3, 4)])
        assert type(made) is kind
        assert (made.x.tolist(), made.y) == ([1, 3], [2, 4])
    made = compose((stack, keep))([Pair(1, 2), Pair(3, 4)])
    assert type(made) is Pair
    assert made.y == [2, 4]
    assert compose([keep, keep])([[1, 2], [3, 4]]) == [[1, 3], [2, 4]]
    assert compose(keep)([1, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("ways", "samples", "says"),
    [
        (
            {"a": {"b": keep}},
            [{"a": {"c": 1}}],
            "collate names field 'a.b', but field 'a' of dataset index 70 .* only 'c'",
        ),
        ({"a": keep}, [{"a": 1}, {"b": 1}], "the value of dataset index 71 .* has no field 'a'"),
        ({"a": keep}, [{"a": 1, "b": 1}, {"a": 1}], "dataset index 71 .* has no field 'b'"),
        ({"a": keep}, [Pair(1, 2)], "collate names field 'a', but the value of dataset index 70 .* only 'x', 'y'"),
        ({"a": {"b": keep}}, [{"a": {"b": 1}}, {"a": 3}], "field 'a' of dataset index 71 .* has no field 'b'"),
        ((keep,), [(1,), (1, 2)], "dataset index 71 .* is a tuple of 2, but collate has 1 entry"),
        ((keep, keep), ["ab"], "is a str, but collate has 2 entries"),
        ({"a": keep}, [(1, 2)], "is a tuple, but collate names fields of it .*Give a tuple"),
        ({"a": (keep, pad())}, [{"a": (1, "x")}], r"field 'a\[1\]' of dataset index 70"),
    ],
)
def test_samples_that_do_not_fit_the_composition(ways, samples, says):
    with pytest.raises(CollateError, match=says):
        compose(ways).make(samples, making())


def test_an_error_of_the_users_function_says_which_field_it_collates():
    with pytest.raises(ZeroDivisionError) as caught:
        compose({"a": {"b": lambda values: 1 / 0}})([{"a": {"b": 1}}])
    assert "which collates field 'a.b'" in "".join(caught.value.__notes__)


def test_what_is_not_valid_is_left_out_and_counted():
    making = Making(NUMPY, names=[5, 6, 7, 8])
    ways = drop_invalid({"x": pad(lengths=False)}, valid=lambda sample: len(sample["x"]) < 3)
    samples = [{"x": [1]}, None, {"x": [1, 2, 3]}, {"x": [4, 5]}]
    assert ways.make(samples, making)["x"].data.tolist() == [[1, 0], [4, 5]]
    assert making.tally.dropped == 2
    with pytest.raises(CollateError, match="field 'x' of dataset index 8 "):
        ways.make([*samples[:3], {"x": "ab"}], Making(NUMPY, names=[5, 6, 7, 8]))
    with pytest.raises(CollateError, match="none of the 2 samples of this batch is valid"):
        drop_invalid()([None, None])
    with pytest.raises(TypeError) as caught:
        drop_invalid(valid=len).make([[1], 3], Making(NUMPY, names=[5, 6]))
    assert "dataset index 6" in "".join(caught.value.__notes__)


EVERY = [
    stack,
    keep,
    pad(1, axis=(0, 1), multiple=8, mask=False),
    pad(length=3, truncate=True),
    pack(8, 2, on_long="split"),
    detection(mask=True),
    drop_invalid({"x": keep}, valid=len),
    compose({"x": pad(), "y": (stack, keep)}),
]


@pytest.mark.parametrize("collator", EVERY, ids=repr)
def test_collators_travel_and_compare(collator):
    again = pickle.loads(pickle.dumps(collator))
    assert repr(again) == repr(collator)
    assert isinstance(collator, Collator)
    if collator not in (stack, keep):
        assert again == collator
        assert hash(again) == hash(collator)
    with pytest.raises(CollateError, match="no samples"):
        collator([])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: pad("a"), "value, which fills the padding, must be a number; got 'a'"),
        (lambda: pad(None), "value"),
        (lambda: pad(axis=1.0), "axis must be a whole number"),
        (lambda: pad(axis=()), "axis must name at least one axis"),
        (lambda: pad(multiple=0), "multiple must be at least 1"),
        (lambda: pad(length=-1), "length must be at least 0"),
        (lambda: pad(length=3, multiple=2), "multiple and length both"),
        (lambda: pad(truncate=True), "truncate=True needs length"),
        (lambda: pad(mask=1), "mask must be True or False"),
        (lambda: detection(axis=1), "axis must be two axes, that of height and that of width; got 1"),
        (lambda: detection(axis=(0, 1, 2)), "axis must be two axes"),
        (lambda: pack(0), "length must be at least 1"),
        (lambda: pack(4, "x"), "value"),
        (lambda: pack(4, on_long="cut"), "on_long must be one of 'raise', 'truncate', 'split'; got 'cut'"),
        (lambda: drop_invalid(valid=3), "valid must be a function"),
        (lambda: drop_invalid(3), "collate must be a way to collate"),
        (lambda: compose({"a": 3}), r"collate\['a'\] must be a way to collate .*got 3"),
        (lambda: compose({"a": (keep, None)}), r"collate\['a'\]\[1\] must be a way"),
        (lambda: compose({"a": pad}), r"collate\['a'\] is the function pad itself; call it: pad\(…\)"),
        (lambda: compose({"a": drop_invalid()}), r"collate\['a'\]: drop_invalid collates whole samples"),
        (lambda: compose({"a": compose(drop_invalid())}), "collates whole samples"),
    ],
)
def test_wrong_options_are_refused_by_name(make, says):
    with pytest.raises(OptionError, match=says):
        make()


def test_a_wrong_type_is_a_type_error():
    with pytest.raises(OptionTypeError):
        compose(3)
    with pytest.raises(CollateTypeError):
        pad()(["a"])
