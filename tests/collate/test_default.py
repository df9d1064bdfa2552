"""Default collation: what every kind of sample becomes, what memory it lies in, and what is refused how."""

from __future__ import annotations

import array
import copy
import datetime
import enum
import functools
import types
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from bitwise import same
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kinds import few, named

from feedline import CollateError, CollateTypeError, DataLoader, default_collate, register_collate
from feedline.collate import default as collate

Point = namedtuple("Point", ["x", "y"])


class Typed(NamedTuple):
    image: Any
    label: Any = 0


@dataclass
class Plain:
    x: Any
    y: Any


@dataclass(frozen=True)
class Frozen:
    x: Any
    y: Any


@dataclass(slots=True)
class Slotted:
    x: Any
    y: Any


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    x: Any
    y: Any


class FrozenMap(Mapping[str, Any]):
    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Box(MutableMapping[str, Any]):
    """Mutable, without a `__copy__`: a shallow copy writes into the original."""

    def __init__(self, items: dict[str, Any]) -> None:
        self.items_ = items

    def __getitem__(self, key: str) -> Any:
        return self.items_[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.items_[key] = value

    def __delitem__(self, key: str) -> None:
        del self.items_[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_)

    def __len__(self) -> int:
        return len(self.items_)


class Row(Sequence[Any]):
    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items

    def __getitem__(self, place: Any) -> Any:
        return self.items[place]

    def __len__(self) -> int:
        return len(self.items)


class Shelf(Row, MutableSequence[Any]):
    """The same, mutable, without a `__copy__`."""

    def __setitem__(self, place: Any, value: Any) -> None:
        self.items[place] = value  # type: ignore[index]

    def __delitem__(self, place: Any) -> None:
        raise NotImplementedError

    def insert(self, place: int, value: Any) -> None:
        raise NotImplementedError


class Recorder:
    """Gives memory and remembers it."""

    def __init__(self) -> None:
        self.given: list[np.ndarray[Any, Any]] = []

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        self.given.append(np.empty(shape, dtype))
        return self.given[-1]


def leaves(tree: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(tree, np.ndarray):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from leaves(value)


# --- the same as a naive reference, for any tree of any arrays ---


def naive(samples: list[Any]) -> Any:
    first = samples[0]
    if isinstance(first, np.ndarray):
        return np.stack(samples).astype(first.dtype)  # np.stack would make the byte order native
    if isinstance(first, (str, bytes)):
        return samples
    if isinstance(first, dict):
        return {key: naive([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (list, tuple)):
        columns = [naive(list(column)) for column in zip(*samples, strict=True)]
        return type(first)(*columns) if isinstance(first, Point) else type(first)(columns)
    return np.array(samples)


DTYPES = st.one_of(
    hnp.scalar_dtypes(),
    hnp.byte_string_dtypes(),
    hnp.unicode_string_dtypes(),
    st.just(np.dtype([("a", "<i4"), ("b", ">f8", (2,))])),
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def kind_of_array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    if dtype.names:
        return st.binary(min_size=0, max_size=8).map(lambda seed: records(dtype, shape, seed))
    return hnp.arrays(dtype, shape)


def records(dtype: np.dtype[Any], shape: tuple[int, ...], seed: bytes) -> np.ndarray[Any, Any]:
    values = np.zeros(shape, dtype)
    values["a"], values["b"] = len(seed), sum(seed)
    return values


LEAVES = st.one_of(
    st.builds(kind_of_array, DTYPES, SHAPES),
    st.sampled_from([st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.complex_numbers(), st.text()]),
    st.just(st.binary()),
)
KINDS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(st.fixed_dictionaries),
        st.lists(inner, max_size=3).map(lambda parts: st.tuples(*parts)),
        st.lists(inner, max_size=3).map(lambda parts: st.tuples(*parts).map(list)),
        st.tuples(inner, inner).map(lambda parts: st.builds(Point, *parts)),
    ),
    max_leaves=5,
)
BATCHES = KINDS.flatmap(lambda kind: st.lists(kind, min_size=1, max_size=5))


@settings(max_examples=few(200))
@given(BATCHES)
def test_a_batch_is_what_naive_stacking_gives(samples: list[Any]) -> None:
    assert same(default_collate(samples), naive(samples))


@settings(max_examples=few(100))
@given(BATCHES)
def test_a_batch_shares_no_memory_with_its_samples(samples: list[Any]) -> None:
    before = copy.deepcopy(samples)
    for leaf in leaves(default_collate(samples)):
        assert leaf.flags.writeable
        assert not any(np.may_share_memory(leaf, part) for part in leaves(samples))
        leaf.view(np.uint8 if leaf.dtype.itemsize and leaf.ndim else leaf.dtype)[...] = 1
    assert same(samples, before)


@given(st.lists(st.sampled_from("?bBhHiIlLefdFD"), min_size=1, max_size=100), SHAPES)
def test_mixed_dtypes_become_the_one_that_holds_them_all(codes: list[str], shape: tuple[int, ...]) -> None:
    samples = [np.ones(shape, code) for code in codes]
    assert same(default_collate(samples), np.stack(samples))


# --- leaves ---


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False], np.array([True, False])),
        ([1, -2], np.array([1, -2], np.int64)),
        ([1.5, 2.5], np.array([1.5, 2.5], np.float64)),
        ([1j, 2.0], np.array([1j, 2])),
        ([1, 2.5], np.array([1.0, 2.5])),
        ([True, 2], np.array([1, 2])),
        ([np.float32(1), np.float32(2)], np.array([1, 2], np.float32)),
        ([np.float16(1), 2.0], np.array([1, 2], np.float64)),
        ([1, np.float32(2)], np.array([1, 2], np.float64)),
        ([1, np.array(2)], np.array([1, 2])),
        ([np.uint8(1), np.uint8(2)], np.array([1, 2], np.uint8)),
        ([np.bool_(True), np.bool_(False)], np.array([True, False])),
        ([np.datetime64("2020-01-01"), np.datetime64("2021-02")], np.array(["2020-01-01", "2021-02-01"], "M8[D]")),
        ([np.array(1.0), np.array(2.0)], np.array([1.0, 2.0])),
        ([np.array("a"), np.array("abc")], np.array(["a", "abc"])),
        ([np.array(["a"]), np.array(["abc"])], np.array([["a"], ["abc"]])),
        ([np.ones(2, ">f4"), np.ones(2, "<f4")], np.ones((2, 2), np.float32)),
        (["a", "b"], ["a", "b"]),
        ([b"a", b"b"], [b"a", b"b"]),
        ([np.str_("a"), "b"], [np.str_("a"), "b"]),
        ([2**63, 5], np.array([2**63, 5], np.uint64)),
    ],
    ids=named,
)
def test_leaves(values: list[Any], expected: Any) -> None:
    assert same(default_collate(values), expected)


