"""Labels of any kind of data as classes: equal ones are one, missing ones are one, and what is none is named."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline import OptionError, split
from feedline.datasets import classes_of

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
    with pytest.raises(OptionError, match=r"one-dimensional.*\(2, 3\); for one-hot rows, pass labels.argmax\(1\)"):
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
