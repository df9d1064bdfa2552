"""A batch is delivered without a copy only if nobody else has any of it."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline import DataLoader
from feedline.collate import unshared
from feedline.collate.unshared import is_unshared

made: dict[str, Callable[[], Any]] = {
    "array": lambda: np.arange(6.0),
    "reshaped": lambda: np.arange(6.0).reshape(2, 3),
    "in a tuple": lambda: (np.arange(6.0), 1, "text"),
    "in a dict": lambda: {"x": [np.arange(6.0)], "y": (None, 2.5)},
    "texts": lambda: ["a", "b"],
}


def arrays_in(tree: Any) -> list[Any]:
    if isinstance(tree, np.ndarray):
        return [tree]
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ()
    return [array for each in inner for array in arrays_in(each)]


def container_in(tree: Any) -> Any:
    """The container that holds the array."""
    return tree["x"] if isinstance(tree, dict) else tree


KEEPERS: dict[str, Callable[[Any], Any]] = {
    "the tree": lambda tree: tree,
    "an inner container": container_in,
    "an array": lambda tree: arrays_in(tree)[0],
    "a view": lambda tree: arrays_in(tree)[0][..., :1],
    "a view of a view": lambda tree: arrays_in(tree)[0].T[:1],
    "a buffer": lambda tree: memoryview(arrays_in(tree)[0]),
    "a ctypes object": lambda tree: np.ctypeslib.as_ctypes(arrays_in(tree)[0]),
    "a weak reference": lambda tree: weakref.ref(arrays_in(tree)[0]),
    "a function": lambda tree: lambda: tree,
    "a generator": lambda tree: (each for each in [tree]),
}


@pytest.mark.parametrize("make", made.values(), ids=made)
def test_what_only_the_list_holds_is_unshared(make: Callable[[], Any]) -> None:
    held = [make()]
    assert is_unshared(held, 0)


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
@pytest.mark.parametrize("make", [make for name, make in made.items() if name != "texts"])
def test_whoever_keeps_anything_of_it_is_noticed(make: Callable[[], Any], keep: Callable[[Any], Any]) -> None:
    held = [make()]
    kept = keep(held[0])
    assert not is_unshared(held, 0)
    del kept
    assert is_unshared(held, 0)


def test_whoever_keeps_a_list_of_texts_is_noticed() -> None:
    held, outer = [["a", "b"]], [[["a"], "b"]]
    kept = held[0]
    assert not is_unshared(held, 0)
    inner = outer[0][0]
    assert not is_unshared(outer, 0)
    array = np.zeros(2)
    assert not is_unshared([["a", array]], 0)
    del kept, inner, array
    assert is_unshared(held, 0)
    assert is_unshared(outer, 0)


class Texts:
    """Gives the same list for every batch, which is its own."""

    def __init__(self, keeps: bool) -> None:
        self.own = ["a", "b"]
        self.keeps = keeps

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> str:
        return self.own[index % 2]

    def __getitems__(self, indices: list[int]) -> list[str]:
        return self.own if self.keeps else self.own.copy()


@pytest.mark.parametrize("dataset_keeps", [False, True])
@pytest.mark.parametrize("collate_keeps", [False, True])
def test_a_list_that_a_collate_fn_gives_back_is_the_users_alone(dataset_keeps: bool, collate_keeps: bool) -> None:
    texts, kept, seen = Texts(dataset_keeps), [], []

    def collate(samples: list[str]) -> list[str]:
        seen.append(id(samples))
        if collate_keeps:
            kept.append(samples)
        return samples

    for batch in DataLoader(texts, batch_size=2, collate_fn=collate):
        assert (id(batch) == seen[-1]) is not (dataset_keeps or collate_keeps)
        batch.clear()
    assert texts.own == ["a", "b"]
    assert kept == [["a", "b"]] * 2 * collate_keeps


def test_memory_that_is_not_numpys_own_is_shared() -> None:
    memory = bytearray(8)
    block = (ctypes.c_uint8 * 8)()
    for array in (np.frombuffer(memory, np.uint8), np.asarray(memoryview(memory)), np.ctypeslib.as_array(block)):
        held = [array]
        del array
        assert not is_unshared(held, 0)


def test_objects_records_and_subclasses_are_copied() -> None:
    class Own(np.ndarray):
        pass

    for made in (np.array([object()]), np.zeros(2).view(Own), np.ma.zeros(2), object(), {1, 2}, bytearray(2)):
        held = [made]
        del made
        assert not is_unshared(held, 0)


WORSE: dict[str, Callable[[], Any]] = {
    "elements that share a place": lambda: np.ndarray((2, 3), buffer=np.arange(3.0), strides=(0, 8)),
    "a row spread out": lambda: np.broadcast_to(np.arange(3.0), (2, 3)),
    "what cannot be written to": lambda: _locked(np.arange(3.0)),
    "a crop, with the rest beside it": lambda: np.zeros((100, 100))[:2, :2],
    "a stretch, with the rest beside it": lambda: np.zeros(100)[:3],
    "every second one": lambda: np.zeros(6)[::2],
}


def _locked(array: Any) -> Any:
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("make", WORSE.values(), ids=WORSE)
def test_what_a_copy_would_make_better_is_copied(make: Callable[[], Any]) -> None:
    assert not is_unshared([make()], 0)
    (batch,) = DataLoader([1], collate_fn=lambda samples: make())
    assert batch.flags.writeable
    assert batch.tolist() == make().tolist()
    batch[...] = np.arange(batch.size).reshape(batch.shape)
    assert batch.ravel().tolist() == [*range(batch.size)]  # each element has its own place


def test_an_object_that_is_in_two_places_stays_one_object() -> None:
    inner = np.zeros(2)
    held = [(inner, inner)]
    del inner
    assert not is_unshared(held, 0)  # a copy keeps it one object


def test_where_references_are_not_counted_everything_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unshared, "references", lambda value: -1)
    assert not is_unshared([np.zeros(2)], 0)


class Rows:
    """Gives its own rows, views on its data, copies, or whole cached batches."""

    def __init__(self) -> None:
        self.data = np.arange(24.0).reshape(6, 4)
        self.kept: list[Any] = []

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return self.data[index]


RESULTS: dict[str, Callable[[Rows, list[Any]], Any]] = {
    "a fresh stack": lambda rows, samples: np.stack(samples),
    "the samples": lambda rows, samples: samples,
    "the first sample": lambda rows, samples: samples[0],
    "a tuple of samples": lambda rows, samples: tuple(samples),
    "the data": lambda rows, samples: rows.data,
    "a view of the data": lambda rows, samples: {"x": rows.data[:2]},
    "a stack and the data": lambda rows, samples: (np.stack(samples), rows.data),
    "what it keeps": lambda rows, samples: rows.kept.append(np.stack(samples)) or rows.kept[-1],  # type: ignore[func-returns-value]
    "a view of what it keeps": lambda rows, samples: rows.kept.append(np.stack(samples)) or rows.kept[-1][:1],  # type: ignore[func-returns-value]
    "its first view": lambda rows, samples: rows.kept.append((whole := np.stack(samples))[:1]) or whole,  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("workers", [{}, {"num_workers": 2, "workers": "thread"}], ids=["none", "threads"])
@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
@pytest.mark.parametrize("keeps_samples", [False, True])
def test_writing_into_a_batch_changes_nothing_that_somebody_else_has(
    result: Callable[[Rows, list[Any]], Any], keeps_samples: bool, workers: dict[str, Any]
) -> None:
    rows = Rows()
    lists: list[Any] = []

    def collate(samples: list[Any]) -> Any:
        if keeps_samples:
            lists.append(samples)
        return result(rows, samples)

    def everything() -> list[Any]:
        return [array.tolist() for array in arrays_in([rows.data, rows.kept, lists])]

    loader = DataLoader(rows, batch_size=2, collate_fn=collate, **workers)
    for batch in loader:
        before = everything()
        for array in arrays_in(batch):
            array += 100
        assert everything() == before
    assert not keeps_samples or [len(each) for each in lists] == [2, 2, 2]
    loader.close()


@given(st.integers(0, 3), st.booleans())
def test_a_fresh_batch_is_delivered_as_it_is(deep: int, is_tuple: bool) -> None:
    addresses = []

    def collate(samples: list[Any]) -> Any:
        batch: Any = np.stack(samples)
        addresses.append(batch.ctypes.data)
        for _ in range(deep):
            batch = (batch, 1) if is_tuple else {"x": batch}
        return batch

    for batch in DataLoader(Rows(), batch_size=2, collate_fn=collate):
        assert arrays_in(batch)[0].ctypes.data == addresses[-1]