def test_records_of_a_structured_array_are_stacked() -> None:
    rows = np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")])
    assert same(default_collate([rows[0], rows[1]]), rows)


def test_members_of_an_integer_enum_are_numbers() -> None:
    Colour = enum.IntEnum("Colour", ["RED", "BLUE"])
    assert same(default_collate([Colour.BLUE, Colour.RED]), np.array([2, 1]))


def test_a_subclass_of_array_becomes_a_plain_one(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "data", np.float32, "w+", shape=(2, 3))
    mapped[...] = [[1, 2, 3], [4, 5, 6]]
    batch = default_collate([mapped[0], mapped[1]])
    assert type(batch) is np.ndarray
    assert batch.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert not np.may_share_memory(batch, mapped)


def test_arrays_of_any_layout_are_stacked() -> None:
    rows = np.arange(24.0).reshape(4, 6)
    samples = [rows.T, np.asfortranarray(rows.T), rows[::-1].T[:, ::-1], np.broadcast_to(rows.T, (6, 4))]
    assert same(default_collate(samples), np.stack([rows.T] * 4))


# --- containers ---


@pytest.mark.parametrize("kind", [Plain, Frozen, Slotted, FrozenSlotted, Point])
def test_records_keep_their_type(kind: Callable[..., Any]) -> None:
    batch = default_collate([kind(1, np.zeros(2)), kind(2, np.ones(2))])
    assert type(batch) is kind
    assert same(batch.x, np.array([1, 2]))
    assert same(batch.y, np.array([[0.0, 0.0], [1.0, 1.0]]))


