"""Lengths of the samples of any kind of data, as an array."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest

from feedline import (
    ArrayDataset,
    OptionError,
    lengths_of,
)
from feedline.order import lengths as lengths_module


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
        ([("a", 1)], None, r"several fields: pass key=, the field whose length counts, one of \[0, 1\]"),
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
