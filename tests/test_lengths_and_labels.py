"""Lengths and labels of any kind of data, as arrays; weights made of labels."""

from __future__ import annotations

import os
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline import (
    ArrayDataset,
    OptionError,
    WeightedRandomSampler,
    lengths_of,
    split,
    weights_from_labels,
)
from feedline.datasets import classes_of
from feedline.order import lengths as lengths_module
from feedline.order.sorting import places_by

# --- labels ---

LABELS = (
    st.lists(st.integers(-5, 5))
    | st.lists(st.integers(-(2**62), 2**62))
    | st.lists(st.sampled_from(["a", "b", "1"]))
    | st.lists(st.sampled_from(["1", 1, None, (1, 2), 2.5, "a"]))
    | st.lists(st.booleans())
)


@settings(max_examples=few(200))
@given(LABELS)
def test_equal_labels_are_one_class_and_others_are_not(labels: list[Any]) -> None:
    codes, names = classes_of(labels)
    assert codes.dtype == np.int64
    assert [names[code] for code in codes.tolist()] == labels
    assert len(set(names)) == len(names) == len(set(labels))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 1, 3, 2], np.uint8),
        np.array([-128, 127, -128], np.int8),
        np.array([2**64 - 1, 2**64 - 3, 2**64 - 1], np.uint64),
        np.array([10**15, 0, 10**15]),
        np.array(["b", "a", "b"]),
        np.array([0.5, 1.5, 0.5]),
        np.array([True, False, True]),
        np.array([("a", 1), "a", ("a", 1)], object),
        np.array([], np.int32),
    ],
    ids=lambda labels: f"{labels.dtype} {len(labels)}",
)
def test_arrays_of_labels(labels: Any) -> None:
    codes, names = classes_of(labels)
    assert [names[code] for code in codes.tolist()] == labels.tolist()
    assert classes_of(labels).sizes.sum() == len(labels)
    assert labels.dtype.kind == "O" or names == sorted(names)


def test_labels_that_are_none_are_named() -> None:
    with pytest.raises(OptionError, match=r"one-dimensional.*got shape \(2, 3\); of one-hot rows, labels.argmax\(1\)"):
        classes_of(np.zeros((2, 3)))
    with pytest.raises(OptionError, match=r"labels\[1\] is a list"):
        classes_of([1, [2]])
    with pytest.raises(OptionError, match="one label for each sample; got 'abc'"):
        classes_of("abc")
    with pytest.raises(OptionError, match="one label for each sample; got 5"):
        classes_of(5)


NAN = [0.0, float("nan"), 0.0, float("nan"), 2.0, float("nan")]
MISSING: dict[str, Any] = {
    "array": np.array(NAN),
    "list": NAN,
    "objects": np.array(NAN, object),
    "NumPy's": [np.float32(value) for value in NAN],
    "complex": [complex(value) for value in NAN],
    "decimals": [Decimal(value) for value in NAN],
    "masked": np.ma.array([0, 7, 0, 8, 2, 9], mask=[value != value for value in NAN]),
}


@pytest.mark.parametrize("name", MISSING)
def test_missing_labels_are_one_class(name: str) -> None:
    codes, names = classes_of(MISSING[name])
    assert len(names) == 3
    assert [codes.tolist().index(code) for code in codes] == [0, 1, 0, 1, 4, 1]
    groups = split(range(6), {"a": 0.5, "b": 0.5}, groups=MISSING[name])
    assert sum(1 in part.indices for part in groups.values()) == 1
    assert all({1, 3, 5} <= set(part.indices) or not {1, 3, 5} & set(part.indices) for part in groups.values())


def test_a_mask_that_hides_nothing_is_no_mask() -> None:
    assert classes_of(np.ma.array([3, 4, 3])).names == [3, 4]


@given(st.lists(st.sampled_from("abc"), min_size=1))
def test_every_class_has_the_same_weight_in_all(labels: list[str]) -> None:
    weights = weights_from_labels(labels)
    assert weights.dtype == np.float64
    sums = [weights[[label == each for each in labels]].sum() for label in set(labels)]
    assert sums == pytest.approx([1] * len(sums))


def test_weights_of_labels_balance_the_classes() -> None:
    labels = np.repeat([0, 1, 2], [9000, 900, 100])
    drawn = labels[list(WeightedRandomSampler(weights_from_labels(labels), 30_000, seed=7))]
    assert ((np.bincount(drawn) - 10_000) ** 2 / 10_000).sum() < 15  # chi-square, 2 degrees


