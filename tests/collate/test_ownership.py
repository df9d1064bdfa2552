"""A tree of one's own: the same values, and nothing in it is the dataset's memory."""

from __future__ import annotations

import copy
import sys
import threading
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kinds import named

from feedline import DataLoader
from feedline.collate.ownership import own

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
    "value", ["text", b"bytes", 3, None, object(), range(3), Frozen, {1, 2}, np.float32(1)], ids=named
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


# Containers of the user's own: class and content stay as they are.


class Normalising(UserDict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value / 255)


class Doubling(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value * 2)


class Attributes(dict[str, Any]):
    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__ = self


class ByKeyword(Mapping[str, Any]):
    def __init__(self, *, x: Any) -> None:
        self.x = x

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter("x")

    def __len__(self) -> int:
        return 1


class Doubled(namedtuple("Doubled", "x twice")):
    def __new__(cls, x: Any) -> Doubled:
        made = super().__new__(cls, x, x * 2)
        made.note = [x]
        return made


class Lazy(Sequence[Any]):
    def __init__(self, data: Any) -> None:
        self.data, self.reads = data, 0

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return self.data


class Box:
    def __init__(self, x: Any) -> None:
        self.x, self.lock = x, threading.Lock()


class Fussy:
    """Forwards what it lacks, before it has anything to forward to."""

    def __init__(self, x: Any) -> None:
        self.inner = {"x": x}

    def __getattr__(self, name: str) -> Any:
        return self.inner[name]


OBJECTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "normalising user dict": (lambda data: Normalising(x=data), lambda tree: tree.data["x"]),
    "doubling dict": (lambda data: Doubling(x=data), lambda tree: tree["x"]),
    "dict of attributes": (lambda data: Attributes(x=data), lambda tree: tree.x),
    "mapping made by keyword": (lambda data: ByKeyword(x=data), lambda tree: tree["x"]),
    "named tuple of its own making": (Doubled, lambda tree: tree.x),
    "lazy sequence": (Lazy, lambda tree: tree.data),
    "chain map": (lambda data: ChainMap({"x": data}, {"y": 1}), lambda tree: tree.maps[0]["x"]),
    "object with a lock": (Box, lambda tree: tree.x),
    "object that forwards": (Fussy, lambda tree: tree.x),
    "namespace": (lambda data: types.SimpleNamespace(x=data), lambda tree: tree.x),
    "object in a set": (lambda data: {Box(data)}, lambda tree: next(iter(tree)).x),
}
if sys.version_info < (3, 11):  # there it does not pickle, so it cannot be copied either (docs/limits.md, copies)
    del OBJECTS["object that forwards"]


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_of_any_class_keeps_class_and_content_and_owns_its_arrays(name: str) -> None:
    wrap, unwrap = OBJECTS[name]
    data = np.arange(6.0)
    tree = wrap(data)
    before = unwrap(tree).copy()
    mine = own({"tree": [tree, tree]}, np.empty)["tree"][0]
    assert type(mine) is type(tree)
    assert np.array_equal(unwrap(mine), before)
    assert not np.may_share_memory(unwrap(mine), unwrap(tree))
    assert np.array_equal(unwrap(tree), before)
    if isinstance(tree, Lazy):
        assert mine.reads == tree.reads == 0
    if isinstance(tree, Attributes):
        mine["x"] = 5
        assert mine.x == 5
        assert tree.x is data
    if isinstance(tree, Doubled):
        assert mine.note[0] is mine.x
    if isinstance(tree, ChainMap):
        assert len(mine.maps) == 2


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_without_arrays_is_passed_on_untouched(name: str) -> None:
    tree = OBJECTS[name][0](3)
    assert own([tree], np.empty)[0] is tree
    assert own(UserString("text"), np.empty) == "text"


def test_a_tree_may_hold_itself() -> None:
    tree: dict[str, Any] = {"x": np.zeros(2)}
    tree["me"], tree["we"] = tree, [tree]
    mine = own(tree, np.empty)
    assert mine["me"] is mine["we"][0] is mine
    assert mine["x"] is not tree["x"]
    box = Box(np.zeros(1))
    box.me = box  # type: ignore[attr-defined]
    copied = own(box, np.empty)
    assert copied.me is copied
    assert copied is not box


def test_one_list_in_two_places_stays_one() -> None:
    shared = [1]
    mine = own([shared, {"again": shared}, (shared, np.zeros(1))], np.empty)
    assert mine[0] is mine[1]["again"] is mine[2][0]
    assert mine[0] is not shared


def test_lists_that_are_nested_too_deep_are_passed_on() -> None:
    tree: list[Any] = [np.zeros(1)]
    for _ in range(5000):
        tree = [tree]
    assert own(tree, np.empty) is tree


def test_what_has_something_to_give_back_is_not_copied() -> None:
    class Handle:
        def __init__(self, x: Any) -> None:
            self.x = x

        def __del__(self) -> None: ...

    handle = Handle(np.zeros(1))
    assert own([handle], np.empty)[0] is handle


def test_a_batch_that_knows_its_dataset_does_not_copy_it() -> None:
    class Data:
        rows = np.zeros((4, 2))

        def __init__(self) -> None:
            self.more = np.zeros(3)

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return types.SimpleNamespace(dataset=self, row=self.rows[index])

    data = Data()
    for batch in DataLoader(data, batch_size=2, collate_fn=lambda samples: samples[0]):
        assert batch.dataset is data
        assert not np.may_share_memory(batch.row, Data.rows)


def test_a_list_of_numbers_is_not_looked_at_one_by_one() -> None:
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    numbers = [float(i) for i in range(10_000)]
    sys.setprofile(count)
    try:
        mine = own([numbers, numbers], np.empty)
    finally:
        sys.setprofile(None)
    assert mine[0] == numbers
    assert mine[0] is not numbers
    assert calls < 100


def test_an_inner_object_without_arrays_is_not_copied_with_the_outer_one() -> None:
    words = types.SimpleNamespace(words=["a", "b"])
    outer = types.SimpleNamespace(x=np.zeros(2), words=words)
    mine = own(outer, np.empty)
    assert mine is not outer
    assert mine.words is words


@pytest.mark.parametrize("turn", [1, -1])
def test_an_object_gets_the_copy_of_an_array_that_was_met_before(turn: int) -> None:
    data = np.zeros(2)
    tree = [data, types.SimpleNamespace(x=data), {"b": Box([data])}][::turn]
    plain, space, box = own(tree, np.empty)[::turn]
    assert plain is space.x is box["b"].x[0]
    assert plain is not data