def test_a_batch_of_dataclasses_runs_no_post_init_and_keeps_nothing_of_the_first_sample() -> None:
    @dataclass
    class Sample:
        x: Any
        unset: Any = field(init=False)

        def __post_init__(self) -> None:
            assert isinstance(self.x, float)

        @functools.cached_property
        def double(self) -> Any:
            return self.x * 2

    samples = [Sample(1.0), Sample(2.0)]
    assert samples[0].double == 2.0
    assert default_collate(samples).double.tolist() == [2.0, 4.0]


def test_a_named_tuple_with_defaults_keeps_its_type() -> None:
    batch = default_collate([Typed(1.0), Typed(2.0, 5)])
    assert type(batch) is Typed
    assert batch.label.tolist() == [0, 5]


@pytest.mark.parametrize(
    "make",
    [
        dict,
        OrderedDict,
        Counter,
        UserDict,
        FrozenMap,
        Box,
        types.MappingProxyType,
        functools.partial(defaultdict, list),
    ],
    ids=str,
)
def test_mappings_keep_their_type(make: Callable[[dict[str, Any]], Any]) -> None:
    samples = [make({"b": 1, "a": 2}), make({"a": 4, "b": 3})]
    batch = default_collate(samples)
    assert type(batch) is type(samples[0])
    assert list(batch) == ["b", "a"]
    assert same(batch["b"], np.array([1, 3]))
    assert same(batch["a"], np.array([2, 4]))
    assert [dict(sample) for sample in samples] == [{"b": 1, "a": 2}, {"a": 4, "b": 3}]


def test_a_defaultdict_keeps_its_factory_and_gains_no_keys() -> None:
    samples = [defaultdict(list, a=1), defaultdict(list, a=2, more=3)]
    batch = default_collate(samples)
    assert batch.default_factory is list
    assert [list(sample) for sample in samples] == [["a"], ["a", "more"]]
    with pytest.raises(CollateError, match="'more'"):
        default_collate(samples[::-1])
    assert list(samples[0]) == ["a"]


@pytest.mark.parametrize("make", [list, tuple, deque, UserList, Row, Shelf])
def test_sequences_keep_their_type(make: Callable[[list[Any]], Any]) -> None:
    samples = [make([1, "a"]), make([2, "b"])]
    batch = default_collate(samples)
    assert type(batch) is make
    assert same(list(batch), [np.array([1, 2]), ["a", "b"]])
    assert [list(sample) for sample in samples] == [[1, "a"], [2, "b"]]


def test_subclasses_of_dict_and_list_keep_what_else_they_hold() -> None:
    class Tagged(dict[str, Any]):
        tag = ""

    class Named(list[Any]):
        def __init__(self, name: str, items: list[Any]) -> None:
            super().__init__(items)
            self.name = name

    tagged = Tagged(x=1)
    tagged.tag = "kept"
    batch = default_collate([{"map": tagged, "list": Named("kept", [1])}])
    assert type(batch["map"]) is Tagged
    assert batch["map"].tag == "kept"
    assert type(batch["list"]) is Named
    assert batch["list"].name == "kept"
    assert same(list(batch["list"]), [np.array([1])])


class Refuses(Row):
    def __init__(self, first: Any, second: Any) -> None:
        super().__init__([first, second])


class Picky(FrozenMap):
    def __init__(self, items: Mapping[str, Any]) -> None:
        if not all(isinstance(value, int) for value in items.values()):
            raise ValueError("only integers")
        super().__init__(items)