@given(st.lists(st.integers(-3, 70_000)))
def test_places_sort_and_keep_the_order_of_equals(values: list[int]) -> None:
    assert places_by(np.array(values, np.int64)).tolist() == sorted(range(len(values)), key=values.__getitem__)


# --- lengths ---


class Read:
    """Counts how often it is read."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples
        self.reads = 0

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return self.samples[index]


class Columns(Read):
    """As Hugging Face's datasets answer for a column."""

    column_names = ("text", "size")

    def __getitem__(self, index: Any) -> Any:
        return [row[index] for row in self.samples] if isinstance(index, str) else super().__getitem__(index)


class Pair:
    def __init__(self, text: str) -> None:
        self.text = text


@pytest.mark.parametrize(
    ("samples", "key"),
    [
        (["abc", "", "ab"], None),
        ([[1, 2, 3], [], [1, 2]], None),
        ([np.zeros((3, 7)), np.zeros((0, 7)), np.zeros((2, 7))], None),
        ([3, np.int32(0), np.array(2)], None),
        ([("x", "abc"), ("x", ""), ("x", "ab")], 1),
        ([{"text": "abc"}, {"text": ""}, {"text": [1, 2]}], "text"),
        ([Pair("abc"), Pair(""), Pair("ab")], "text"),
    ],
)
def test_every_sample_is_read_once(samples: list[Any], key: Any) -> None:
    data = Read(samples)
    found = lengths_of(data, key)
    assert found.dtype == np.int64
    assert found.tolist() == [3, 0, 2]
    assert data.reads == 3


def test_a_column_is_taken_as_it_is() -> None:
    texts = np.empty(2, object)
    texts[:] = ["abc", [1]]
    data = ArrayDataset(size=[5, 6], rows=np.zeros((2, 4)), words=np.array(["abc", "d"]), texts=texts)
    assert [lengths_of(data, name).tolist() for name in ("size", "rows", "words", "texts")] == [
        [5, 6],
        [4, 4],
        [3, 1],
        [3, 1],
    ]
    assert lengths_of(ArrayDataset(np.zeros(2), [5, 6]), 1).tolist() == [5, 6]
    columns = Columns([{"text": "abc", "size": 9}, {"text": "d", "size": 8}])
    assert lengths_of(columns, "text").tolist() == [3, 1]
    assert lengths_of(columns, "size").tolist() == [9, 8]
    assert columns.reads == 0


def test_a_single_field_needs_no_name() -> None:
    class Column(ArrayDataset):
        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("a column need not be read one by one")

    assert lengths_of(Column(np.zeros((3, 5)))).tolist() == [5, 5, 5]
    assert lengths_of(ArrayDataset(words=np.array([3, 4]))).tolist() == [3, 4]
    assert lengths_of([("ab",), ("c",)]).tolist() == [2, 1]
    assert lengths_of([{"x": "ab"}, {"x": "c"}]).tolist() == [2, 1]


@pytest.mark.parametrize(
    ("data", "key", "words"),
    [
        ([("a", 1)], None, r"several fields: say by key which one's length counts, of \[0, 1\]"),
        ([{"x": 1, "y": 2}], None, r"of \['x', 'y'\]"),
        ([{}], None, r"of \[\]"),
        (["ab", 2.5], None, "sample 1 has no length: it is a float"),
        ([{"x": 2.5}], "x", "field 'x' of sample 0 has no length"),
        ([{"x": "a"}, {}], "x", r"sample 1 \(dict\) has no field 'x'"),
        ([("a",)], 3, "has no field 3"),
        (ArrayDataset(x=[1.5]), "x", "neither lengths nor anything with a length"),
        (iter("abc"), None, "has no len"),
    ],
)
def test_what_has_no_length_is_named(data: Any, key: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        lengths_of(data, key)


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = os.openpty()
    with os.fdopen(parent, "rb", buffering=0) as screen, os.fdopen(child, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(lengths_module, "SECONDS_BETWEEN", 0)
        lengths_of(Read(["ab"] * 4))
        seen = ""
        while not seen.endswith("4 of 4\r\x1b[K"):  # a terminal hands over as much as it has just now
            seen += screen.read(4096).decode()
    assert "3 of 4" in seen


def test_a_log_does_not(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lengths_module, "SECONDS_BETWEEN", 0)
    lengths_of(Read(["ab"] * 4))
    assert capsys.readouterr() == ("", "")
