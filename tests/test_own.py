"""A tree of one's own: the same values, and nothing in it is the dataset's memory."""

from __future__ import annotations

import copy
import types
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from feedline import DataLoader
from feedline.line.own import own

Point = namedtuple("Point", ["x", "y"])


@dataclass(frozen=True)
class Frozen:
    x: Any

    @cached_property
    def double(self) -> Any:
        return self.x + self.x


@dataclass(slots=True)
class Slotted:
    x: Any


@dataclass
class Both(OrderedDict[str, Any]):
    """A mapping that is a dataclass too, as model outputs are: its items count."""

    def __hash__(self) -> int:
        return id(self)


class List(list[Any]):
    pass


WRAPPERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "alone": (lambda data: data, lambda tree: tree),
    "dict": (lambda data: {"x": data}, lambda tree: tree["x"]),
    "list": (lambda data: [data], lambda tree: tree[0]),
    "tuple": (lambda data: (data,), lambda tree: tree[0]),
    "named tuple": (lambda data: Point(data, 1), lambda tree: tree.x),
    "frozen dataclass": (Frozen, lambda tree: tree.x),
    "slotted dataclass": (Slotted, lambda tree: tree.x),
    "ordered dict": (lambda data: OrderedDict(x=data), lambda tree: tree["x"]),
    "default dict": (lambda data: defaultdict(list, x=data), lambda tree: tree["x"]),
    "counter": (lambda data: Counter(x=data), lambda tree: tree["x"]),
    "user dict": (lambda data: UserDict(x=data), lambda tree: tree["x"]),
    "mapping proxy": (lambda data: types.MappingProxyType({"x": data}), lambda tree: tree["x"]),
    "user list": (lambda data: UserList([data]), lambda tree: tree[0]),
    "deque": (lambda data: deque([data]), lambda tree: tree[0]),
    "list subclass": (lambda data: List([data]), lambda tree: tree[0]),
    "nested": (lambda data: {"a": [(Frozen(deque([data])),)]}, lambda tree: tree["a"][0][0].x[0]),
    "dataclass and dict": (lambda data: filled(Both(), data), lambda tree: tree["x"]),
}


def filled(mapping: Any, data: Any) -> Any:
    mapping["x"] = data
    return mapping


@pytest.mark.parametrize("name", WRAPPERS)
def test_arrays_in_containers_are_copied_and_the_containers_keep_their_type(name: str) -> None:
    wrap, unwrap = WRAPPERS[name]
    data = np.arange(6.0).reshape(2, 3)
    tree = wrap(data)
    mine = own(tree, np.empty)
    assert type(mine) is type(tree)
    assert type(unwrap(mine)) is np.ndarray
    assert np.array_equal(unwrap(mine), data)
    assert not np.may_share_memory(unwrap(mine), data)
    assert unwrap(tree) is data


@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0)), st.booleans())
def test_an_array_is_copied_bit_for_bit_into_the_memory_handed_over(data: Any, turned: bool) -> None:
    data = data.T if turned else data
    given_out = []

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        given_out.append(np.empty(shape, dtype))
        return given_out[-1]

    mine = own({"x": data}, empty)["x"]
    assert mine is given_out[0]
    assert len(given_out) == 1
    assert (mine.dtype, mine.shape, mine.tobytes()) == (data.dtype, data.shape, data.tobytes())


def test_a_default_dict_keeps_its_factory() -> None:
    assert own(defaultdict(list, x=np.zeros(1)), np.empty).default_factory is list


def test_a_cached_property_of_a_dataclass_is_copied_too() -> None:
    sample = Frozen(np.ones(2))
    assert sample.double.tolist() == [2, 2]
    own(sample, np.empty).double[...] = 0
    assert sample.double.tolist() == [2, 2]


def test_an_array_of_arrays_is_copied_to_the_bottom() -> None:
    ragged = np.empty((1, 2), object)
    ragged[0, 0], ragged[0, 1] = np.zeros(2), {"x": np.zeros(3)}
    mine = own(ragged, np.empty)
    mine[0, 0][0] = mine[0, 1]["x"][0] = 1
    assert mine.shape == (1, 2)
    assert ragged[0, 0][0] == ragged[0, 1]["x"][0] == 0


def test_a_record_of_a_structured_array_is_copied() -> None:
    rows = np.zeros(2, [("a", "i4")])
    own({"row": rows[0]}, np.empty)["row"]["a"] = 5
    assert rows["a"].tolist() == [0, 0]


def test_a_masked_array_keeps_its_mask() -> None:
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    mine = own(masked, np.empty)
    assert mine.mask.tolist() == [True, False]
    mine[1] = 5
    assert masked[1] == 2


@pytest.mark.parametrize(
    "value", ["text", b"bytes", 3, None, object(), range(3), Frozen, {1, 2}, np.float32(1)], ids=repr
)
def test_everything_else_is_passed_on_as_it_is(value: Any) -> None:
    assert own(value, np.empty) is value
    assert own([value], np.empty)[0] is value


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": None},
        {"batch_size": None, "collate_fn": lambda sample: sample},
        {"collate_fn": lambda few: few[0]},
    ],
    ids=["unbatched", "unbatched and collated", "collated"],
)
def test_writing_into_what_was_delivered_never_changes_the_dataset(options: dict[str, Any]) -> None:
    for name, (wrap, unwrap) in WRAPPERS.items():
        data = np.zeros((4, 3))
        for sample in DataLoader([wrap(row) for row in data], **options):
            unwrap(sample)[...] = 1
        assert not data.any(), name


@pytest.mark.parametrize("make", [partial(np.zeros, (5, 20_000)), partial(np.zeros, (5, 2))])
def test_a_bare_array_as_dataset_is_never_handed_out(make: Callable[[], Any]) -> None:
    data = make()
    before = copy.deepcopy(data)
    for batch_size in (None, 1, 2):
        for batch in DataLoader(data, batch_size=batch_size):
            batch[...] = 1
    assert np.array_equal(data, before)


def test_one_array_in_two_places_stays_one() -> None:
    array = np.arange(3)
    mine = own({"a": array, "b": [array, array.copy()]}, np.empty)
    assert mine["a"] is mine["b"][0]
    assert mine["a"] is not array
    assert mine["b"][1] is not mine["a"]


def test_arrays_made_on_the_way_are_not_taken_for_one() -> None:
    class Fresh(list[Any]):
        def __iter__(self) -> Any:
            return (np.full(3, i) for i in range(50))

    assert [array.tolist() for array in own(Fresh([0] * 50), np.empty)] == [[i] * 3 for i in range(50)]