class Other(FrozenMap):
    """Can be made of the batch, but is then something else."""

    def __init__(self, name: Any) -> None:
        super().__init__({"x": 1} if isinstance(name, str) else {})


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (Refuses(1, 2), [np.array([1, 1]), np.array([2, 2])]),
        (range(2), [np.array([0, 0]), np.array([1, 1])]),
        (array.array("d", [1, 2]), [np.array([1.0, 1.0]), np.array([2.0, 2.0])]),
        (Picky({"x": 1}), {"x": np.array([1, 1])}),
        (Other("name"), {"x": np.array([1, 1])}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_rebuilt_becomes_a_plain_container(sample: Any, expected: Any) -> None:
    assert same(default_collate([sample, sample]), expected)


@pytest.mark.parametrize("empty", [{}, [], (), OrderedDict()], ids=named)
def test_empty_containers_stay_empty(empty: Any) -> None:
    assert same(default_collate([empty, empty]), empty)


def test_deep_nesting() -> None:
    def nest(leaf: Any) -> Any:
        return functools.reduce(lambda inner, _: {"in": [Point(inner, (Frozen(inner, "t"),))]}, range(6), leaf)

    batch = default_collate([nest(1.0), nest(2.0)])
    for _ in range(6):
        assert type(batch["in"][0]) is Point
        assert type(batch["in"][0].y[0]) is Frozen
        assert batch["in"][0].y[0].y == ["t", "t"]
        batch = batch["in"][0].y[0].x
    assert batch.tolist() == [1.0, 2.0]


def test_samples_may_come_as_a_tuple() -> None:
    assert same(default_collate(({"x": 1}, {"x": 2})), {"x": np.array([1, 2])})


# --- the memory handed over is used ---


def test_arrays_are_written_into_the_memory_handed_over() -> None:
    empty = Recorder()
    samples = [{"image": np.full((3, 4), i, np.float32), "more": (np.zeros(0), np.array(i))} for i in range(5)]
    batch = default_collate(samples, empty)
    assert [(given.shape, given.dtype) for given in empty.given] == [
        ((5, 3, 4), np.float32),
        ((5, 0), np.float64),
        ((5,), np.int64),
    ]
    assert batch["image"] is empty.given[0]
    assert batch["more"][0] is empty.given[1]
    assert batch["more"][1] is empty.given[2]
    assert batch["image"][:, 0, 0].tolist() == [0, 1, 2, 3, 4]


def test_arrays_of_mixed_dtype_are_written_into_the_memory_handed_over() -> None:
    empty = Recorder()
    batch = default_collate([np.zeros(3, np.float32), np.ones(3, np.int64)], empty)
    assert batch is empty.given[0]
    assert same(batch, np.array([[0, 0, 0], [1, 1, 1]], np.float64))


# --- what is refused, and how ---


def refusal(samples: list[Any], names: list[Any] | None = None) -> CollateError:
    with pytest.raises(CollateError) as caught:
        default_collate(samples, names=names)
    return caught.value


def test_a_wrong_shape_names_field_index_and_both_shapes() -> None:
    samples = [{"pair": (0, np.zeros((3, side)))} for side in (8, 8, 9)]
    error = refusal(samples, [40, 41, 42])
    assert type(error) is CollateError
    for word in ("'pair[1]'", "dataset index 42", "(3, 9)", "dataset index 40", "(3, 8)", "collate_fn"):
        assert word in str(error)


def test_a_wrong_shape_at_the_top_names_the_sample() -> None:
    text = str(refusal([np.zeros(2), np.zeros((2, 1))]))
    assert "the value of sample 1 of the batch" in text
    assert "(2, 1)" in text
    assert "(2,)" in text


@pytest.mark.parametrize(
    "samples",
    [
        [np.zeros(2), np.zeros(0)],
        [np.zeros((2, 3)), np.zeros((3, 2))],
        [np.zeros((2, 3)), np.zeros(6)],
        [np.zeros(1), 1.0],
        [1.0, np.zeros(1)],
        [1, np.zeros(2)],
        [np.float32(1), np.zeros(2)],
        [np.zeros((0, 2)), np.zeros((0, 3))],
    ],
    ids=named,
)
def test_shapes_are_never_broadcast_or_reshaped(samples: list[Any]) -> None:
    assert "differ in shape" in str(refusal(samples))


@given(SHAPES, SHAPES, st.integers(0, 5), st.integers(0, 5))
def test_any_ragged_batch_names_the_first_odd_sample(
    shape: tuple[int, ...], odd: tuple[int, ...], before: int, after: int
) -> None:
    samples = [np.zeros(shape)] * (before + 1) + [np.zeros(odd)] * (shape != odd) + [np.zeros(shape)] * after
    if shape == odd:
        assert default_collate(samples).shape == (before + 1 + after, *shape)
    else:
        text = str(refusal(samples, [f"key-{i}" for i in range(len(samples))]))
        assert f"dataset index 'key-{before + 1}'" in text
        assert f"has shape {odd}" in text
        assert f"has shape {shape}" in text


@pytest.mark.parametrize(
    "samples",
    [[None, None], [1, None], ["a", None], [np.zeros(2), None], [np.float32(1), None], [1, None, np.zeros(2)]],
    ids=named,
)
def test_none_is_refused_by_its_name_and_with_a_remedy(samples: list[Any]) -> None:
    error = refusal([{"x": sample} for sample in samples], list(range(10, 10 + len(samples))))
    assert type(error) is CollateTypeError
    assert isinstance(error, TypeError)
    position = next(i for i, sample in enumerate(samples) if sample is None)
    assert f"field 'x' of dataset index {10 + position} (sample {position} of the batch) is None" in str(error)
    assert "Return a value in every case" in str(error)


@pytest.mark.parametrize(
    "odd", [None, object(), {"other"}, datetime.date(2020, 1, 1)], ids=lambda odd: type(odd).__name__
)
def test_a_value_of_a_wrong_type_in_the_middle_is_named(odd: Any) -> None:
    what = "None" if odd is None else f"a {type(odd).__module__}.{type(odd).__qualname__}"
    for first in (1, 1.0, "a", np.zeros(2), {"k": 1}, [1], (1,), Point(1, 2), Plain(1, 2), Row([1])):
        error = refusal([(0, first), (0, first), (0, odd), (0, first)], [5, 6, 7, 8])
        assert type(error) is CollateTypeError
        assert f"field '[1]' of dataset index 7 (sample 2 of the batch) is {what} " in str(error)
        assert "collate_fn" in str(error)


@pytest.mark.parametrize(
    ("first", "odd"),
    [
        (1, "a"),
        ("a", 1),
        (1, [1]),
        ([1], 1),
        ([1], "a"),
        ([1], b"a"),
        ([1], np.zeros(1)),
        (np.zeros(1), [1.0]),
        ({"k": 1}, [1]),
        ([1], {"k": 1}),
        (Plain(1, 2), Frozen(1, 2)),
        (Point(1, 2), {"x": 1, "y": 2}),
    ],
    ids=named,
)
def test_kinds_are_never_mixed(first: Any, odd: Any) -> None:
    error = refusal([first, odd])
    assert type(error) is CollateTypeError
    assert f"sample 1 of the batch is a {type(odd).__module__}.{type(odd).__qualname__}" in str(error)


@pytest.mark.parametrize(
    ("first", "odd"),
    [
        (np.array(["a"]), np.array([1])),
        (np.array([1]), np.array(["a"])),
        (np.array(["a"]), np.array([b"a"])),
        (1, np.str_("a")),
        (np.array(["2020"], "M8[Y]"), np.array([1])),
        (np.zeros(1, "i4,f4"), np.array([1])),
    ],
    ids=named,
)
def test_dtypes_without_a_common_one_are_refused_by_name(first: Any, odd: Any) -> None:
    error = refusal([{"x": first}, {"x": first}, {"x": odd}], [5, 6, 7])
    assert type(error) is CollateTypeError
    for word in ("'x'", "dataset index 7", str(np.asarray(odd).dtype), "dataset index 5", str(np.asarray(first).dtype)):
        assert word in str(error)


@pytest.mark.parametrize("value", [object(), {1, 2}, datetime.date(2020, 1, 1), Fraction(1, 2), int, Plain], ids=named)
def test_what_no_batch_can_be_made_of_is_refused(value: Any) -> None:
    error = refusal([value])
    assert type(error) is CollateTypeError
    assert type(value).__qualname__ in str(error)
    assert "register_collate" in str(error)


@pytest.mark.parametrize(
    "value", [np.array([None]), np.array(None), np.array([{}, {}]), np.zeros(1, [("a", object)])], ids=named
)
def test_arrays_of_objects_are_refused(value: Any) -> None:
    error = refusal([{"x": value}, {"x": value}])
    assert type(error) is CollateTypeError
    assert "'x' is an array of Python objects" in str(error)


def test_a_masked_array_is_refused_because_its_mask_would_be_lost() -> None:
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    for samples in ([masked, masked], [np.zeros(2), masked]):
        error = refusal(samples)
        assert type(error) is CollateTypeError
        assert "masked array" in str(error)
        assert ".filled()" in str(error)


@pytest.mark.parametrize("values", [[2**64], [1, 2**64], [2**63, -1], [-(2**63) - 1]], ids=named)
def test_integers_are_refused_rather_than_rounded(values: list[int]) -> None:
    error = refusal([{"id": value} for value in values])
    assert type(error) is CollateTypeError
    assert "'id'" in str(error)
    assert "64 bits" in str(error)


def test_a_missing_key_is_named() -> None:
    text = str(refusal([{"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}], [3, 9]))
    assert "field 'a' of dataset index 9" in text
    assert "no key 'y'" in text
    assert "dataset index 3" in text


@pytest.mark.parametrize("kind", [list, tuple, deque, Row])
def test_a_wrong_length_is_named(kind: Callable[[list[int]], Any]) -> None:
    text = str(refusal([{"a": kind([1, 2])}, {"a": kind([1, 2, 3])}], [3, 9]))
    assert "differ in length" in text
    assert "'a' of dataset index 9" in text
    assert "3 elements" in text
    assert "dataset index 3 (sample 0 of the batch) has 2" in text


def test_no_samples_are_refused() -> None:
    assert "no samples" in str(refusal([]))


def test_the_loader_tells_the_dataset_index() -> None:
    ragged = [np.zeros(2 if i != 7 else 3) for i in range(10)]
    with pytest.raises(CollateError, match=r"dataset index 7 \(sample 3 of the batch\).*dataset index 4"):
        list(DataLoader(ragged, batch_size=4))


# --- further types ---


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[type, Any]:
    monkeypatch.setattr(collate, "_registered", {})
    return collate._registered


class Animal:
    def __init__(self, legs: int) -> None:
        self.legs = legs


class Dog(Animal):
    pass


def legs(animals: list[Animal], empty: Any) -> Any:
    out = empty((len(animals),), np.dtype(np.int8))
    out[...] = [animal.legs for animal in animals]
    return out


@pytest.mark.usefixtures("registry")
def test_a_registered_type_is_collated_by_its_function_in_the_memory_handed_over() -> None:
    register_collate(Animal, legs)
    empty = Recorder()
    batch = default_collate([{"pet": [Animal(2)]}, {"pet": [Animal(4)]}], empty)
    assert same(batch, {"pet": [np.array([2, 4], np.int8)]})
    assert batch["pet"][0] is empty.given[0]


@pytest.mark.usefixtures("registry")
def test_a_subclass_is_collated_as_its_nearest_registered_parent() -> None:
    register_collate(object, lambda values, empty: "object")
    register_collate(Animal, legs)
    assert default_collate([Dog(4)]).tolist() == [4]
    register_collate(Dog, lambda values, empty: "dogs")
    assert default_collate([Dog(4)]) == "dogs"
    assert default_collate([Animal(4)]).tolist() == [4]


@pytest.mark.usefixtures("registry")
def test_a_registration_goes_before_the_built_in_way() -> None:
    for value in (1, 1.0, True, np.zeros(2), np.float32(1), "a", [1], {"a": 1}, Point(1, 2), Plain(1, 2)):
        register_collate(type(value), lambda values, empty: ("mine", values))
        how, values = default_collate([value, value])
        assert how == "mine"
        assert values[0] is value


@pytest.mark.usefixtures("registry")
def test_the_loader_uses_registrations() -> None:
    register_collate(Animal, legs)
    assert next(iter(DataLoader([Dog(4), Dog(3)], batch_size=2))).tolist() == [4, 3]


def test_registering_nonsense_is_refused(registry: dict[type, Any]) -> None:
    with pytest.raises(TypeError, match="takes a class first, got 'Dog'"):
        register_collate("Dog", legs)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a function second, got 3"):
        register_collate(Dog, 3)  # type: ignore[arg-type]
    assert not registry
